/* SPDX-License-Identifier: BSD-3-Clause */
/* Ways to meet, and the launchers whose variables name them; private to this module. */
#ifndef DISTI_RENDEZVOUS_MEET_H
#define DISTI_RENDEZVOUS_MEET_H

#include "base/net.h"
#include "rendezvous/rendezvous.h"
#include "store/client.h"

/* ---- rank and world size, before the ranks meet ---- */

/* A number and where it comes from, for the errors. */
struct disti_facts_number {
    int value; /* -1: nobody says */
    const char *from;
};

struct disti_facts {
    const struct dist_options *options;
    struct disti_url url;
    struct disti_launch launch;
    struct disti_facts_number rank, world_size;
    int local_rank, local_world_size;
    bool by_pmix; /* the ranks meet through the launcher's PMIx */
};

/* ---- the discovery: a Unix socket by which the ranks of one machine find their store ---- */

/*
 * Listens on the abstract address "dist/<uid>/<job>". The kernel says who is at the other
 * end, so only processes of the same user are answered. Never blocks. IN_PROGRESS: someone else
 * has that address.
 */
dist_status disti_discovery_open(const char *job, int *fd_p);

/*
 * Asks at the discovery, once, for port and word of the store. IN_PROGRESS: nobody is there yet.
 * Blocks a second at most, if whoever opened it does not answer. ERR_RENDEZVOUS if it is another
 * user's.
 */
dist_status disti_discovery_ask(const char *job, int *port_p, char word[128]);

/* ---- the launcher's process on this machine, which is to outlive this rank ---- */

/* As /proc has it, without its end. */
#define DISTI_PROCESS_NAME 32

/*
 * The nearest process above this one that was started without `variable`, or with another value
 * than this one has. A launcher gives it to its ranks alone: so shells between the two do not
 * count, which may end before the rank does, and a launcher that is itself a rank of another does.
 * A pidfd of it, which the caller closes, with *pid_p and its name; -1: there is none but those
 * that adopt orphans, or the system does not tell. Does not block.
 */
int disti_launcher_process(const char *variable, int *pid_p, char name[DISTI_PROCESS_NAME]);

/* ---- Slurm's compressed lists ---- */

/* The number of tasks on node `node` by "2(x3),1" (2, 2, 2, 1); -1 if the text is malformed
 * or has no such node. */
int disti_slurm_tasks(const char *text, int node);

/* The first host of "n[01-03,7],m5" ("n01"). False if the text is malformed or it does not fit. */
bool disti_slurm_first_host(const char *text, char *host, size_t size);

/* ---- the ways to meet: all end with a store, and rank 0 with its server ---- */

/* Who wants to meet, and until when. */
struct disti_meeting {
    int rank; /* -1: the scheduler hands it out */
    int world_size;
    int timeout_ms;
    int64_t deadline;
    bool one_machine; /* all ranks are known to be on this one */
    bool serves;      /* this rank holds the store where ranks meet at a host and port */
    bool warns;       /* if the store is not there after a few seconds */
    bool hidden; /* the host where to meet has here a name of the loopback alone, others know better
                  */
};

/* Where the store is said to be, and the word that it asks for. */
struct disti_meet_address {
    char host[DISTI_HOST_SIZE];
    int port;
    char word[128];
};

/*
 * By a host and port that all ranks know. Rank 0 listens there, if `served` is NULL. Else the
 * launcher does already, and asks for that word ("": for none).
 */
dist_status disti_meet_tcp(const struct disti_meeting *meeting, const char *host, int port,
                           const char *served, struct disti_bootstrap *bootstrap);

/*
 * As by host and port, where a scheduler may hold the store and hand out ranks (meeting->rank -1).
 * Rank 0, or a process without a rank, waits patience_ms for a scheduler there and then holds the
 * store itself, if this is that host and no other holds it already: it is rank 0 then.
 */
dist_status disti_meet_scheduled(const struct disti_meeting *meeting, const char *host, int port,
                                 int patience_ms, struct disti_bootstrap *bootstrap);

/*
 * The scheduler's part: holds the store there until the job is over. Never OK: ERR_SCHEDULER if it
 * ended well, see disti_store_server_schedule. With a word ranks must know that. Without one
 * rank 0 may hold the store: then it waits until that is gone.
 */
dist_status disti_meet_schedule(const struct disti_meeting *meeting, const char *host, int port,
                                const char *word);

/*
 * By a file that all ranks see. Rank 0 puts the address of its store there and takes the file
 * away once all have come. A file that an earlier job left is replaced, and does no harm.
 */
dist_status disti_meet_file(const struct disti_meeting *meeting, const char *path,
                            struct disti_bootstrap *bootstrap);

/* On one machine, by the name of the job: through the discovery. */
dist_status disti_meet_local(const struct disti_meeting *meeting, const char *job,
                             struct disti_bootstrap *bootstrap);

/*
 * Do the ranks meet through the launcher's PMIx? Where nobody has named a place, and the name of
 * the job is not enough (`local`; DIST_PMIX=1: wherever it is offered), unless its library or
 * server refuses; the log says why. A server that does not answer at all fails the meeting: MPI
 * would wait for it without end. Blocks until the deadline at most.
 */
bool disti_launch_meets_by_pmix(const struct disti_launch *launch, bool local, int64_t deadline);

/* Asks the launcher for the numbers that PMIx alone has. ERR_RENDEZVOUS: it does not answer. */
dist_status disti_launch_ask_pmix(struct disti_launch *launch, int64_t deadline);

/* Through the launcher's PMIx, which is open, among all ranks that it has started. */
dist_status disti_meet_pmix(const struct disti_meeting *meeting, bool one_machine,
                            struct disti_bootstrap *bootstrap);

/* By the program's own all-gather, called twice on every rank. */
dist_status disti_meet_oob(const struct disti_meeting *meeting, dist_oob_all_gather_fn gather,
                           void *arg, struct disti_bootstrap *bootstrap);

/*
 * For rank 0: a server that listens at `host`, the loopback address or else that by which other
 * machines reach this one, and asks for a random word, which is to be handed to the other ranks. It
 * does not run yet.
 */
dist_status disti_meet_listen(const struct disti_meeting *meeting, bool one_machine,
                              char host[DISTI_HOST_SIZE], struct disti_store_server **server_p);

/* The same, as one that knows that word ("": none). */
dist_status disti_meet_connect_word(const struct disti_meeting *meeting, const char *host, int port,
                                    const char *word, struct disti_bootstrap *bootstrap);

/* Both: rank 0 lets its server run, and connects to it. On failure the server is gone. */
dist_status disti_meet_serve(const struct disti_meeting *meeting, const char *host,
                             struct disti_store_server *server, struct disti_bootstrap *bootstrap);

/* ---- the launcher's PMIx ---- */

/* Does the environment say that a launcher serves PMIx to this process? */
bool disti_pmix_is_offered(void);

/*
 * Ends the connection after use, as MPI_Init of Open MPI 5 fails in a process that is connected.
 * All ranks do this between their last question and their next meeting: a server counts a rank that
 * has gone as one that misses the fence. Versions before 5 cannot be begun again in the same
 * process, so with these the connection stays until the process exits. Any thread; also if nothing
 * is open.
 */
void disti_pmix_close(int64_t deadline);

#endif
