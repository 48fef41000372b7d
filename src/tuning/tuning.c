/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes and reads tuning files. */
#include "tuning/tuning.h"
#include "base/settings/config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TUNING_TITLE "libdist tuning 1"
#define TUNING_LINE 512
#define TUNING_WORDS 16

/* ---- costs ---- */

#define NS 1e-9
#define SECOND_NS 1000000000ull
#define TERABYTE 1000000000000ull

#define TERM(word, field, unit, least, most)                                                       \
    {                                                                                              \
        word, offsetof(struct disti_cost, field), unit, least, most                                \
    }
#define LINK(word, distance)                                                                       \
    TERM(word "_latency_ns", links[distance].latency_s, NS, 1, SECOND_NS),                         \
        TERM(word "_overhead_ns", links[distance].overhead_s, NS, 0, SECOND_NS),                   \
        TERM(word "_bytes_per_second", links[distance].bytes_per_second, 1, 1000, 100 * TERABYTE)

/* The numbers of struct disti_cost. They are written as a whole number of units in [least,
 * most]. */
static const struct tuning_term {
    const char *word;
    size_t offset;
    double unit;
    uint64_t least, most;
} tuning_terms[] = {
    LINK("same_numa", DISTI_SAME_NUMA),
    LINK("same_node", DISTI_SAME_NODE),
    LINK("other_node", DISTI_OTHER_NODE),
    LINK("other_rack", DISTI_OTHER_RACK),
    TERM("copy_bytes_per_second", copy_bytes_per_second, 1, 1000000, 100 * TERABYTE),
    TERM("reduce_bytes_per_second", reduce_bytes_per_second, 1, 1000000, 100 * TERABYTE),
    TERM("node_bytes_per_second", node_bytes_per_second, 1, 1000000, 100 * TERABYTE),
    TERM("network_bytes_per_second", network_bytes_per_second, 1, 1000000, 100 * TERABYTE),
    TERM("step_ns", step_s, NS, 1, SECOND_NS),
    TERM("switch_ns", switch_s, NS, 1, SECOND_NS),
    {NULL, 0, 0, 0, 0},
};

/* Returns a cost in units. */
static double term_units(const struct disti_cost *cost, const struct tuning_term *term)
{
    return *(const double *)((const char *)cost + term->offset) / term->unit;
}

/* Returns a cost in units, rounded and clamped to the range. */
static uint64_t term_get(const struct disti_cost *cost, const struct tuning_term *term)
{
    double units = term_units(cost, term) + 0.5;

    if (!(units > (double)term->least)) /* also true for NaN */
        return term->least;
    return units >= (double)term->most ? term->most : (uint64_t)units;
}

static void term_set(struct disti_cost *cost, const struct tuning_term *term, uint64_t value)
{
    *(double *)((char *)cost + term->offset) = (double)value * term->unit;
}

/* ---- writing ---- */

__attribute__((format(printf, 4, 5))) static void text_add(char *text, size_t size, size_t *length,
                                                           const char *format, ...)
{
    size_t at = *length < size ? *length : size;
    va_list args;

    va_start(args, format);
    *length += (size_t)vsnprintf(text + at, size - at, format, args);
    va_end(args);
}

size_t disti_tuning_print(const struct disti_tuning *tuning, const char *key, char *text,
                          size_t size)
{
    size_t length = 0;

    text_add(text, size, &length, TUNING_TITLE "\nkey %s\n", key);
    for (const struct tuning_term *term = tuning_terms; term->word; term++)
        text_add(text, size, &length, "%s %llu\n", term->word,
                 (unsigned long long)term_get(&tuning->cost, term));
    for (uint32_t i = 0; i < tuning->fixed_count; i++) {
        const struct disti_fixed *fixed = &tuning->fixed[i];

        text_add(text, size, &length, "%s bytes<=%llu ranks<=%d: %s",
                 dist_collective_string((dist_collective)fixed->collective),
                 (unsigned long long)fixed->bytes, fixed->ranks,
                 disti_algorithms[fixed->algorithm].name);
        if (fixed->segments)
            text_add(text, size, &length, " segments %u", fixed->segments);
        text_add(text, size, &length, "\n");
    }
    return length;
}

/* ---- reading ---- */

/* The position of a reader, and where it stores its error message. */
struct text_reader {
    const char *name;
    char *why;
    size_t why_size;
    int line;
    int count;
    char *words[TUNING_WORDS];
    char copy[TUNING_LINE];
};

static dist_status text_fail(const struct text_reader *reader, const char *why, const char *word)
{
    snprintf(reader->why, reader->why_size, "%s, line %d: %s \"%.64s\"; see dist-tuning(7)",
             reader->name, reader->line, why, word);
    return DIST_ERR_INVALID_ARGUMENT;
}

/* Splits the next line of *text_p into words, without comments and blanks. */
static dist_status text_next(struct text_reader *reader, const char **text_p)
{
    size_t length = strcspn(*text_p, "\n");
    char *rest = NULL;

    reader->line++;
    reader->count = 0;
    if (length >= sizeof(reader->copy))
        return text_fail(reader, "line too long:", *text_p);
    memcpy(reader->copy, *text_p, length);
    reader->copy[length] = '\0';
    *text_p += length + ((*text_p)[length] == '\n');
    reader->copy[strcspn(reader->copy, "#")] = '\0';
    for (char *word = strtok_r(reader->copy, " \t\r", &rest); word;
         word = strtok_r(NULL, " \t\r", &rest)) {
        if (reader->count == TUNING_WORDS)
            return text_fail(reader, "too many words, starting with", word);
        reader->words[reader->count++] = word;
        if (strcmp(reader->words[0], "key") == 0) /* the key may have any number of words */
            break;
    }
    return DIST_OK;
}

/* Parses "bytes<=64K" or "ranks<=8". */
static dist_status text_bound(const struct text_reader *reader, const char *word,
                              struct disti_fixed *fixed)
{
    size_t bytes;
    int ranks;

    if (strncmp(word, "bytes<=", 7) == 0 &&
        disti_parse_bytes("bytes<=", word + 7, &bytes) == DIST_OK) {
        fixed->bytes = bytes;
        return DIST_OK;
    }
    if (strncmp(word, "ranks<=", 7) == 0 &&
        disti_parse_int("ranks<=", word + 7, 1, INT32_MAX, &ranks) == DIST_OK) {
        fixed->ranks = ranks;
        return DIST_OK;
    }
    return text_fail(reader, "expected bytes<=SIZE or ranks<=NUMBER, not", word);
}

/* Parses the part after the colon: "ring", or "ring segments 4". */
static dist_status text_algorithm(const struct text_reader *reader, int at,
                                  struct disti_fixed *fixed)
{
    const struct disti_algorithm *found;
    int segments = 0;

    if (at >= reader->count)
        return text_fail(reader, "missing algorithm after", reader->words[reader->count - 1]);
    found = disti_algorithm_find((dist_collective)fixed->collective, reader->words[at]);
    if (!found)
        return text_fail(reader, "this collective has no algorithm", reader->words[at]);
    fixed->algorithm = (int32_t)(found - disti_algorithms);
    if (++at == reader->count)
        return DIST_OK;
    if (strcmp(reader->words[at], "segments") != 0 || at + 2 != reader->count ||
        disti_parse_int("segments", reader->words[at + 1], 1, DISTI_SEGMENTS_MOST, &segments) !=
            DIST_OK)
        return text_fail(reader, "expected 'segments' and a number from 1 to 1024, not",
                         reader->words[at]);
    fixed->segments = (uint32_t)segments;
    return DIST_OK;
}

static dist_status text_line(const struct text_reader *reader, struct disti_tuning *tuning)
{
    const struct tuning_term *term = tuning_terms;
    const char *digits = reader->count == 2 ? reader->words[1] : "";
    size_t length = strcspn(reader->words[0], ":");
    unsigned long long value;
    int collective = 0;

    for (; collective < DIST_COLL_COUNT; collective++) {
        const char *name = dist_collective_string((dist_collective)collective);

        if (strlen(name) == length && strncmp(name, reader->words[0], length) == 0)
            break;
    }
    if (strcmp(reader->words[0], "key") == 0)
        return DIST_OK;
    if (collective < DIST_COLL_COUNT) {
        /* "all_reduce bytes<=65536 ranks<=8: ring segments 4" */
        struct disti_fixed fixed = {
            .bytes = UINT64_MAX, .ranks = INT32_MAX, .collective = (int32_t)collective};
        dist_status status = DIST_OK;
        bool colon = false;
        int at = 0;
        if (tuning->fixed_count == DISTI_FIXED_MAX)
            return text_fail(reader, "more than 32 fixed choices, starting with", reader->words[0]);
        for (; at < reader->count && !colon && status == DIST_OK; at++) {
            char *word = reader->words[at];
            char *last = word + strlen(word) - 1;
            colon = *last == ':';
            if (colon)
                *last = '\0';
            if (at > 0 && word[0])
                status = text_bound(reader, word, &fixed);
        }
        if (status == DIST_OK)
            status = colon ? text_algorithm(reader, at, &fixed)
                           : text_fail(reader, "missing colon after", reader->words[0]);
        if (status == DIST_OK)
            tuning->fixed[tuning->fixed_count++] = fixed;
        return status;
    }
    while (term->word && strcmp(term->word, reader->words[0]) != 0)
        term++;
    if (!term->word)
        return text_fail(reader, "unknown cost or collective", reader->words[0]);
    if (!digits[0] || strspn(digits, "0123456789") != strlen(digits))
        return text_fail(reader, "missing whole number after", reader->words[0]);
    errno = 0;
    value = strtoull(digits, NULL, 10);
    if (errno == ERANGE || value < term->least || value > term->most)
        return text_fail(reader, "number out of range:", digits);
    term_set(&tuning->cost, term, value);
    return DIST_OK;
}

/* True if the line equals `expected`, ignoring its end of line. */
static bool text_is(const char *line, const char *expected)
{
    size_t length = strlen(expected);

    return strncmp(line, expected, length) == 0 && strchr("\r\n", line[length]);
}

dist_status disti_tuning_parse(const char *text, const char *name, const char *key,
                               struct disti_tuning *tuning_p, char *why, size_t why_size)
{
    struct text_reader reader = {.name = name, .why = why, .why_size = why_size};
    const char *line = strstr(text, "\nkey ");
    struct disti_tuning tuning;
    dist_status status;

    disti_tuning_usual(&tuning);
    if (!text_is(text, TUNING_TITLE)) {
        snprintf(why, why_size, "%s: the first line is not \"%s\"", name, TUNING_TITLE);
        return DIST_ERR_INVALID_ARGUMENT;
    }
    if (key && !(line && text_is(line + 5, key))) {
        snprintf(why, why_size, "%s: the file was not measured on \"%s\"", name, key);
        return DIST_ERR_INVALID_ARGUMENT;
    }
    status = text_next(&reader, &text);
    while (status == DIST_OK && *text) {
        status = text_next(&reader, &text);
        if (status == DIST_OK && reader.count)
            status = text_line(&reader, &tuning);
    }
    if (status != DIST_OK)
        return status;
    snprintf(tuning.source, sizeof(tuning.source), "the file %.50s", name);
    *tuning_p = tuning;
    return DIST_OK;
}

void disti_tuning_usual(struct disti_tuning *tuning_p)
{
    memset(tuning_p, 0, sizeof(*tuning_p));
    memcpy(&tuning_p->cost, &disti_cost_usual, sizeof(tuning_p->cost));
    tuning_p->predict = 1;
    strcpy(tuning_p->source, "usual values, nothing measured");
}

void disti_tuning_round(struct disti_tuning *tuning)
{
    for (const struct tuning_term *term = tuning_terms; term->word; term++)
        term_set(&tuning->cost, term, term_get(&tuning->cost, term));
}

bool disti_tuning_sane(const struct disti_tuning *tuning)
{
    bool sane = tuning->predict <= 1 && tuning->fixed_count <= DISTI_FIXED_MAX &&
                memchr(tuning->source, '\0', sizeof(tuning->source));

    for (const struct tuning_term *term = tuning_terms; sane && term->word; term++) {
        double units = term_units(&tuning->cost, term);

        /* Rounding changes values within the range by at most half a unit. */
        sane = units >= (double)term->least - 0.5 && units <= (double)term->most * 1.000001;
    }
    for (uint32_t i = 0; sane && i < tuning->fixed_count; i++) {
        int rows = 0;
        while (disti_algorithms[rows].name)
            rows++;
        sane = tuning->fixed[i].algorithm >= 0 && tuning->fixed[i].algorithm < rows &&
               tuning->fixed[i].collective >= 0 &&
               disti_algorithms[tuning->fixed[i].algorithm].collective ==
                   (dist_collective)tuning->fixed[i].collective &&
               tuning->fixed[i].segments <= DISTI_SEGMENTS_MOST;
    }
    return sane;
}

const struct disti_fixed *disti_tuning_fixed(const struct disti_tuning *tuning,
                                             dist_collective collective, size_t bytes, int ranks)
{
    for (uint32_t i = 0; i < tuning->fixed_count; i++) {
        const struct disti_fixed *fixed = &tuning->fixed[i];

        if (fixed->collective == (int32_t)collective && bytes <= fixed->bytes &&
            ranks <= fixed->ranks)
            return fixed;
    }
    return NULL;
}
