/* SPDX-License-Identifier: BSD-3-Clause */
/* The processes that run the program on this node: their round, start, environment, CPUs and
 * children. */
#ifndef DISTI_LAUNCH_WORKERS_H
#define DISTI_LAUNCH_WORKERS_H

#include "launch/options.h"
#include "launch/output.h"

#include <sched.h>
#include <sys/resource.h>

#define DISTI_RUN_PATH 1024

/* A round: the workers of all nodes run once, with the ranks of that round. */

struct disti_run_round {
    int restarts; /* how many rounds failed before */
    int attempt;  /* which round it is, for the folder of its files */
    int node_rank, nodes;
    int first_rank, workers, world_size; /* this node's workers have the ranks from first_rank on */
    int processes;                       /* of this node: its workers, then the scheduler */
    char master_address[256];            /* where rank 0 may listen */
    int master_port;
    char job[128];
    int store_port;        /* of the first node's agent's store; 0: any free one */
    char store_word[33];   /* what that asks for, 32 hexadecimal digits */
    char store[300];       /* its host and port, for the workers */
    char store_secret[64]; /* the file with what that asks for */
};

/* The rank of a process of this node; -1: it is the scheduler. */
static inline int disti_run_rank(const struct disti_run_round *round, int local_rank)
{
    return local_rank < 0 ? -1 : round->first_rank + local_rank;
}

/* A port that is free here now, at all addresses. ERR_SYSTEM: there is none. Does not block. */
dist_status disti_run_free_port(int *port_p);

/*
 * Raises this process's limit on open files, as far as it may; *found_p is what it was. Opens a
 * signalfd for SIGCHLD and an eventfd for outputs that end. False: see errno.
 */
bool disti_run_open(struct rlimit *found_p, int *child_fd_p, int *done_fd_p);

/* Where the store of all can be reached. */
const char *disti_run_store_host(const struct disti_run_round *round);

/* Which CPUs each worker of a node may use. */

#define DISTI_RUN_CPUS 8192 /* more are not bound to */

struct disti_run_cpus {
    unsigned long
        words[DISTI_RUN_CPUS / (8 * sizeof(unsigned long))]; /* what sched_setaffinity takes */
};

struct disti_run_binding {
    const char *mode; /* what was bound to; "none" */
    int workers;
    struct disti_run_cpus *cpus; /* of each worker; NULL: they are not bound */
    int threads;                 /* a worker's share of the CPUs, at least 1 */
    int usable;                  /* CPUs of all of them */
};

/*
 * Divides the CPUs that this process may use among the workers, by --numa-binding; NULL: by NUMA
 * nodes, if there are several and workers for all. The caller frees the cpus. ERR_INVALID_ARGUMENT:
 * the machine has no such parts, or too few.
 */
dist_status disti_run_binding_make(const char *mode, int workers,
                                   struct disti_run_binding *binding_p);
/* Which of `parts` parts worker `local_rank` gets: neighbours share one. */
int disti_run_binding_part(int local_rank, int workers, int parts);

/* The variables of a worker: torchrun's, MindSpore's, and where the agent's store is. */

/* The processes that run the program on this node. */

struct disti_run_worker {
    int local_rank; /* -1: it is the scheduler */
    pid_t pid;      /* 0: not started */
    bool ended;     /* then `how` is what waitpid says, */
    int how;
    int64_t ended_at;      /* and when: milliseconds since 1970 */
    bool was_told;         /* by a signal of ours to end */
    bool was_reported;     /* with --on-failure continue: its failure */
    bool is_out_of_memory; /* the kernel's out-of-memory killer ended it */
    bool has_lost;         /* another's end has ended what it did, as it noted itself */
    int error_fd;          /* a memfd for its error file; -1: that is a file of its own */
    char error_file[DISTI_RUN_PATH + 64];
};

/*
 * Adds the agent's own environment with the worker's variables, for execve: its error file,
 * DIST_AGENT_LAST_CALL, DIST_AGENT_FILES, and OMP_NUM_THREADS, unless that is set or 0.
 */
void disti_run_environment(const struct disti_run_options *options,
                           const struct disti_run_round *round,
                           const struct disti_run_worker *worker, const char *last_calls,
                           const char *files, int threads, struct disti_run_list *made);

/* Has it ended otherwise than by 0? */
static inline bool disti_run_worker_has_failed(const struct disti_run_worker *worker)
{
    return worker->ended && worker->how != 0;
}

/* How a worker is started. */
struct disti_run_start {
    const char *name; /* "rank 1", for messages */
    const char *path;
    char *const *command, *const *environment;
    int fds[3];                        /* standard input, output and error; -1: the agent's */
    const struct disti_run_cpus *cpus; /* NULL: as the agent's */
    sigset_t mask;                     /* the signals that the agent found blocked */
    struct rlimit files;               /* the limit that it found */
    pid_t group;                       /* the process group to be in */
    int inherited[2];                  /* close-on-exec descriptors that stay open; -1: none */
};

/*
 * Starts the program; *pid_p is a child of this thread, and dies with it. Blocks until the program
 * runs. ERR_SYSTEM and, where the program cannot be executed, ERR_INVALID_ARGUMENT name it and say
 * why it does not.
 */
dist_status disti_run_worker_start(const struct disti_run_start *start, pid_t *pid_p);

/* The children of the workers, and their children. */

/*
 * Sends a signal to all processes below this one, however deep. Does not wait. False: these are not
 * known, since /proc is not mounted, or shows the processes of another PID namespace.
 */
bool disti_run_family_signal(int signal_number);

#endif
