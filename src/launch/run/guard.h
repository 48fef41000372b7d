/* SPDX-License-Identifier: BSD-3-Clause */
/* The process that the user started: it passes signals to the agent, its child's child. */
#ifndef DISTI_LAUNCH_RUN_GUARD_H
#define DISTI_LAUNCH_RUN_GUARD_H

#include <signal.h>
#include <stdbool.h>

/* A signal on its way to the agent. */
struct disti_run_signal {
    int number;
    int from_terminal; /* then the workers, of the same process group, have it already */
};

/*
 * Starts keeper and agent. The agent is a process that runs agent(signals_fd, mask, arg), where it
 * gets struct disti_run_signal, whole, and the end of the stream when the guard is gone; mask is
 * what was blocked before. Returns the exit code: the agent's, or if that was killed 128 and the
 * signal; all processes below are ended then.
 */
int disti_run_guard(int (*agent)(int signals_fd, const sigset_t *mask, void *arg), void *arg);

#endif
