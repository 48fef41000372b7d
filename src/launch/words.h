/* SPDX-License-Identifier: BSD-3-Clause */
/* What stands in the values of distrun's options. Pure; no function blocks. */
#ifndef DISTI_LAUNCH_WORDS_H
#define DISTI_LAUNCH_WORDS_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

enum disti_run_stream { DISTI_RUN_STDOUT = 1, DISTI_RUN_STDERR = 2 };

/*
 * Which streams (a sum of the above) of a worker --redirects or --tee names: "3", for all workers,
 * or "0:1,1:2", by local rank. NULL: none. -1: the text is neither.
 */
int disti_run_streams(const char *text, int local_rank);

/* Does "0,2" name the local rank? NULL names all. -1: the text is no such list. */
int disti_run_is_listed(const char *text, int local_rank);

/* "2" or "2:4" nodes. */
bool disti_run_nodes(const char *text, int *least_p, int *most_p);

/* "host", "host:port" or "[::1]:port"; the port stays as it is if none is said. */
bool disti_run_endpoint(const char *text, char host[256], int *port_p);

/* "SIGTERM,SIGUSR1": into *set_p. The name that is none, else NULL; it is valid until the next. */
const char *disti_run_signals(const char *text, sigset_t *set_p);

/* "SIGTERM"; for a signal without a name "SIG34". */
void disti_run_signal_name(int signal_number, char text[16]);

/* "3"; "scheduler" for -1, as that is no rank. */
void disti_run_rank_name(int rank, char text[16]);

/* "rank 3" or "the scheduler", for messages. */
void disti_run_worker_name(int rank, char text[32]);

/* What ${role_name}, ${rank}, ${local_rank} and ${hostname} stand for. */
struct disti_run_names {
    const char *role, *host;
    int rank, local_rank;
};

/* Fills in a template; what does not fit in size bytes is cut. */
void disti_run_prefix(const char *pattern, const struct disti_run_names *names, char *text,
                      size_t size);

/* Words for a command line, or variables for an environment. Zeroed is empty. */
struct disti_run_list {
    char **words; /* ends with NULL */
    int count;
    bool failed; /* no memory */
};

void disti_run_list_add(struct disti_run_list *list, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void disti_run_list_free(struct disti_run_list *list);

#endif
