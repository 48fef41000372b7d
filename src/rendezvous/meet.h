/* SPDX-License-Identifier: BSD-3-Clause */
/* The ways to meet, one file each: all end with a store, and rank 0 with its server. */
#ifndef DISTI_RENDEZVOUS_MEET_H
#define DISTI_RENDEZVOUS_MEET_H

#include "base/net/socket.h"
#include "rendezvous/rendezvous.h"
#include "store/client.h"

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
 * The secret of a job whose ranks nobody hands one, as they meet at that host: the file that
 * DIST_SECRET_FILE names; else, where all ranks are on this machine, the user's cookie; else none.
 * DIST_AUTH asks for the cookie in any case, or for none. A failure is reported.
 */
dist_status disti_meet_secret(const struct disti_meeting *meeting, const char *host,
                              struct disti_secret *secret_p);

/*
 * By a host and port that all ranks know. Rank 0 listens there, if `served` is NULL. Else the
 * launcher does already, and asks for that word ("": for none).
 */
dist_status disti_meet_tcp(const struct disti_meeting *meeting, const char *host, int port,
                           const char *served, struct disti_bootstrap *bootstrap);

/* The server of that meeting: at the host's address, or everywhere if that is hidden. Not run yet.
 */
dist_status disti_meet_listen_at(const struct disti_meeting *meeting, const char *host, int port,
                                 struct disti_store_server **server_p);

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

/* On one machine, by the name of the job: through the discovery (discovery.h). */
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
 * For rank 0: a server that listens, and asks for a random word, which is to be handed to the other
 * ranks. It does not run yet.
 */
dist_status disti_meet_listen(const struct disti_meeting *meeting, const char *host,
                              struct disti_store_server **server_p);

/* Connects to that address, until the deadline, as one that has that secret. */
dist_status disti_meet_connect(const struct disti_meeting *meeting, const char *host, int port,
                               const struct disti_secret *secret,
                               struct disti_bootstrap *bootstrap);
/* The same, as one that knows that word ("": none). */
dist_status disti_meet_connect_word(const struct disti_meeting *meeting, const char *host, int port,
                                    const char *word, struct disti_bootstrap *bootstrap);

/* Both: rank 0 lets its server run, and connects to it. On failure the server is gone. */
dist_status disti_meet_serve(const struct disti_meeting *meeting, const char *host,
                             struct disti_store_server *server, struct disti_bootstrap *bootstrap);

/* Looks once, without waiting. IN_PROGRESS: nothing is said yet. */
typedef dist_status (*disti_meet_locate_fn)(const char *name, struct disti_meet_address *address_p);

/*
 * Looks for the store of that name and connects to it, time and again, at most most_ms apart.
 * IN_PROGRESS: the deadline has passed, and *tries_p says what was met; its text is the caller's
 * until something is. Other failures are reported.
 */
dist_status disti_meet_seek(const struct disti_meeting *meeting, disti_meet_locate_fn locate,
                            const char *name, int most_ms, struct disti_store_tries *tries_p,
                            struct disti_bootstrap *bootstrap);

#endif
