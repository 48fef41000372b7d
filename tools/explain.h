/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info explain: shows the algorithms of a collective with predicted and measured times. */
#ifndef TOOLS_EXPLAIN_H
#define TOOLS_EXPLAIN_H

#include <dist/backend.h>

#define EXPLAIN_CANDIDATES_MAX 80
#define EXPLAIN_RANKS_MAX 65536

enum explain_format { EXPLAIN_TABLE, EXPLAIN_CSV, EXPLAIN_JSON };

/* The question, the library's answer and the measured times. */
struct explain_report {
    struct dist_question question;
    dist_dtype dtype;
    bool run; /* also measure the candidates */
    enum explain_format format;
    struct dist_explanation explanation;
    struct dist_candidate candidates[EXPLAIN_CANDIDATES_MAX];
    int count;
    double measured[EXPLAIN_CANDIDATES_MAX]; /* seconds per candidate; below 0: not measured */
    double unforced; /* seconds without a forced algorithm; below 0: not measured */
};

/* Runs the command; argv[0] is "explain". Returns the exit code. */
int explain_main(int argc, char **argv);

#endif
