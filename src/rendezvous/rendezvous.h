/* SPDX-License-Identifier: BSD-3-Clause */
/* How the ranks of a job find each other: from the options and the environment to a store. */
#ifndef DISTI_RENDEZVOUS_RENDEZVOUS_H
#define DISTI_RENDEZVOUS_RENDEZVOUS_H

#include "store/store.h"

#define DISTI_PORT_DEFAULT 29500

/* An init method, taken apart. */
enum disti_url_kind { DISTI_URL_NONE, DISTI_URL_ENV, DISTI_URL_TCP, DISTI_URL_FILE, DISTI_URL_MPI };
struct disti_url {
    enum disti_url_kind kind;
    char host[256];       /* tcp: without the brackets of [::1] */
    int port;             /* tcp */
    char path[1024];      /* file */
    int rank, world_size; /* from "?rank=1&world_size=4" behind it; -1: not given */
};
/* NULL or "": DISTI_URL_NONE. ERR_INVALID_ARGUMENT says what it should look like. */
dist_status disti_url_parse(const char *text, struct disti_url *url_p);

/* Does a process that is no rank hold the store? */
enum disti_scheduler {
    DISTI_SCHEDULER_NONE,     /* not with this launcher */
    DISTI_SCHEDULER_POSSIBLE, /* nobody says that there is none */
    DISTI_SCHEDULER_EXPECTED, /* as MS_ROLE=MS_WORKER says */
    DISTI_SCHEDULER_SELF      /* it is this one */
};

/* What launched this process, by its environment; the order is documented in dist.7. */
struct disti_launch {
    const char *launcher; /* "torchrun", "Open MPI", "MPICH", "srun", "PMIx", "environment",
                             "MindSpore", "none" */
    int rank, world_size, local_rank, local_world_size; /* -1: it does not say */
    const char *mark; /* what it gives its ranks alone, below a process that is to outlive them;
                         NULL: it has none, or nobody is to look (DIST_LAUNCHER_WATCH=0) */
    char job[128];    /* unique on this machine among running jobs; "": none */
    bool inside;      /* distrun's worker has started it: MASTER_ADDR may be that worker's */
    char host[256];   /* where rank 0's store is, if the environment says (MASTER_ADDR); "" */
    int port;         /* -1 */
    bool guessed;     /* host and port are worked out, the same on all ranks: a last resort */
    bool serves;      /* guessed: this rank holds the store, as the first one on that host */
    bool pmix;        /* the launcher serves PMIx to this rank */
    bool pmix_always; /* ranks of one machine meet through it too (DIST_PMIX=1) */
    bool agent_store; /* the launcher, or a scheduler that it started, holds the store, at host and
                         port (DIST_AGENT_STORE) */
    char agent_secret[128]; /* what that store asks for; "": nothing */
    enum disti_scheduler scheduler;
    int timeout_ms; /* for all ranks to come (MS_CLUSTER_TIMEOUT); -1: it does not say */
};
/* ERR_INVALID_ARGUMENT names the variable that holds nonsense. Warns when sources disagree. */
dist_status disti_launch_detect(struct disti_launch *launch_p);

/* The outcome: who we are, and a store. */
struct disti_bootstrap {
    int rank, world_size, local_rank; /* local_rank -1: the launcher did not say */
    int local_world_size;             /* -1: the same */
    const char *launcher;             /* static */
    char job[128];                    /* the same on every rank */
    int64_t join_by;                  /* the others may come until then */
    char bind_host[DISTI_HOST_SIZE];  /* numeric; what this rank's listeners bind */
    bool hidden; /* that is a guess, as the name of the store's machine says nothing there */
    struct disti_store *store;         /* NULL in a world of one */
    struct disti_store_server *server; /* the rank that serves; else NULL */
};

/*
 * Meets the other ranks. Blocks until this rank is connected to the store, at most timeout_ms;
 * `options` as the user gave them (rank, world_size, local_rank, init_method), `oob` replaces the
 * init method if its function is not NULL (rank and world size then come from the options). mpi://
 * must have been turned into an oob by the caller. Without init method: what launched us; env:// if
 * MASTER_ADDR is set; on one machine a per-user abstract Unix socket named by the job, which an
 * mpirun inside distrun prefers; through the launcher's PMIx; else ERR_RENDEZVOUS with what to set.
 * Nothing at all: a world of one. A process that MindSpore's variables make the scheduler serves
 * its job here, and gets ERR_SCHEDULER at its end.
 */
dist_status disti_rendezvous(const struct dist_options *options, int timeout_ms,
                             struct disti_bootstrap *bootstrap_p);

/*
 * Does the environment alone (no MASTER_ADDR, more than one machine, no PMIx that answers) leave no
 * way but the launcher's own MPI? The core then asks the mpi module to introduce the ranks. Blocks
 * for the time limit of the options at most.
 */
bool disti_rendezvous_needs_mpi(const struct dist_options *options);

/* Will this process serve its job and be no rank (MS_ROLE=MS_SCHED)? It needs no backend then. */
bool disti_rendezvous_is_scheduler(const struct dist_options *options);

/*
 * To be called once all ranks are known to have come: corrects a guess of bind_host by the address
 * at which other machines have come to the store. One round trip, if it was a guess.
 */
dist_status disti_bootstrap_correct_host(struct disti_bootstrap *bootstrap);

/* Closes the store and stops the server (waits at most linger_ms for the others to go). */
void disti_bootstrap_close(struct disti_bootstrap *bootstrap, int linger_ms);

#endif
