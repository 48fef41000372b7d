/* SPDX-License-Identifier: BSD-3-Clause */
/* Parses the values of distrun's options. No function blocks. */
#ifndef DISTI_LAUNCH_WORDS_H
#define DISTI_LAUNCH_WORDS_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

enum disti_run_stream { DISTI_RUN_STDOUT = 1, DISTI_RUN_STDERR = 2 };

/*
 * Returns which streams of a worker --redirects or --tee selects (a sum of the values above): "3",
 * for all workers, or "0:1,1:2", by local rank. A NULL text selects none. -1: invalid text.
 */
int disti_run_streams(const char *text, int local_rank);

/*
 * Returns 1 if a list such as "0,2" contains the local rank, else 0. A NULL text contains all
 * ranks. -1: invalid list.
 */
int disti_run_is_listed(const char *text, int local_rank);

/* Parses a number of nodes: "2" or "2:4". False if the text is invalid. */
bool disti_run_nodes(const char *text, int *min_p, int *max_p);

/*
 * Parses "host", "host:port" or "[::1]:port"; without a port *port_p does not change. False if the
 * text is invalid.
 */
bool disti_run_endpoint(const char *text, char host[256], int *port_p);

/*
 * Parses "SIGTERM,SIGUSR1" into *set_p. Returns the first name that is not a signal which can be
 * handled, valid until the next call; NULL: all names are valid.
 */
const char *disti_run_signals(const char *text, sigset_t *set_p);

/* Writes a signal's name, such as "SIGTERM"; "SIG34" for a signal without a name. */
void disti_run_signal_name(int signal_number, char text[16]);

/* Writes a rank, such as "3"; "scheduler" for -1. */
void disti_run_rank_name(int rank, char text[16]);

/* Writes "rank 3" or "the scheduler", for messages. */
void disti_run_worker_name(int rank, char text[32]);

/* The values of ${role_name}, ${rank}, ${local_rank} and ${hostname}. */
struct disti_run_names {
    const char *role, *host;
    int rank, local_rank;
};

/* Expands a template; text beyond size bytes is truncated. */
void disti_run_prefix(const char *pattern, const struct disti_run_names *names, char *text,
                      size_t size);

/* Arguments of a command line, or variables of an environment. Zeroed: empty. */
struct disti_run_list {
    char **words; /* terminated by NULL */
    int count;
    bool failed; /* out of memory */
};

void disti_run_list_add(struct disti_run_list *list, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void disti_run_list_free(struct disti_run_list *list);

#endif
