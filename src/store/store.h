/* SPDX-License-Identifier: BSD-3-Clause */
/* The store: the service at which the ranks of a job meet, and learn of each other's end. */
#ifndef DISTI_STORE_STORE_H
#define DISTI_STORE_STORE_H

#include "base/net.h"

#include <dist/backend.h>

/*
 * The server runs in a thread of rank 0's process (or of the launcher's). Every rank
 * keeps one connection for as long as the job lasts, so the server sees who dies, and
 * tells the others at once (a notice). Several threads of a rank may use its store at once;
 * one that waits holds up no other. To connect and to close it is for one thread.
 */
struct disti_store_server;
struct disti_store;

#define DISTI_KEY_MAX 256
#define DISTI_VALUE_MAX (16u << 20) /* bytes that one rank gives at once */
#define DISTI_STORE_KEY 32          /* bytes */

/*
 * A server for world_size ranks. It listens on one address, `host` (numeric or a name; NULL: on all
 * addresses of the machine), and on `port` (0: any free one); `run` starts its thread, so that a
 * launcher may fork in between. Neither blocks, except that a name is looked up until the deadline.
 * ERR_ADDRESS_IN_USE names address and port;
 * ERR_SYSTEM: there may not be a descriptor for each rank. Once all
 * ranks have said goodbye, a launcher's store is empty and ready for the next group.
 */
dist_status disti_store_server_listen(const char *host, int port, int world_size, int64_t deadline,
                                      struct disti_store_server **server_p);
dist_status disti_store_server_run(struct disti_store_server *server);
int disti_store_server_port(const struct disti_store_server *server);

/*
 * Serves the job of a scheduler in this thread, and ends the server. Blocks until the job is over:
 * DIST_OK if all ranks came and left in order, ERR_PEER_LOST if one was lost, ERR_TIMEOUT if some
 * have not come within timeout_ms (the text names the ranks).
 */
dist_status disti_store_server_schedule(struct disti_store_server *server, int timeout_ms);

/* Makes `stop` wait for ranks that have not come yet, too. NULL is accepted. */
void disti_store_server_expect_all(struct disti_store_server *server);

/* Waits until every client has gone, at most linger_ms, then stops. NULL is accepted. */
void disti_store_server_stop(struct disti_store_server *server, int linger_ms);

/* The rank that holds the store; -1: a launcher does. */
int disti_store_holder(const struct disti_store *store);

/*
 * The key of the world: DISTI_STORE_KEY random bytes, the same for all its ranks, which the store
 * gave to those who proved that they have its secret. Lives as long as the store.
 */
const unsigned char *disti_store_key(const struct disti_store *store);

/*
 * Takes `count` numbers, above 0, that no other request gets: *first_p is the lowest. A launcher's
 * store begins at 1 for each of its jobs.
 */
dist_status disti_store_take_numbers(struct disti_store *store, int count, int64_t *first_p);

/*
 * The address of a server that listens everywhere at which the first rank of another machine came;
 * "": none has, or it listens at one address only.
 */
dist_status disti_store_seen_host(struct disti_store *store, char host[DISTI_HOST_SIZE]);

/* Some ranks of the job, for a group of them. */
#define DISTI_NO_GROUP (-1)
struct disti_party {
    int32_t group;    /* its number; what is reported for it ends it */
    const int *ranks; /* by rank of the group, each once; NULL: all ranks of the job */
    int count;        /* how many they are, with ranks NULL: not looked at */
    /* For the error if not all come: what they are waited for ("for all ranks to join"), and since
     * when. NULL, 0: to come; since the request. */
    const char *what;
    int64_t since_ns;
};

/*
 * Every rank of the party (NULL: of the job, for no group) gives bytes (the same number) and gets
 * bytes from each, in the party's order (NULL: it does not ask for them). One round trip. Waits for
 * all, at most timeout_ms: ERR_TIMEOUT names the ranks that did not come, and ends it for all.
 * ERR_PEER_LOST: a rank of the party is gone. If a failure was reported for the group, its status.
 * ERR_MISMATCH: another rank names another party, or another size. bytes 0: a barrier.
 */
dist_status disti_store_all_gather(struct disti_store *store, const struct disti_party *party,
                                   const char *key, const void *in, void *out, size_t bytes,
                                   int timeout_ms);

/*
 * Cancels the party's all-gather of that key. The requests of the other ranks, later ones too, end
 * with `status`, and the error names this rank and `why`. Does not block.
 */
void disti_store_refuse(struct disti_store *store, const struct disti_party *party, const char *key,
                        dist_status status, const char *why);

/*
 * The party's first rank gives bytes at `data`, the others get them there. Waits for all, with the
 * failures of a gather.
 */
dist_status disti_store_broadcast(struct disti_store *store, const struct disti_party *party,
                                  const char *key, void *data, size_t bytes, int timeout_ms);

/*
 * A barrier of the party in which a rank that has come stays counted even if it gave up waiting: so
 * one that comes late finds the others there. The key must not be used twice.
 */
dist_status disti_store_arrive(struct disti_store *store, const struct disti_party *party,
                               const char *key, int timeout_ms);

/*
 * The last all-gather of a party, with bytes of each rank as above. Once all have come the store
 * keeps nothing of its group, not even barriers that some have arrived at and others never will.
 * `late` (may be NULL) is called every 200 ms while this rank waits, and may use the store.
 */
dist_status disti_store_leave(struct disti_store *store, const struct disti_party *party,
                              const char *key, const void *in, void *out, size_t bytes,
                              int timeout_ms, void (*late)(void *arg), void *arg);

/*
 * Tells the party's other ranks that this one leaves its group after `calls` collectives: who waits
 * for it in a later one, waits in vain. They get it as a notice, unless one that made fewer calls
 * has told before. Does not wait.
 */
void disti_store_tell_leaving(struct disti_store *store, const struct disti_party *party,
                              uint64_t calls);

/* The reason that a rank gave, whole, and who it is. */
#define DISTI_REASON_MAX 1200
#define DISTI_NEWS_MAX (DISTI_REASON_MAX + 200)

/* News about another rank. */
struct disti_notice {
    int rank;
    int32_t group; /* a failure of this group; DISTI_NO_GROUP: of the rank itself */
    bool graceful; /* it said goodbye; else it was lost */
    dist_status
        status;     /* of a group that failed: what ended it there; ERR_ABORTED: by dist_abort */
    bool leaving;   /* of a group, which has not failed: it calls nothing more in it */
    uint64_t calls; /* with `leaving`: collectives that it has called there */
    char text[DISTI_NEWS_MAX]; /* "rank 3 (host node1, pid 4242) closed its connection without a
                                  goodbye" */
};

/* Returns true if the server is gone: nothing else comes from it. Looks now, without waiting. */
bool disti_store_is_lost(struct disti_store *store);

/*
 * Copies why a lost store is lost: "rank 0 (host node1, pid 4242), which holds the store, closed
 * its connection without leaving the job". Returns true if a rank held it, false if a launcher did.
 */
bool disti_store_lost_why(struct disti_store *store, char *text, size_t size);

/* Readable when there is news or the server is gone. */
int disti_store_fd(const struct disti_store *store);

/* One piece of news, without waiting: true and *notice_p, or false. A lost server is
 * news about rank 0 (or the launcher: rank -1). Given once each. */
bool disti_store_notice(struct disti_store *store, struct disti_notice *notice_p);

/*
 * Watches a process of this machine, whose end becomes a notice. Takes its pidfd, copies the text,
 * which names the process. Returns false if it cannot be watched.
 *
 * rank -1: the launcher. The notice has the text as it is. The launcher's end also ends all waits
 * for the store, as if the store were lost. Otherwise a rank, for a process whose store is lost.
 * The notice says how the process ended, if the kernel still knows.
 */
bool disti_store_watch_process(struct disti_store *store, int pidfd, int rank, int pid,
                               const char *text);

/*
 * Tells the other ranks that this one failed, and why: they get it as a notice. Does not wait.
 *
 * With a party, its group failed here with that status. The first report of a group goes to all its
 * ranks, the sender included, and the group's all-gathers end with its status. So a rank that has
 * reported a failure reads which rank was first. NULL: the process itself failed; status is not
 * used.
 */
void disti_store_report(struct disti_store *store, const struct disti_party *party,
                        dist_status status, const char *why);

/*
 * Tells that this rank's program has aborted the group: the others get it as a notice, this rank
 * too, and all-gathers of the group end with ERR_ABORTED. Readied with `new` (NULL: no memory, and
 * the store lives at least as long), then rung by any thread or signal handler. The store may have
 * been closed for us; then nothing happens. NULL is accepted by `free`.
 */
struct disti_store_alarm;
struct disti_store_alarm *disti_store_alarm_new(struct disti_store *store,
                                                const struct disti_party *party);
void disti_store_alarm_ring(struct disti_store_alarm *alarm);
/* Rung by a thread, which is in no handler: on a TLS session, too, what this rank says later comes
 * after it. */
void disti_store_alarm_send(struct disti_store_alarm *alarm);
void disti_store_alarm_free(struct disti_store_alarm *alarm);

/*
 * From now on what this thread waits for in a store ends with ERR_ABORTED if this group is aborted,
 * or was, whatever party it is for. DISTI_NO_GROUP: not any more.
 */
void disti_store_end_on_abort(int32_t group);

/*
 * Who waits for a reply, without any lock, calls `wait` to do so: until the descriptor is readable,
 * or the point in time has come, or earlier. So its thread can do what others wait for. NULL, as at
 * first: it sleeps.
 */
typedef void (*disti_store_wait_fn)(int fd, int64_t until_ns);
void disti_store_wait_by(disti_store_wait_fn wait);

/* Says goodbye and closes. NULL is accepted. */
void disti_store_close(struct disti_store *store);

/* ---- the last call of a rank, where its launcher can read it after the rank was killed ---- */

#define DISTI_LAST_CALL_BYTES 4096 /* each local rank's part of the file, and a scheduler's */

/* What stands there. */
struct disti_last_call {
    uint32_t magic; /* DISTI_LAST_CALL_MAGIC: there was a call; ..._SERVED: a job was served */
    uint32_t group;
    int32_t collective, dtype, op, root;
    int64_t sequence;
    uint64_t count;
};
#define DISTI_LAST_CALL_MAGIC UINT32_C(0x6c617374)
#define DISTI_LAST_CALL_SERVED UINT32_C(0x73727664)

/* This process's; NULL: no launcher asked for it. Stays mapped until the process ends. */
extern struct disti_last_call *disti_last_call;

/*
 * Maps this rank's part, if DIST_AGENT_LAST_CALL names a file. Without it nothing is told; that is
 * no error. May be called again, by one thread at a time.
 */
void disti_last_call_open(int local_rank);

/* Keeps the call. On every call's way, so it does nothing else. */
static inline void disti_last_call_note(uint32_t group, const struct dist_call *call)
{
    struct disti_last_call *last = disti_last_call;

    if (!last)
        return;
    *last = (struct disti_last_call){DISTI_LAST_CALL_MAGIC, group,      call->collective,
                                     call->dtype,           call->op,   call->root,
                                     call->sequence,        call->count};
}

/* Keeps that another process's end has ended what this one, rank or scheduler, does: if it fails
 * now, that is no cause. */
void disti_last_call_note_loss(void);

/* Keeps that this process was the job's scheduler, and has served it well. What its program makes
 * of that, which may know of no schedulers, is no matter to the launcher then. */
void disti_last_call_note_served(int local_ranks);

/* ---- the launcher's side ---- */

/* A memfd for so many processes, which cannot shrink; -1: errno says why. The caller closes it. */
int disti_last_call_file(int processes);

/* "all_reduce, call 12 of group 0, 1024 float32"; "": none was made. */
void disti_last_call_text(int fd, int local_rank, char *text, size_t size);

/*
 * Writes the number that the clocks of the job's processes follow, the scheduler's included: what
 * disti_clock_suspend or disti_clock_resume has made of the last one, 0 at first.
 */
void disti_last_call_tell_clocks(int fd, int processes, int64_t number);

/* Has the scheduler of so many local ranks served them well? */
bool disti_last_call_served(int fd, int local_ranks);

/* Has the process of that page, a local rank or behind them the scheduler, noted a loss? */
bool disti_last_call_has_lost(int fd, int page);

/* ---- files in memory that a launcher passes to its ranks, also in other namespaces ---- */

/*
 * The ranks inherit the descriptors of these files. DIST_AGENT_FILES has their numbers and inodes:
 *
 *     DIST_AGENT_FILES=6:4711,7:4712     FD:INODE of the secret, then of the last calls
 *
 * A rank first tries the inherited descriptor, which works in every namespace. A program between
 * launcher and rank may have closed it (Python's subprocess does); then the rank opens
 * /proc/LAUNCHER/fd/FD, which works in the launcher's PID and user namespace. The number may belong
 * to another file meanwhile, and in another PID namespace the pid to another process: the inode
 * tells.
 */
enum disti_handed { DISTI_HANDED_SECRET, DISTI_HANDED_LAST_CALLS };

/* Room for "FD:INODE". */
#define DISTI_HANDED_TEXT 40

/* ---- the launcher's side ---- */

/* Returns a sealed memfd that contains the word; -1: errno. The caller closes it. */
int disti_handed_secret(const char *word);

/* Writes "FD:INODE". */
void disti_handed_name(int fd, char text[DISTI_HANDED_TEXT]);

/* ---- the rank's side ---- */

/*
 * Opens a file of the launcher with `flags`, by the inherited descriptor, or by `path`. Without
 * DIST_AGENT_FILES any file at `path` will do. Returns a descriptor, which the caller closes, or
 * -1: errno; ESTALE: `path` is another file. *inherited_p is the number of the descriptor that was
 * to be inherited; -1: none was.
 */
int disti_handed_open(enum disti_handed which, const char *path, int flags, int *inherited_p);

#endif
