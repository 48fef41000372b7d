/* SPDX-License-Identifier: BSD-3-Clause */
/* The agent: the process that starts a node's workers and watches over them. */
#ifndef DISTI_LAUNCH_RUN_AGENT_H
#define DISTI_LAUNCH_RUN_AGENT_H

#include "launch/agents/agents.h"
#include "launch/options/options.h"
#include "launch/output/logs.h"
#include "launch/output/output.h"
#include "launch/run/guard.h"
#include "launch/run/round.h"
#include "launch/workers/binding.h"
#include "launch/workers/workers.h"
#include "store/store.h"

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

/* For disti_run_guard; arg is struct disti_run_options. Returns the exit code of distrun. */
int disti_run_agent(int signals_fd, const sigset_t *mask, void *arg);

/* Raises this process's limit on open files, as far as it may; *found_p is what it was. */
void disti_run_raise_limit(struct rlimit *found_p);

/* Is this agent to tell what all of them know? Of those that a starter started the first one is. */
bool disti_run_agent_speaks(const struct disti_run_agent *agent);

/* start.c: starts workers, outputs and store of agent->round. On failure some may run. */
dist_status disti_run_agent_start(struct disti_run_agent *agent);

/* start.c: holds the store of all at the round's port, until the round ends. */
dist_status disti_run_agent_serve(struct disti_run_agent *agent);

/*
 * watch.c: blocks until the processes of the round are gone, and it is known what comes next: with
 * other nodes an order or a new round, alone always. A signal ends it too.
 */
void disti_run_agent_watch(struct disti_run_agent *agent);

/* watch.c: all workers are told to end, and killed when the time for that is up. */
void disti_run_agent_stop(struct disti_run_agent *agent, int signal_number, double seconds);

/* watch.c: stops all workers and their children until SIGCONT comes, or the job is to end. */
void disti_run_agent_suspend(struct disti_run_agent *agent);

/* meeting.c: the meeting with other nodes. ERR_INVALID_ARGUMENT, ERR_RENDEZVOUS and others. */
dist_status disti_run_meeting_open(struct disti_run_agent *agent);

/* What has come from the others: a new round, an order, or a line to print. Does not block. */
void disti_run_meeting_move(struct disti_run_agent *agent);

/* Tells the others that the round has failed here; is_final: no restart helps. */
void disti_run_meeting_fail(struct disti_run_agent *agent,
                            const struct disti_agents_failure *failure);

/* Leaves; the others hear why, if the job has not ended. */
void disti_run_meeting_close(struct disti_run_agent *agent);

#endif
