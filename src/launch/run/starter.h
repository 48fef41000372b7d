/* SPDX-License-Identifier: BSD-3-Clause */
/* The starter: in the agent's place with -H and --hostfile, it starts an agent on each host. */
#ifndef DISTI_LAUNCH_RUN_STARTER_H
#define DISTI_LAUNCH_RUN_STARTER_H

#include "launch/options/options.h"
#include "launch/output/output.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 *     guard -- signals --> starter -- standard input --> remote shell ==> distrun on the host
 *                             ^----- lines of output -----------'
 *
 * An agent there is leashed: what it reads on its standard input is from the starter, and the end
 * of that is the starter's end. A byte is a signal's number, or DISTI_RUN_HURRY. The shell on the
 * host may take the first ones for itself, so the starter says the latest again and again.
 */
enum {
    DISTI_RUN_TERMINAL = 128, /* added to a signal that a terminal sends to all below its shell */
    DISTI_RUN_HURRY = 255     /* a second signal: do not wait for anything */
};

enum { DISTI_RUN_STARTER_FAILED = 1 /* the exit code where a host was not to be had */ };

/* A host, and its remote shell. */
struct disti_run_host {
    const char *name;
    pid_t pid; /* 0: not started */
    bool ended;
    int code;     /* what the shell would say */
    bool killed;  /* its shell was */
    bool begun;   /* it has read of its script; as of its end */
    int to_fd;    /* its standard input; -1: closed */
    char *script; /* what goes there first */
    size_t bytes, sent;
    bool fed; /* it is there, or nobody reads it */

    /* Of a job that goes on without this host. */
    int streams[2];   /* where its standard output and error go; -1: closed here */
    int64_t again_at; /* when its remote shell is started again; INT64_MAX: not */
    int64_t again_ms; /* how long it was waited for that */
};

struct disti_run_starter {
    const struct disti_run_options *options;
    int signals_fd, child_fd, done_fd;
    struct disti_run_host *hosts;
    int count, alive, outputs_left;
    bool elastic; /* hosts may be lost and come again, but for the first */
    bool goes_on; /* hosts may be lost, but for the first: --on-failure continue */
    struct disti_run_output *outputs[2];
    int first;          /* the host that ended first with a failure; -1: none */
    int stop_signal;    /* that came to this distrun; 0: none */
    unsigned char word; /* what all agents are to hear; 0: nothing */
    int64_t stopped_at; /* when the signal came */
    int64_t tell_at;    /* when `word` is said, again; INT64_MAX: not */
    int64_t kill_at;    /* SIGKILL for the remote shells; INT64_MAX: not yet */
    bool hurry;         /* do not wait for output to be read */
    char secret[33];    /* of the job's agents; "": none, without OpenSSL */
    char master[256];   /* where they meet */
    int master_port;
};

/* For disti_run_guard; arg is struct disti_run_options. Returns the exit code of distrun. */
int disti_run_starter(int signals_fd, const sigset_t *mask, void *arg);

/*
 * starter_begin.c: starts a remote shell for each host, with the script that it is to get, and
 * readers of what they print. On failure some may run.
 */
dist_status disti_run_starter_begin(struct disti_run_starter *starter);

/* starter_end.c: says what agents could not, once all have ended. Returns distrun's exit code. */
int disti_run_starter_conclude(const struct disti_run_starter *starter);

/* starter_begin.c: starts the remote shell of a host whose last one has ended. */
dist_status disti_run_starter_again(struct disti_run_starter *starter, int h);

#endif
