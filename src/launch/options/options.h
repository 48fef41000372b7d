/* SPDX-License-Identifier: BSD-3-Clause */
/* distrun's command line, and the PET_ variables that stand for it. */
#ifndef DISTI_LAUNCH_RUN_OPTIONS_H
#define DISTI_LAUNCH_RUN_OPTIONS_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DISTI_RUN_HELP = 1, DISTI_RUN_VERSION };

/* Texts point into the command line or the environment; NULL: not given. */
struct disti_run_options {
    const char *nodes_text, *workers_text;
    const char *rdzv_backend, *rdzv_endpoint, *rdzv_id, *rdzv_conf;
    const char *master_addr, *local_addr;
    const char *role, *log_dir, *redirects, *tee, *prefix, *shown, *numa, *signals_text;
    const char *secret_file;
    const char *start_method; /* is torch's alone: accepted, as scripts give it */
    int64_t node_rank, master_port, max_restarts; /* -1: not given; max_restarts: 0 */
    double monitor_interval, shutdown_timeout;    /* seconds */
    bool standalone, no_python, module;
    int action; /* DISTI_RUN_HELP, DISTI_RUN_VERSION; 0: run */

    /* What follows from those. */
    int least_nodes, most_nodes, workers; /* workers: of this node */
    char endpoint[256];                   /* where several nodes meet, */
    int endpoint_port;
    sigset_t signals;    /* those that end the job */
    char secret[257];    /* of the job, which its agents prove to each other that they have */
    size_t secret_bytes; /* at most 256; 0: there is none */
    const char *path;    /* of what is executed, with these arguments, */
    char **command;      /* the last of them NULL */
    const char *program; /* as the user named it */
};

/*
 * Reads variables, then the command line, which wins, and checks all of it: the program is there
 * and may be run. False: what is wrong, and what to do, has been printed to stderr. `options` stays
 * valid as long as argv does; it is not freed.
 */
bool disti_run_options_read(int argc, char *argv[], struct disti_run_options *options);

void disti_run_options_help(void);

/* command.c: finds the program, and what runs it, into path, command and program. */
bool disti_run_command(char *words[], struct disti_run_options *options);

/* secret.c: reads the job's secret, if a file of it is named. False: what is wrong was printed. */
bool disti_run_secret(struct disti_run_options *options);

/* counts.c: how many workers --nproc-per-node means here; 0, and `why` if that cannot be said. */
int disti_run_worker_count(const char *text, char *why, int size);

#endif
