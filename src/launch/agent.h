/* SPDX-License-Identifier: BSD-3-Clause */
/* The processes of distrun on a node: guard, agent and starter. */
#ifndef DISTI_LAUNCH_AGENT_H
#define DISTI_LAUNCH_AGENT_H

#include "launch/agents/agents.h"
#include "launch/options.h"
#include "launch/output.h"
#include "launch/workers.h"
#include "store/store.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The process that the user started: it passes signals to the agent, its child's child. */

/* A signal on its way to the agent. */
struct disti_run_signal {
    int number;
    int from_terminal; /* then the workers, of the same process group, have it already */
};

/* The starter: in the agent's place with -H and --hostfile, it starts an agent on each host. */

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

/* The agent: the process that starts a node's workers and watches over them. */

/*
 * A round:
 *
 *     WORKING -- a worker fails, a signal comes --> STOPPING     the other workers were told to end
 *        |                                             |
 *        '-- all workers have ended -- SWEEPING <------'     their children are told to end
 *                                         |
 *                                      DRAINING      what they printed is on its way
 *                                         |
 *                                       OVER
 *
 * With --on-failure continue a worker's failure is reported and the round stays WORKING.
 */
enum disti_run_state {
    DISTI_RUN_WORKING,
    DISTI_RUN_STOPPING,
    DISTI_RUN_SWEEPING,
    DISTI_RUN_DRAINING,
    DISTI_RUN_OVER
};

struct disti_run_agent {
    const struct disti_run_options *options;
    struct disti_run_logs logs;
    struct disti_run_binding binding;
    sigset_t mask;       /* for the workers: as the agent found them */
    struct rlimit files; /* the same */
    pid_t group;         /* the guard's process group, in which the workers are */
    int signals_fd;      /* from the guard */
    int child_fd;        /* a signalfd for SIGCHLD */
    int done_fd;         /* an eventfd: outputs that have ended */
    int leash_fd;        /* from the starter on another host, see starter.h; -1: there is none */

    /* Of this round. */
    struct disti_run_round round;
    struct disti_run_worker *workers; /* of round.processes; the scheduler is the last */
    int secret_fd;                    /* a memfd with the store's secret; -1: the store has none */
    int last_calls_fd; /* a memfd: what they called last (store/last_call.h); -1: not known */
    struct disti_store_server *store;
    struct disti_run_output *outputs[2];
    enum disti_run_state state;
    int alive; /* workers, and the scheduler */
    int outputs_left;
    bool childless;    /* nothing is below this process */
    int64_t oom_kills; /* processes that the kernel's out-of-memory killer had ended before */
    bool killed;       /* a line has said that workers are killed */
    int64_t kill_at;   /* SIGKILL for whoever is left; INT64_MAX: not yet */
    int succeeded;     /* workers, once all have ended */
    const struct disti_run_worker *first; /* that failed; NULL: none */
    int64_t cause_by;                     /* until then its cause may be seen */

    /* Of the meeting with other nodes. */
    struct disti_agents *agents;         /* NULL: this node is the only one */
    bool met;                            /* there is a new round to be started */
    bool has_met;                        /* there was one before */
    enum disti_agents_event_type order;  /* how this round ends; DISTI_AGENTS_NOTE: not known yet */
    struct disti_agents_failure failure; /* why, if it is a failure */
    char why[DISTI_AGENTS_TEXT];         /* the same for people */

    /* Of the job. */
    int stop_signal;      /* that ended it; 0: none */
    int64_t stopped_at;   /* when it came */
    int64_t clocks;       /* of this round's processes: see disti_last_call_suspend */
    int64_t suspended_at; /* when SIGTSTP stopped the processes; 0: they run */
    bool unsaid;          /* something that workers printed could not be written */
    bool hurry;           /* do not wait for output to be read */
};

/* For disti_run_guard; arg is struct disti_run_options. Returns the exit code of distrun. */
int disti_run_agent(int signals_fd, const sigset_t *mask, void *arg);

/* Raises this process's limit on open files, as far as it may; *found_p is what it was. */
void disti_run_raise_limit(struct rlimit *found_p);

/* start.c: starts workers, outputs and store of agent->round. On failure some may run. */
dist_status disti_run_agent_start(struct disti_run_agent *agent);

/*
 * watch.c: blocks until the processes of the round are gone, and it is known what comes next: with
 * other nodes an order or a new round, alone always. A signal ends it too.
 */
void disti_run_agent_watch(struct disti_run_agent *agent);

/* watch.c: all workers are told to end, and killed when the time for that is up. */
void disti_run_agent_stop(struct disti_run_agent *agent, int signal_number, double seconds);

/* watch.c: stops all workers and their children until SIGCONT comes, or the job is to end. */
void disti_run_agent_suspend(struct disti_run_agent *agent);

/* What has come from the others: a new round, an order, or a line to print. Does not block. */
void disti_run_meeting_move(struct disti_run_agent *agent);

/* Tells the others that the round has failed here; is_final: no restart helps. */
void disti_run_meeting_fail(struct disti_run_agent *agent,
                            const struct disti_agents_failure *failure);

#endif
