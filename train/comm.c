/* SPDX-License-Identifier: BSD-3-Clause */
/* What training asks of the other ranks. */
#include "comm.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device.h"
#include "failure.h"
#include "rng.h"

double comm_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int comm_open(const struct options *options, bool spawned, struct comm *comm)
{
    const char *host = options->addr ? options->addr : "127.0.0.1";
    const bool bracket = strchr(host, ':') && host[0] != '[';
    struct dist_options group = DIST_OPTIONS_INIT;
    dist_status status;
    char url[512];
    bool cuda;

    if (options->addr && strlen(options->addr) > 255)
        return failure("--addr: longer than any host name");
    group.backend = options->dist_backend;
    group.device = -1; /* none in particular, unless --device says one */
    device_parse(options->device, &cuda, &group.device);
    group.init_method = options->dist_url; /* NULL is left to the library */
    if (options->addr || options->port >= 0) {
        snprintf(url, sizeof(url), "tcp://%s%s%s:%d", bracket ? "[" : "", host, bracket ? "]" : "",
                 options->port < 0 ? 29500 : (int)options->port);
        group.init_method = url;
    }
    if (!spawned) {
        group.rank = (int)options->rank;
        group.world_size = (int)options->world_size;
        group.local_rank = (int)options->local_rank;
    }
    if (options->timeout > 0)
        group.timeout_ms =
            options->timeout > INT_MAX / 1000 ? INT_MAX : (int)options->timeout * 1000;
    *comm = (struct comm){.group = NULL};
    status = dist_init_process_group(&group, &comm->group);
    if (status == DIST_ERR_SCHEDULER)
        return COMM_SCHEDULER;
    if (status != DIST_OK)
        return failure_dist("cannot join the process group");
    comm->rank = dist_get_rank(comm->group);
    comm->world = dist_get_world_size(comm->group);
    comm->local_rank = dist_get_local_rank(comm->group);
    return 0;
}

int comm_close(struct comm *comm)
{
    dist_group *group = comm->group;

    comm->group = NULL;
    return dist_destroy_process_group(group) < 0 ? failure_dist("cannot leave the process group")
                                                 : 0;
}

/* Adds the time since start, and turns a status into 0 or -1. */
static int comm_ended(struct comm *comm, double start, dist_status status, const char *what)
{
    comm->seconds += comm_now() - start;
    return status < 0 ? failure_dist(what) : 0;
}

int comm_reduce(struct comm *comm, double *values, size_t count, dist_op op)
{
    const double start = comm_now();

    return comm_ended(comm, start,
                      dist_all_reduce(comm->group, values, values, count, DIST_FLOAT64, op),
                      op == DIST_AVG ? "averaging the losses" : "adding up the results");
}

int comm_broadcast(struct comm *comm, float *values, size_t count)
{
    const double start = comm_now();

    return comm_ended(comm, start, dist_broadcast(comm->group, values, count, DIST_FLOAT32, 0),
                      "receiving the parameters of rank 0");
}

/* Every rank's value; the caller frees *values_p. */
static int comm_gather(struct comm *comm, uint64_t value, uint64_t **values_p)
{
    uint64_t *values = calloc((size_t)comm->world, sizeof(*values));
    const double start = comm_now();

    if (!values)
        return failure("out of memory for a value of each of %d ranks", comm->world);
    if (comm_ended(comm, start, dist_all_gather(comm->group, &value, values, 1, DIST_UINT64),
                   "comparing the ranks") < 0) {
        free(values);
        return -1;
    }
    *values_p = values;
    return 0;
}

/* "3, 5, 7 and 12 more": the ranks whose value is not `value`. Returns how many they are. */
static int comm_list_others(const struct comm *comm, const uint64_t *values, uint64_t value,
                            char *text, size_t size)
{
    int others = 0, shown = 0;
    size_t length = 0;

    text[0] = '\0';
    for (int i = 0; i < comm->world; i++) {
        if (values[i] == value)
            continue;
        others++;
        if (length + 40 > size)
            continue;
        length += (size_t)snprintf(text + length, size - length, "%s%d", shown++ ? ", " : "", i);
    }
    if (others > shown)
        snprintf(text + length, size - length, " and %d more", others - shown);
    return others;
}

int comm_agree(struct comm *comm, int result, const char *what)
{
    char own[1024], ranks[256];
    uint64_t *values = NULL;
    int failed;

    snprintf(own, sizeof(own), "%s", failure_text());
    if (comm_gather(comm, result < 0, &values) < 0)
        return result < 0 ? failure("%s", own) : -1;
    failed = comm_list_others(comm, values, 0, ranks, sizeof(ranks));
    free(values);
    if (result < 0)
        return failure("%s", own);
    if (failed == 0)
        return 0;
    return failure(failed == 1 ? "rank %s could not %s: its own message says why"
                               : "ranks %s could not %s: their messages say why",
                   ranks, what);
}

int comm_compare(struct comm *comm, uint64_t value, const char *what)
{
    uint64_t *values = NULL, common = 0;
    int others, most = 0;
    char ranks[256];

    if (comm_gather(comm, value, &values) < 0)
        return -1;
    /* The value that most ranks have; the lowest rank's among equals. */
    for (int i = 0; i < comm->world; i++) {
        int count = 0;

        for (int j = 0; j < comm->world; j++)
            count += values[j] == values[i];
        if (count > most) {
            most = count;
            common = values[i];
        }
    }
    others = comm_list_others(comm, values, common, ranks, sizeof(ranks));
    free(values);
    if (others > 0)
        return failure(
            "the ranks disagree on the %s: it is %016" PRIx64 " here, %s %s differ%s from "
            "%016" PRIx64,
            what, value, others == 1 ? "rank" : "ranks", ranks, others == 1 ? "s" : "", common);
    return 0;
}

/* ---- a 64-bit hash of memory ---- */

/* As FNV-1a, but a float at a time, and with a final mix. */
uint64_t hash_floats(const float *floats, size_t count)
{
    uint64_t hash = UINT64_C(0xCBF29CE484222325) ^ count;

    for (size_t i = 0; i < count; i++) {
        uint32_t bits;

        memcpy(&bits, &floats[i], sizeof(bits));
        hash = (hash ^ bits) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 32;
    }
    return rng_mix(hash);
}
