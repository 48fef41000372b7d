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

/* The same; mask is what was blocked before. */
int disti_run_agent(int signals_fd, const sigset_t *mask, const struct disti_run_options *options);

#endif
