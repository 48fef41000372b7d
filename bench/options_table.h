/* SPDX-License-Identifier: BSD-3-Clause */
/* The one table of options: the parser and the help read it. */
#ifndef BENCH_OPTIONS_TABLE_H
#define BENCH_OPTIONS_TABLE_H

#include "options.h"

enum options_kind {
    OPTIONS_FLAG,
    OPTIONS_FLAG_01, /* as a flag, or with =0 or =1 */
    OPTIONS_INT,
    OPTIONS_BYTES, /* K, M and G are powers of 1024 */
    OPTIONS_REAL,
    OPTIONS_TEXT,
    OPTIONS_CHOICE, /* one of argument, a|b|c */
    OPTIONS_ACTION
};

struct options_row {
    const char *names; /* long ones, separated by commas; "": a group, whose name help is */
    int letter;        /* 0: none */
    enum options_kind kind;
    size_t offset; /* in struct options; of an action: the action */
    double least, most;
    const char *argument;
    const char *help; /* NULL: not shown */
};

extern const struct options_row options_table[];
extern const int options_count;
extern const struct options options_defaults;

#endif
