/* SPDX-License-Identifier: BSD-3-Clause */
/* The roles of MindSpore's processes. */
#ifndef DISTI_RENDEZVOUS_LAUNCHERS_MINDSPORE_H
#define DISTI_RENDEZVOUS_LAUNCHERS_MINDSPORE_H

#include "rendezvous/rendezvous.h"

/* What MindSpore's variables say besides the numbers: role, place and time. ERR_INVALID_ARGUMENT
 * names the one that is wrong, or is not there. */
dist_status disti_launch_mindspore(struct disti_launch *launch);

/*
 * Of a process of distrun --role mindspore. Its numbers, and the place of the store, are in the
 * variables that all processes of distrun have; who has no rank is the scheduler, which holds it.
 */
dist_status disti_launch_mindspore_agent(struct disti_launch *launch);

#endif
