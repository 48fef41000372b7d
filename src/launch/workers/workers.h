/* SPDX-License-Identifier: BSD-3-Clause */
/* The processes that run the program on this node. */
#ifndef DISTI_LAUNCH_RUN_WORKERS_H
#define DISTI_LAUNCH_RUN_WORKERS_H

#include "launch/options/options.h"
#include "launch/output/logs.h"
#include "launch/workers/binding.h"

#include <dist/dist.h>

#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

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

/* Has it ended otherwise than by 0? */
bool disti_run_worker_has_failed(const struct disti_run_worker *worker);

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

#endif
