/* SPDX-License-Identifier: BSD-3-Clause */
/* The options and their values, for people to read. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "options.h"
#include "records.h"

/* The value as the command line has it; "": there is none, so numbers are below the least. */
static void facts_value(const struct args_row *row, const void *options, char *text, size_t size)
{
    const void *at = (const char *)options + row->offset;

    text[0] = '\0';
    switch (row->kind) {
    case ARGS_FLAG:
    case ARGS_SWITCH:
        snprintf(text, size, "%s", *(const bool *)at ? "yes" : "no");
        break;
    case ARGS_INT:
    case ARGS_BYTES:
        if ((double)*(const int64_t *)at >= row->least)
            snprintf(text, size, "%" PRId64, *(const int64_t *)at);
        break;
    case ARGS_REAL:
        if (*(const double *)at >= row->least)
            snprintf(text, size, "%.9g", *(const double *)at);
        break;
    case ARGS_TEXT:
    case ARGS_CHOICE:
        if (*(const char *const *)at)
            snprintf(text, size, "%.*s", (int)size - 1, *(const char *const *)at);
        break;
    default:
        break;
    }
}

/* Whether it is another than without options; one that depends on others is not. */
static bool facts_is_changed(const struct args_row *row, const struct options *usually,
                             const char *value)
{
    char usual[sizeof(((struct record_fact *)0)->value)];

    facts_value(row, usually, usual, sizeof(usual));
    return strcmp(usual, value) != 0 && !(row->kind == ARGS_REAL && usual[0] == '\0');
}

int options_facts(const struct options *options, struct record_fact *facts, int room)
{
    const struct options usual = options_usual(options->task);
    int count = 0;

    for (int i = 0; i < options_args.count; i++) {
        const struct args_row *row = &options_args.rows[i];
        struct record_fact fact = {.changed = false};

        facts_value(row, options, fact.value, sizeof(fact.value));
        if (fact.value[0] == '\0')
            continue;
        snprintf(fact.name, sizeof(fact.name), "%.*s", (int)strcspn(row->names, ","), row->names);
        fact.changed = facts_is_changed(row, &usual, fact.value);
        if (count < room)
            facts[count] = fact;
        count++;
    }
    return count;
}

/* Bits of the value; of a choice, its first letters. */
static uint64_t facts_bits(const struct args_row *row, const struct options *options)
{
    const void *at = (const char *)options + row->offset;
    uint64_t bits = 0;

    if (row->kind == ARGS_FLAG || row->kind == ARGS_SWITCH)
        bits = *(const bool *)at;
    else if (row->kind == ARGS_CHOICE)
        memcpy(&bits, *(const char *const *)at, strnlen(*(const char *const *)at, sizeof(bits)));
    else
        memcpy(&bits, at, sizeof(bits));
    return bits;
}

/* What says how a rank is reached and what it has to compute with is its own; so are its files. */
const char *options_common(const struct options *options, int *row_p, uint64_t *value_p)
{
    while (*row_p < options_args.count) {
        const struct args_row *row = &options_args.rows[(*row_p)++];

        if (row->kind == ARGS_GROUP &&
            (strncmp(row->names, "Processes", 9) == 0 || strcmp(row->names, "Machine") == 0)) {
            while (*row_p < options_args.count && options_args.rows[*row_p].kind != ARGS_GROUP)
                ++*row_p;
        } else if (row->kind != ARGS_GROUP && row->kind != ARGS_TEXT && row->kind != ARGS_ACTION) {
            *value_p = facts_bits(row, options);
            return row->names;
        }
    }
    return NULL;
}
