/* SPDX-License-Identifier: BSD-3-Clause */
/* What things cost, as dist_sim's --links says it. */
#include "base/log.h"
#include "base/settings/config.h"
#include "tools/sim/job.h"
#include "tuning/tuning.h"

#include <errno.h>

#include <stdlib.h>
#include <string.h>

const char *const job_distances[DISTI_DISTANCES] = {
    [DISTI_SAME_NUMA] = "same_numa",
    [DISTI_SAME_NODE] = "same_node",
    [DISTI_OTHER_NODE] = "other_node",
    [DISTI_OTHER_RACK] = "other_rack",
};

/* ---- numbers with units ---- */

struct links_unit {
    const char *name;
    double value;
};

static const struct links_unit links_times[] = {
    {"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {NULL, 0}};

static const struct links_unit links_rates[] = {
    {"kbit", 1e3 / 8}, {"mbit", 1e6 / 8}, {"gbit", 1e9 / 8}, {"kB", 1e3},
    {"MB", 1e6},       {"GB", 1e9},       {"TB", 1e12},      {NULL, 0}};

/* "20us" of text[length]. False: it is no such number. 0 needs no unit. */
static bool links_number(const char *text, size_t length, const struct links_unit *unit,
                         double *value_p)
{
    char copy[32], *end;
    if (length == 0 || length >= sizeof(copy))
        return false;
    memcpy(copy, text, length);
    copy[length] = '\0';
    if (!strchr("0123456789.", copy[0]))
        return false;
    double value = strtod(copy, &end);
    while (unit->name && strcmp(unit->name, end) != 0)
        unit++;
    if (!unit->name && !(value == 0 && *end == '\0'))
        return false;
    *value_p = unit->name ? value * unit->value : 0;
    return value >= 0 && value < 1e15;
}

/* ---- words ---- */

/* "20us/10gbit/5us": latency, rate, and if it is there overhead. */
static bool links_distance(const char *text, size_t length, struct disti_link_cost *link)
{
    const char *end = text + length, *rate = memchr(text, '/', length), *overhead;
    struct disti_link_cost own = *link;
    if (!rate || !links_number(text, (size_t)(rate - text), links_times, &own.latency_s))
        return false;
    rate++;
    overhead = memchr(rate, '/', (size_t)(end - rate));
    if (!links_number(rate, (size_t)((overhead ? overhead : end) - rate), links_rates,
                      &own.bytes_per_second))
        return false;
    if (overhead &&
        !links_number(overhead + 1, (size_t)(end - overhead - 1), links_times, &own.overhead_s))
        return false;
    *link = own;
    return true;
}

struct links_word {
    const char *name;
    size_t offset; /* of a double in struct disti_cost */
    const struct links_unit *units;
};

static const struct links_word links_words[] = {
    {"copy", offsetof(struct disti_cost, copy_bytes_per_second), links_rates},
    {"reduce", offsetof(struct disti_cost, reduce_bytes_per_second), links_rates},
    {"memory", offsetof(struct disti_cost, node_bytes_per_second), links_rates},
    {"network", offsetof(struct disti_cost, network_bytes_per_second), links_rates},
    {"step", offsetof(struct disti_cost, step_s), links_times},
    {"switch", offsetof(struct disti_cost, switch_s), links_times},
};

static bool links_is(const char *name, const char *text, size_t length)
{
    return strlen(name) == length && strncmp(name, text, length) == 0;
}

/* "cpus=8" or "eager=8K". */
static bool links_count(const char *name, size_t name_length, const char *value, size_t length,
                        struct disti_cost *cost)
{
    char copy[32];
    if (length >= sizeof(copy))
        return false;
    memcpy(copy, value, length);
    copy[length] = '\0';
    if (links_is("cpus", name, name_length))
        return disti_parse_int("cpus", copy, 0, 1 << 16, &cost->node_cpus) == DIST_OK;
    return links_is("eager", name, name_length) &&
           disti_parse_bytes("eager", copy, &cost->eager_bytes) == DIST_OK;
}

static bool links_item(const char *text, size_t length, struct disti_cost *cost)
{
    const char *equals = memchr(text, '=', length);
    if (!equals)
        return false;
    size_t name = (size_t)(equals - text), rest = length - name - 1;
    for (int d = 0; d < DISTI_DISTANCES; d++)
        if (links_is(job_distances[d], text, name))
            return links_distance(equals + 1, rest, &cost->links[d]);
    for (size_t i = 0; i < sizeof(links_words) / sizeof(*links_words); i++)
        if (links_is(links_words[i].name, text, name))
            return links_number(equals + 1, rest, links_words[i].units,
                                (double *)((char *)cost + links_words[i].offset));
    return links_count(text, name, equals + 1, rest, cost);
}

static dist_status links_words_of(const char *text, struct disti_cost *cost)
{
    for (text += strspn(text, ", "); *text; text += strspn(text, ", ")) {
        size_t length = strcspn(text, ", ");
        if (!links_item(text, length, cost))
            return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                              "--links: \"%.*s\" is not a price; give for example "
                              "other_node=20us/10gbit/5us, or memory=25GB, step=100ns, cpus=8",
                              (int)(length < 100 ? length : 100), text);
        text += length;
    }
    return DIST_OK;
}

/* A tuning file has CPUs and the limit of short messages not in it: those stay. */
static dist_status links_file(const char *name, struct disti_cost *cost)
{
    static char text[2 * DISTI_TUNING_TEXT]; /* too large for a small stack */
    char why[256];
    struct disti_tuning tuning;
    FILE *file = fopen(name, "r");
    if (!file)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "--links %s: %s", name, strerror(errno));
    size_t length = fread(text, 1, sizeof(text), file);
    bool failed = ferror(file);
    fclose(file);
    if (failed || length == sizeof(text))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "--links %s: the file cannot be read, or is too long for a tuning file",
                          name);
    text[length] = '\0';
    dist_status status = disti_tuning_parse(text, name, NULL, &tuning, why, sizeof(why));
    if (status != DIST_OK)
        return disti_fail(status, "--links %s", why);
    tuning.cost.node_cpus = cost->node_cpus;
    tuning.cost.eager_bytes = cost->eager_bytes;
    *cost = tuning.cost;
    return DIST_OK;
}

dist_status job_links(const char *text, struct disti_cost *cost)
{
    return strchr(text, '=') ? links_words_of(text, cost) : links_file(text, cost);
}
