/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine of a group for its backend: collectives over a transport and node memory, waiting,
 * choice of algorithms. */
#ifndef DISTI_ENGINE_ENGINE_H
#define DISTI_ENGINE_ENGINE_H

#include "tuning/tuning.h"

#include <dist/backend.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* The plan engine: runs collectives as plans over the transports that reach the peers. */

/*
 * Opens the transports (DIST_TRANSPORT, "shm,tcp", restricts them), exchanges their addresses
 * and chooses for each peer the one that reaches it at the least cost. Collective. ERR_UNSUPPORTED
 * names a peer that none reaches, with every transport's reason.
 */
dist_status disti_engine_open(const struct dist_backend_config *config,
                              const struct dist_engine_config *engine_config,
                              struct dist_engine **engine_p);

/*
 * Starts a call. Calls run side by side, except that one whose memory overlaps that of an
 * earlier one waits for it. Never blocks.
 */
dist_status disti_engine_post(struct dist_engine *engine, const struct dist_call *call,
                              struct dist_ticket *ticket);

/* The backend's slot at_once, for calls that shared memory serves. */
dist_status disti_engine_at_once(struct dist_engine *engine, const struct dist_call *call);

/*
 * Keeps ready what a call needs that will be posted again and again, with *prepared_p as its
 * `prepared`, one at a time; NULL for sends and receives. Ends with the engine, or with release.
 */
dist_status disti_engine_prepare(struct dist_engine *engine, const struct dist_call *call,
                                 void **prepared_p);
void disti_engine_release(struct dist_engine *engine, void *prepared);

/* Moves all calls along; as dist_transport.progress. */
int disti_engine_progress(struct dist_engine *engine);

/* What to sleep on: as the backend slots arm and disarm. */
int disti_engine_arm(struct dist_engine *engine, int *fds, int room);
void disti_engine_disarm(struct dist_engine *engine);

/* The peers that the oldest call waits for: "rank 2, rank 5"; "" if for none. */
void disti_engine_describe(const struct dist_engine *engine, char *text, size_t size);

/* Local and bounded; calls that have not ended are dropped, their tickets not touched. */
void disti_engine_close(struct dist_engine *engine);

/* Waiting like a good neighbour: spin, then yield, then sleep. */

/*
 * How a rank waits. It begins as the CPUs that the ranks may use and the ranks that share them say,
 * and is revised by what yields tell, since CPUs are taken away and strangers come:
 *
 *      EXCLUSIVE the peer runs on a CPU of its own, the news comes within a microsecond: spin
 *      CROWDED   spinning keeps the very peer from running that is waited for: yield at once, and
 *                sleep late, since a yield costs less than a sleep and a wake-up
 *      BESIDE    a program that never yields shares our CPU: a yield costs a whole time slice, a
 *                sleeper gets the CPU back when it is woken: spin shortly, then sleep
 *
 *                  a slow yield                      sleeps again, after a while
 *      EXCLUSIVE --------------------> BESIDE --------------------------------> CROWDED
 *        ^ \                             ^             a slow yield             /  |
 *        |  \                            `-------------------------------------'   |
 *        |   `-- most yields let others run ---------------------------------->    |
 *        `------ most yields let nobody run ---------------------------------------'
 *
 * Ranks that are crowded by the number of CPUs stay so: there a slow yield is a rank that works.
 */
enum disti_wait_manner { DISTI_WAIT_EXCLUSIVE, DISTI_WAIT_CROWDED, DISTI_WAIT_BESIDE };

struct disti_wait_policy {
    uint32_t spins;   /* polls before the first yield, */
    int64_t spin_ns;  /* and no longer than that, about; 0: however long they take */
    int64_t yield_ns; /* then yields for so long; 0: not at all */
    int sleep_ms;     /* then sleeps, so long at a time at most */
    bool crowded;     /* what it began as; is not revised */

    /* For disti_wait_learn; all zero: the policy stays as it is. */
    bool revises;
    enum disti_wait_manner manner;
    int64_t beside_until_ns;
    pthread_t thread; /* the one that the rest is about */
    uint32_t yields;  /* since the last verdict */
    long switches;    /* involuntary ones of the thread at the last verdict */
};

/* crowded: there are more ranks than CPUs for them. */
void disti_wait_policy_init(struct disti_wait_policy *policy, bool crowded);

/* One wait. Zeroed at the beginning, and whenever something has happened. */
struct disti_wait {
    uint32_t polls;
    int64_t spun_ns;  /* about when it began to spin; 0: just now */
    int64_t since_ns; /* of the first yield; 0: there was none */
    int64_t last_ns;  /* the end of the last yield */
    int64_t took_ns;  /* that it took, with the poll before it */
    int64_t nap_ns;   /* the last nap */
};

/* A poll found nothing: spins or yields, and returns false; true: sleep now. */
bool disti_wait_step(const struct disti_wait_policy *policy, struct disti_wait *wait);

/*
 * Nanoseconds to sleep where nothing wakes the sleeper: naps grow with the time that the wait has
 * taken, so that a short wait is not made long, and a long one costs little.
 */
int64_t disti_wait_nap(struct disti_wait *wait);

/* After a step that did not spin: revises the policy, by the clock and the thread's switches. */
void disti_wait_learn(struct disti_wait_policy *policy, const struct disti_wait *wait, bool tired);

/* ---- what it is made of: pure, for the tests ---- */

/* Yields until the next verdict about them. */
#define DISTI_WAIT_WINDOW 32

/* A yield that ended at now_ns and took so long. True: disti_wait_adapt is due. */
bool disti_wait_yielded(struct disti_wait_policy *policy, int64_t now_ns, int64_t took_ns);

/* So many of the window's yields let somebody else run. */
void disti_wait_adapt(struct disti_wait_policy *policy, long switches);

/* About to sleep, at now_ns. */
void disti_wait_tire(struct disti_wait_policy *policy, int64_t now_ns);

/* The costs that a group chooses by: found, measured, agreed on. */

/*
 * Rank 0's costs count for all ranks of a group:
 *
 *   DIST_TUNING=off      none: the rules choose
 *   DIST_TUNING=FILE     the file's
 *   DIST_TUNING=measure  measured now and with care, 0.5 s, and written to the cache
 *   unset                those of the world that it has measured or found before; the cache's;
 *                        measured now in haste, some 20 ms, and written to the cache
 *
 *   all ranks    offer ----- exchanged with the addresses (routes.c) -----> rank 0's offer
 *   rank 0       measures with one rank at each distance, if its offer says so
 *   all ranks    exchange again, if so -----> rank 0's costs
 */

enum tune_effort { TUNE_NOTHING, TUNE_HASTE, TUNE_CARE };

/* What each rank lays before the others; rank 0's counts. Exchanged as bytes. */
struct disti_tune_offer {
    struct disti_tuning tuning;
    int32_t effort;      /* what is to be measured */
    int32_t usable_cpus; /* of rank 0's process */
    int32_t shared_cpus; /* as rank 0's configuration says */
    int32_t none;
};

struct dist_engine;

/*
 * Fills the offer; for ranks but 0 it is empty. ERR_INVALID_ARGUMENT: the file that DIST_TUNING
 * names cannot be used. transports: as in struct dist_engine_config.
 */
dist_status disti_tune_offer(const struct dist_backend_config *config,
                             const struct dist_transport *const *transports,
                             struct disti_tune_offer *offer_p);

/*
 * With rank 0's offer, and routes that are open: measures if need be, and sets the tuning, the
 * same on every rank. Collective, blocks; ERR_TIMEOUT, ERR_PEER_LOST.
 */
dist_status disti_tune_decide(struct dist_engine *engine,
                              const struct dist_transport *const *transports,
                              const struct disti_tune_offer *offer);

/* Which CPUs a node's ranks have: as in struct disti_cost. usable_cpus: of one process. */
struct disti_topology;
int disti_tune_node_cpus(const struct disti_topology *topology, int usable_cpus);

/*
 * The CPUs, into the cost, as the last group of this process had them that has so many ranks and
 * nodes. False: there was none. Any thread.
 */
bool disti_tune_recall_cpus(const struct disti_topology *topology, struct disti_cost *cost);

/* ---- tune.c ---- */

#define TUNE_KEY 256
#define TUNE_PATH 512

/*
 * What the costs depend on, as one line: the library's version, this machine, and so many nodes
 * and ranks on this one, over these transports ("shm,tcp") with their sockets and interfaces, where
 * these are set.
 */
void disti_tune_key(int nodes, int local_ranks, const char *transports, char key[TUNE_KEY]);

/* The cache's file for that key; false: there is no place for one. */
bool disti_tune_path(const char *key, char path[TUNE_PATH]);

/* Reads a file. why[256]: what is wrong with it; "": there is none. */
dist_status disti_tune_read(const char *path, const char *key, struct disti_tuning *tuning_p,
                            char *why, size_t why_size);

/* Writes the cache's file, all at once. False: it cannot be written, which is no harm. */
bool disti_tune_write(const struct disti_tuning *tuning, const char *key);

/*
 * What rank 0 of a world like that would start with: by DIST_TUNING, or from the cache, else the
 * usual costs; *effort_p: what it would measure. ERR_INVALID_ARGUMENT: as disti_tune_offer.
 */
dist_status disti_tune_find(const char *key, struct disti_tuning *tuning_p, int32_t *effort_p);

/* ---- tune.c: from what was measured to costs ---- */

#define DISTI_LINK_MIDDLE ((size_t)64 << 10)
#define DISTI_LINK_BURST 16

/* Round trips, seconds, and rank 0's work in them; a burst and its answer; a swap. */
struct disti_link_times {
    double back, back_busy;     /* of short messages */
    double burst;               /* of short messages: inside a node */
    double swap;                /* of short messages: between nodes */
    double middle, middle_busy; /* of DISTI_LINK_MIDDLE bytes */
    double length, bytes;       /* of so many bytes */
};

/* Inside a node. */
void disti_tune_fit_near(const struct disti_link_times *times, struct disti_link_cost *link);
/* Between nodes, where the CPUs' part shows too: *network_p, as in struct disti_cost. */
void disti_tune_fit_far(const struct disti_link_times *times, struct disti_link_cost *link,
                        double *network_p);

#endif
