/* SPDX-License-Identifier: BSD-3-Clause */
/* distrun's command line, and the PET_ variables that set the same options. */
#ifndef DISTI_LAUNCH_OPTIONS_H
#define DISTI_LAUNCH_OPTIONS_H

#include "base/auth.h"
#include "launch/hosts.h"
#include "launch/words.h"

#include <signal.h>
#include <stdint.h>

/*
 * Strings point into the command line or the environment, or are in static memory (defaults, and
 * values derived from other options). NULL: not given, and there is no default.
 */
struct disti_run_options {
    const char *nodes_text, *workers_text;
    const char *total_text, *hosts_text, *hostfile, *remote_shell;
    const char *rdzv_backend, *rdzv_endpoint, *rdzv_id, *rdzv_conf;
    const char *master_addr, *local_addr;
    const char *role, *log_dir, *redirects, *tee, *prefix, *shown, *numa, *signals_text;
    const char *secret_file, *on_failure;
    const char *start_method; /* used by torch only: accepted for compatibility and ignored */
    int64_t node_rank, master_port, max_restarts; /* -1: not given; max_restarts: default 0 */
    double monitor_interval, shutdown_timeout;    /* seconds */
    bool standalone, no_python, module;
    bool remote; /* standard input carries the commands of a starter on another host: agent.h */
    int action;  /* --help or --version was printed; 0: run */

    /* Derived from the options above. */
    int min_nodes, max_nodes, workers; /* workers: number on this node */
    bool goes_on;                      /* with --on-failure continue: the job continues after a
                                        * worker's failure */
    bool scheduler;                    /* the job has a scheduler: its role is mindspore */
    int min_hosts; /* the job continues while this many hosts are left; 0: it needs all hosts */
    struct disti_hosts hosts; /* hosts on which agents start; slots: workers of a host, 0:
                               * workers_text applies; count 0: run locally */
    char endpoint[256];       /* rendezvous of several nodes */
    int endpoint_port;
    sigset_t signals;           /* signals that end the job */
    struct disti_secret secret; /* the job's secret: its agents authenticate each other with it */
    const char *path;           /* the executable to run */
    char **command;             /* its arguments, terminated by NULL */
    const char *program;        /* its name on the command line */
    bool python;                /* Python runs the program */
};

/*
 * Reads the PET_ variables, then the command line, which takes precedence, and checks all options;
 * also that the program exists and is executable. Prints the text of --help and --version. Returns
 * false after printing the error and its fix to stderr. `options` stays valid as long as argv and
 * the environment; only its hosts must be freed.
 */
bool disti_run_options_read(int argc, char *argv[], struct disti_run_options *options);

/* True if host h needs no remote shell: it is this machine, and no remote shell is specified. */
static inline bool disti_run_host_is_local(const struct disti_run_options *options, int h)
{
    return !options->remote_shell && disti_hosts_is_local(options->hosts.entries[h].name);
}

/*
 * Appends the options as command-line arguments to *words, except those that set where and how many
 * workers run.
 */
void disti_run_options_arguments(const struct disti_run_options *options,
                                 struct disti_run_list *words);

#endif
