/* SPDX-License-Identifier: BSD-3-Clause */
/* distrun's command line, and the PET_ variables that stand for it. */
#ifndef DISTI_LAUNCH_OPTIONS_H
#define DISTI_LAUNCH_OPTIONS_H

#include "base/auth.h"
#include "launch/hosts.h"
#include "launch/words.h"

#include <signal.h>
#include <stdint.h>

/* Texts point into the command line or the environment; NULL: not given. */
struct disti_run_options {
    const char *nodes_text, *workers_text;
    const char *total_text, *hosts_text, *hostfile, *remote_shell;
    const char *rdzv_backend, *rdzv_endpoint, *rdzv_id, *rdzv_conf;
    const char *master_addr, *local_addr;
    const char *role, *log_dir, *redirects, *tee, *prefix, *shown, *numa, *signals_text;
    const char *secret_file, *on_failure;
    const char *start_method; /* is torch's alone: accepted, as scripts give it */
    int64_t node_rank, master_port, max_restarts; /* -1: not given; max_restarts: 0 */
    double monitor_interval, shutdown_timeout;    /* seconds */
    bool standalone, no_python, module;
    bool leashed; /* a starter on another host holds standard input: agent.h */
    int action;   /* help or version was printed; 0: run */

    /* What follows from those. */
    int least_nodes, most_nodes, workers; /* workers: of this node */
    bool goes_on;                         /* after a worker's failure: --on-failure continue */
    bool scheduler;                       /* the job has one: its role is mindspore */
    int least_hosts;                      /* the job goes on with so many; 0: with all alone */
    struct disti_hosts hosts;             /* to start agents on; slots: the workers there,
                                             0: as workers_text says; count 0: here */
    char endpoint[256];                   /* where several nodes meet, */
    int endpoint_port;
    sigset_t signals; /* those that end the job */
    struct disti_secret
        secret;          /* of the job, which its agents prove to each other that they have */
    const char *path;    /* of what is executed, with these arguments, */
    char **command;      /* the last of them NULL */
    const char *program; /* as the user named it */
    bool python;         /* Python runs it */
};

/*
 * Reads variables, then the command line, which wins, and checks all of it: the program is there
 * and may be run. Prints what --help and --version ask for. False: what is wrong, and what to do,
 * has been printed to stderr. `options` stays valid as long as argv does; it is not freed, but for
 * its hosts.
 */
bool disti_run_options_read(int argc, char *argv[], struct disti_run_options *options);

/* Does host h need no remote shell? It is this machine, and no such shell is named. */
static inline bool disti_run_host_is_here(const struct disti_run_options *options, int h)
{
    return !options->remote_shell && disti_hosts_is_local(options->hosts.entries[h].name);
}

/*
 * Adds the options as words for a command line, but for those that say where the workers run, and
 * how many.
 */
void disti_run_options_words(const struct disti_run_options *options, struct disti_run_list *words);

#endif
