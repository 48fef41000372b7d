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

/* A signal on its way from the guard to the agent. The stream ends when the guard is gone. */
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

/* Receives struct disti_run_signal from signals_fd. Returns the exit code of distrun. */
int disti_run_starter(int signals_fd, const struct disti_run_options *options);

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
    int leash_fd;        /* from the starter on another host, see above; -1: there is none */

    /* Of this round. */
    struct disti_run_round round;
    struct disti_run_worker *workers; /* of round.processes; the scheduler is the last */
    int secret_fd;                    /* a memfd with the store's secret; -1: the store has none */
    int last_calls_fd; /* a memfd: what they called last (store/store.h); -1: not known */
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

/* The same; mask is what was blocked before. */
int disti_run_agent(int signals_fd, const sigset_t *mask, const struct disti_run_options *options);

/*
 * Raises this process's limit on open files, as far as it may; *found_p is what it was. Opens a
 * signalfd for SIGCHLD and an eventfd for outputs that end. False: see errno.
 */
bool disti_run_open(struct rlimit *found_p, int *child_fd_p, int *done_fd_p);

/* Starts workers, outputs and store of agent->round. On failure some may run. */
dist_status disti_run_agent_start(struct disti_run_agent *agent);

/*
 * Blocks until the processes of the round are gone, and it is known what comes next: with
 * other nodes an order or a new round, alone always. A signal ends it too.
 */
void disti_run_agent_watch(struct disti_run_agent *agent);

/* All workers are told to end, and killed when the time for that is up. */
void disti_run_agent_stop(struct disti_run_agent *agent, int signal_number, double seconds);

/* Stops all workers and their children until SIGCONT comes, or the job is to end. */
void disti_run_agent_suspend(struct disti_run_agent *agent);

/* What has come from the others: a new round, an order, or a line to print. Does not block. */
void disti_run_meeting_move(struct disti_run_agent *agent);

/* Tells the others that the round has failed here; is_final: no restart helps. */
void disti_run_meeting_fail(struct disti_run_agent *agent,
                            const struct disti_agents_failure *failure);

#endif
