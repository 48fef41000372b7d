/* SPDX-License-Identifier: BSD-3-Clause */
/* The one table of options: the parser, the help and the tests read it. */
#ifndef TRAIN_OPTIONS_TABLE_H
#define TRAIN_OPTIONS_TABLE_H

#include <stddef.h>

#include "options.h"

enum options_kind { OPTIONS_FLAG, OPTIONS_INT, OPTIONS_REAL, OPTIONS_TEXT, OPTIONS_ACTION };

struct options_row {
    const char *name;   /* long, with dashes */
    const char *second; /* another long name, or NULL */
    int letter;         /* short, or 0 */
    enum options_kind kind;
    size_t offset;        /* of the member of struct options */
    double least, most;   /* of a number */
    const char *argument; /* its name in the help; for a text with choices: a|b|c */
    const char *help;     /* with " (default: ...)" where there is one; NULL starts a group: name */
};

extern const struct options_row options_table[];
extern const int options_count;
extern const struct options options_defaults;

#endif
