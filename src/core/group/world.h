/* SPDX-License-Identifier: BSD-3-Clause */
/* This process's membership in a job, which all its groups share; private to the core. */
#ifndef DISTI_CORE_GROUP_WORLD_H
#define DISTI_CORE_GROUP_WORLD_H

#include "base/log.h"
#include "engine/wait.h"
#include "rendezvous/rendezvous.h"
#include "topology/discover.h"

#include <dist/backend.h>
#include <pthread.h>

/* What is known about a rank, for messages. Fixed size: it is exchanged as bytes. */
struct world_peer {
    struct disti_locality locality;
    char backend[32];
    uint64_t choice;  /* hash of the settings that must be the same everywhere */
    uint64_t unknown; /* hash of the DIST_ variables that nobody knows; 0: there are none */
};

/* A rank that is gone; kept for groups that are made later. */
struct world_gone {
    struct world_gone *next;
    struct disti_notice notice;
    bool untold; /* this rank is to tell the ranks that cannot see that process */
};

/*
 * Made once by dist_init_process_group, gone with the group that it made. `lock` guards everything
 * behind it; whoever has a group's lock may take it, not the other way round.
 */
struct disti_world {
    struct disti_log log;
    int rank, size;
    int timeout_ms;
    int64_t since_ns, join_by_ns; /* when this rank began to join, and until when it may */
    bool reproducible;
    int device;   /* as in struct dist_options; -1: by local rank */
    void *stream; /* of new groups */
    struct disti_bootstrap bootstrap;
    void (*peers_lost)(void);  /* of the backend that introduced the ranks, or NULL */
    struct world_peer *peers;  /* by rank */
    struct dist_place *places; /* by rank */
    bool *watched; /* by rank: without a store, this rank learns of the end of its process */
    struct disti_wait_policy policy; /* of all ranks of the machine: they share its CPUs */

    bool leaving; /* all its groups are being destroyed */

    pthread_mutex_t lock;
    struct dist_group *groups; /* that are not gone, by number */
    struct world_gone *gone;   /* newest first */
    bool orphaned;             /* the store is lost, and this rank looks for deaths by itself */
    uint32_t last_number;      /* in a world of one: of its newest group */
    int64_t next_number;       /* else: of those for new groups that this rank has from the store */
    int numbers_left;
};

/* An empty world, with rank -1. The caller gives it to disti_world_close. */
dist_status disti_world_new(struct disti_world **world_p);

/* The settings that must be the same everywhere, and room for what they are, in errors. */
#define DISTI_WORLD_CHOICES                                                                        \
    "DIST_ALGO, DIST_SEGMENTS, DIST_MPI_COLL, DIST_CHECKSUM and DIST_REPRODUCIBLE"
#define DISTI_WORLD_CHOICE 224

/*
 * Ranks with different algorithms would send each other messages that never meet. Writes the
 * settings as they are now, as far as there is room, and returns the hash of all of them.
 */
uint64_t disti_world_choice(const struct disti_world *world, char text[DISTI_WORLD_CHOICE]);

/*
 * The ranks tell each other where they are and what they want, and compare it. After the
 * rendezvous; blocks until all have come, at most the timeout.
 */
dist_status disti_world_meet(struct disti_world *world, const char *backend_name);

/* Writes "rank 5 (host b, pid 812)", as notices begin. Returns its length. */
size_t disti_world_name(const struct disti_world *world, int rank, char *text, size_t size);

/* The text after the rank's pid in a message: "", or " in another PID namespace". */
const char *disti_world_elsewhere(const struct disti_world *world, int rank);

/* True if the two ranks share a machine and a pid namespace. */
bool disti_world_sees_process(const struct disti_world *world, int rank, int of);

/* Not all ranks come to their end: whoever introduced them shall not wait for that. */
void disti_world_lost(const struct disti_world *world);

/* Leaves the store, waiting for the others to go if it is here, and frees. NULL is accepted. */
void disti_world_close(struct disti_world *world, int linger_ms);

#endif
