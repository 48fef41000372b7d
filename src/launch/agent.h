/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The agent and the starter: the processes of distrun that run a node's workers or start other
 * agents.
 */
#ifndef DISTI_LAUNCH_AGENT_H
#define DISTI_LAUNCH_AGENT_H

#include "launch/agents/agents.h"
#include "launch/options.h"
#include "launch/output.h"
#include "launch/workers.h"
#include "store/store.h"

#include <signal.h>

/*
 * A signal that the monitor forwards to the agent through a socket. End of file on the socket means
 * that the monitor has exited.
 */
struct disti_run_signal {
    int number;
    int from_terminal; /* the workers are in the monitor's process group and have received it
                        * already */
};

/*
 * The starter: with -H and --hostfile it runs in the agent's place and starts an agent on each
 * host.
 *
 *     monitor -- signals --> starter -- standard input --> remote shell ==> distrun on the host
 *                              ^----- lines of output -----------'
 *
 * The agents that a starter starts are remote agents: each reads the starter's commands from its
 * standard input. End of file means that the starter has exited. A command is one byte: a signal's
 * number, perhaps plus DISTI_RUN_TERMINAL, or DISTI_RUN_HURRY. The shell on the host may consume
 * the first bytes, so the starter repeats the last command.
 */
enum {
    DISTI_RUN_TERMINAL = 128, /* added to the number of a signal that a terminal sends to its whole
                               * foreground process group */
    DISTI_RUN_HURRY = 255     /* a second signal: end at once */
};

/*
 * Runs the starter. Receives struct disti_run_signal from signals_fd. Blocks until the job has
 * ended; returns the exit code of distrun.
 */
int disti_run_starter(int signals_fd, const struct disti_run_options *options);

/*
 * Runs the agent; parameters and result as for disti_run_starter. `mask` is the signal mask for the
 * workers.
 */
int disti_run_agent(int signals_fd, const sigset_t *mask, const struct disti_run_options *options);

#endif
