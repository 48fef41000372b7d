/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info explain and dist_info tune: the parts. */
#ifndef TOOLS_EXPLAIN_H
#define TOOLS_EXPLAIN_H

#include <dist/backend.h>

#define EXPLAIN_ROOM 80
#define EXPLAIN_RANKS_MAX 65536

enum explain_format { EXPLAIN_TABLE, EXPLAIN_CSV, EXPLAIN_JSON };

/* What is asked, and what came out. */
struct explain_report {
    struct dist_question question;
    dist_dtype dtype;
    bool run;
    enum explain_format format;
    struct dist_explanation explanation;
    struct dist_candidate candidates[EXPLAIN_ROOM];
    int count;
    double measured[EXPLAIN_ROOM]; /* seconds; below 0: not */
    double free;                   /* what it takes if nothing is forced; below 0: not measured */
};

/* The program's commands, with their names as argv[0]. Return the exit code. */
int explain_main(int argc, char **argv);

#endif
