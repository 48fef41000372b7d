/* SPDX-License-Identifier: BSD-3-Clause */
/* Which CPUs each worker of a node may use. */
#ifndef DISTI_LAUNCH_RUN_BINDING_H
#define DISTI_LAUNCH_RUN_BINDING_H

#include <dist/dist.h>

#include <sched.h>

#define DISTI_RUN_CPUS 8192 /* more are not bound to */

struct disti_run_cpus {
    unsigned long
        words[DISTI_RUN_CPUS / (8 * sizeof(unsigned long))]; /* what sched_setaffinity takes */
};

struct disti_run_binding {
    const char *mode; /* what was bound to; "none" */
    int workers;
    struct disti_run_cpus *cpus; /* of each worker; NULL: they are not bound */
    int threads;                 /* a worker's share of the CPUs, at least 1 */
    int usable;                  /* CPUs of all of them */
};

/*
 * Divides the CPUs that this process may use among the workers, by --numa-binding; NULL: by NUMA
 * nodes, if there are several and workers for all. The caller releases it. ERR_INVALID_ARGUMENT:
 * the machine has no such parts, or too few.
 */
dist_status disti_run_binding_make(const char *mode, int workers,
                                   struct disti_run_binding *binding_p);
void disti_run_binding_release(struct disti_run_binding *binding);

/* Which of `parts` parts worker `local_rank` gets: neighbours share one. */
int disti_run_binding_part(int local_rank, int workers, int parts);

#endif
