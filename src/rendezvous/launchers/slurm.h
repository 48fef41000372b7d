/* SPDX-License-Identifier: BSD-3-Clause */
/* Slurm's compressed lists, and where the ranks of a step meet. */
#ifndef DISTI_RENDEZVOUS_LAUNCHERS_SLURM_H
#define DISTI_RENDEZVOUS_LAUNCHERS_SLURM_H

#include <dist/dist.h>

/* The number of tasks on node `node` by "2(x3),1" (2, 2, 2, 1); -1 if the text is malformed
 * or has no such node. */
int disti_slurm_tasks(const char *text, int node);

/* The first host of "n[01-03,7],m5" ("n01"). False if the text is malformed or it does not fit. */
bool disti_slurm_first_host(const char *text, char *host, size_t size);

/* A port that all processes of the step work out alike from its name: 20000 to 29499. */
int disti_slurm_port(const char *job);

#endif
