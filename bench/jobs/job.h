/* SPDX-License-Identifier: BSD-3-Clause */
/* A library: a job of processes that speak the protocol of protocol.h, as a runner. */
#ifndef BENCH_JOB_H
#define BENCH_JOB_H

#include "runner.h"

#include <sys/types.h>

/* Of one process that has come. */
struct job_rank {
    int fd;     /* -1: not there */
    pid_t pid;  /* as the kernel says */
    char *line; /* what has come of a line */
    size_t length, room;
};

struct job {
    struct runner runner; /* first */
    char *name;
    char *release;               /* as it says itself; NULL: not yet */
    char reason[MEASURE_REASON]; /* why it is gone */
    char *path;                  /* of the socket */
    int listener;
    pid_t pid;  /* of what was started, the leader of its process group; 0: it was reaped */
    int output; /* a file with no name: what it has printed */
    struct job_rank *members; /* by rank */
    int joined;
    double timeout; /* ns */
};

/*
 * Starts argv (execvp) with DIST_BENCH_SOCKET set to a socket in folder. Its processes are not
 * waited for: job_wait_for_ranks does. On success *job_p is to be given to job_end. NULL: no
 * memory, or the system refused; it has been said.
 */
struct job *job_start(const char *folder, const char *name, int ranks, char *const argv[],
                      double timeout);

/* Waits until all its processes have come; those that have not in time, or have ended, make it
 * gone. Stopped early if stopped() says so. */
void job_wait_for_ranks(struct job *job, bool (*stopped)(void));

/* Sends its processes home, ends what has not gone within some seconds, and frees. NULL is
 * accepted. Two steps for many jobs: job_quit sends home and does not wait. */
void job_quit(struct job *job);
void job_end(struct job *job);

/* Lets an mpirun that this process executes start more ranks than cores, unless the user's settings
 * say otherwise. */
void job_oversubscribe(void);

/* ---- between job.c and job_protocol.c ---- */

/* The job is gone, for that reason; its processes are killed. */
void job_fail(struct job *job, const char *format, ...) __attribute__((format(printf, 2, 3)));
enum outcome job_turn(struct runner *runner, const struct order *order, double *times,
                      char *reason);

/* Takes a process that has connected, once its hello is there. */
void job_accept(struct job *job, double deadline);

/*
 * Reads what has come of a rank. 1: a whole line is in rank->line, its end cut off; take it away
 * with job_line_done. 0: not yet. -1: the end of the stream, or nonsense.
 */
int job_read(struct job_rank *rank);
void job_line_done(struct job_rank *rank);

/* Has what was started ended? Its exit is then in *text, 64 bytes. */
bool job_has_ended(struct job *job, char *text);

#endif
