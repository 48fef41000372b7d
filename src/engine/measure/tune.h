/* SPDX-License-Identifier: BSD-3-Clause */
/* The costs that a group chooses by: found, measured, agreed on. */
#ifndef DISTI_ENGINE_MEASURE_TUNE_H
#define DISTI_ENGINE_MEASURE_TUNE_H

#include "tuning/tuning.h"

#include <dist/backend.h>

/*
 * Rank 0's costs count for all ranks of a group:
 *
 *   DIST_TUNING=off      none: the rules choose
 *   DIST_TUNING=FILE     the file's
 *   DIST_TUNING=measure  measured now and with care, 0.5 s, and written to the cache
 *   unset                those of the world that it has measured or found before; the cache's;
 *                        measured now in haste, some 20 ms, and written to the cache
 *
 *   all ranks    offer ----- exchanged with the addresses (route.c) -----> rank 0's offer
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

/* ---- cache.c ---- */

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

/* ---- local.c ---- */

/* How fast this process copies and reduces and goes from thread to thread. Some ms, or 0.1 s. */
void disti_tune_local(enum tune_effort effort, struct disti_cost *cost);
/* Bytes that it copies a second, for about that time. */
double disti_tune_copy(int64_t ns);

/* ---- links.c ---- */

/* Rank 0 and one rank at each distance measure what is between them; the others do nothing. */
dist_status disti_tune_links(struct dist_engine *engine, enum tune_effort effort,
                             struct disti_cost *cost);

/* ---- fit.c: from what was measured to costs ---- */

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

/*
 * Inside a machine one distance stands for another that could not be measured. And what is copied
 * there goes no faster than a copy: messages to and fro were in caches, others are not.
 */
void disti_tune_fit_fill(const bool measured[DISTI_DISTANCES], struct disti_cost *cost);

/* How long one figure may take. */
int64_t disti_tune_each_ns(enum tune_effort effort);

#endif
