/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The processes that run the program on this node: their rounds, environment, CPUs and descendants.
 */
#ifndef DISTI_LAUNCH_WORKERS_H
#define DISTI_LAUNCH_WORKERS_H

#include "launch/options.h"
#include "launch/output.h"

#include <sched.h>
#include <sys/resource.h>

#define DISTI_RUN_PATH 1024

/* A round: the workers of all nodes run once, with the ranks of this round. */
struct disti_run_round {
    int restarts; /* number of failed rounds before this one */
    int attempt;  /* number of this round, used in the names of its log directories */
    int node_rank, nodes;
    int first_rank, workers, world_size; /* this node's workers have consecutive ranks from
                                          * first_rank on */
    int processes;            /* processes of this node: its workers, then the scheduler */
    char master_address[256]; /* rank 0 may listen here */
    int master_port;
    char job[128];
    int store_port;            /* port of the store on the first node; 0: any free port */
    char store_token[33];      /* the store's token, 32 hexadecimal digits */
    char store[300];           /* the store's host and port, for the workers */
    char store_token_file[64]; /* path of the file with the token */
};

/* Returns the rank of a process of this node; -1: it is the scheduler. */
static inline int disti_run_rank(const struct disti_run_round *round, int local_rank)
{
    return local_rank < 0 ? -1 : round->first_rank + local_rank;
}

/*
 * Finds a port that is free on all local addresses now. ERR_SYSTEM: there is none. Does not block.
 */
dist_status disti_run_free_port(int *port_p);

/*
 * Raises this process's limit on open files as far as permitted; *previous_p is the previous limit.
 * Opens a signalfd for SIGCHLD and an eventfd for ended outputs. False: see errno.
 */
bool disti_run_open(struct rlimit *previous_p, int *child_fd_p, int *done_fd_p);

/* Returns the host of the job's store. */
const char *disti_run_store_host(const struct disti_run_round *round);

/* The CPUs of each worker of a node. */

#define DISTI_RUN_CPUS 8192 /* CPUs with higher numbers are not used */

/* A mask for sched_setaffinity. */
struct disti_run_cpus {
    unsigned long words[DISTI_RUN_CPUS / (8 * sizeof(unsigned long))];
};

struct disti_run_binding {
    const char *mode; /* the kind of parts workers are bound to, or "none" */
    int workers;
    struct disti_run_cpus *cpus; /* one mask per worker; NULL: not bound */
    int threads;                 /* CPUs per worker, at least 1 */
    int usable;                  /* CPUs that this process may use */
};

/*
 * Divides the CPUs that this process may use among the workers, as --numa-binding says; NULL: by
 * NUMA node, if there are at least two nodes, and a worker for each. The caller frees the masks.
 * ERR_INVALID_ARGUMENT: the machine has no such parts, or too few.
 */
dist_status disti_run_binding_create(const char *mode, int workers,
                                     struct disti_run_binding *binding_p);
/*
 * Returns the index of the part, of `parts` parts, to which a worker is bound. If there are more
 * workers than parts, consecutive workers share a part.
 */
int disti_run_binding_part(int local_rank, int workers, int parts);

/* A worker's environment has the variables of torchrun, of MindSpore, and of the agent's store. */

/* The processes that run the program on this node. */

struct disti_run_worker {
    int local_rank; /* -1: the scheduler */
    pid_t pid;      /* 0: not started */
    bool ended;     /* `wait_status` is valid */
    int wait_status;
    int64_t ended_at;      /* milliseconds since 1970 */
    bool was_signaled;     /* we sent it a signal to end */
    bool was_reported;     /* its failure was reported, with --on-failure continue */
    bool is_out_of_memory; /* the kernel's out-of-memory killer ended it */
    bool has_lost;         /* it recorded itself that it has lost a peer */
    int error_fd;          /* a memfd for its error file; -1: the error file is a regular file */
    char error_file[DISTI_RUN_PATH + 64];
};

/*
 * Adds a worker's environment to *made, for execve: the agent's own environment and the worker's
 * variables, such as RANK and the path of its error file. last_calls and files are the values of
 * DIST_AGENT_LAST_CALL and DIST_AGENT_FILES. threads is the value of OMP_NUM_THREADS unless this is
 * set already; 0: not set.
 */
void disti_run_environment(const struct disti_run_options *options,
                           const struct disti_run_round *round,
                           const struct disti_run_worker *worker, const char *last_calls,
                           const char *files, int threads, struct disti_run_list *made);

/* True if the worker was ended by a signal or exited with a code other than 0. */
static inline bool disti_run_worker_has_failed(const struct disti_run_worker *worker)
{
    return worker->ended && worker->wait_status != 0;
}

/* Arguments of disti_run_worker_start. */
struct disti_run_start {
    const char *name; /* "rank 1", for messages */
    const char *path;
    char *const *command, *const *environment;
    int fds[3]; /* standard input, output and error; -1: inherit the agent's */
    const struct disti_run_cpus *cpus; /* NULL: inherit the agent's */
    sigset_t mask;                     /* the signal mask that the agent inherited */
    struct rlimit files;               /* the limit that the agent inherited */
    pid_t group;                       /* the process group to join */
    int inherited[2];                  /* close-on-exec descriptors that the worker keeps open; -1:
                                        * none */
};

/*
 * Starts the program; *pid_p is a child of this thread and dies with it. Blocks until the program
 * has been executed. ERR_SYSTEM; ERR_INVALID_ARGUMENT: the program cannot be executed. Both
 * messages name the program and the reason.
 */
dist_status disti_run_worker_start(const struct disti_run_start *start, pid_t *pid_p);

/* Descendants of this process. */

/*
 * Sends a signal to all descendants of this process. Does not wait. False: the descendants are
 * unknown, since /proc is not mounted, or shows another PID namespace.
 */
bool disti_run_signal_descendants(int signal_number);

#endif
