/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions shared by dist_ddp and dist_zero. */
#include "ddp/ddp.h"

#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "base/log.h"

/* ---- creation: names, and agreement of the ranks ---- */

char *disti_ddp_quote(const char *name, int index)
{
    const size_t size = (name ? strlen(name) : 0) + 32;
    char *text = malloc(size);

    if (text && name)
        disti_text(text, size, "'%s'", name);
    else if (text)
        disti_text(text, size, "parameter %d", index);
    return text;
}

/*
 * Maxima of all ranks' hashes. The agreement allocates nothing, since a rank may be out of memory.
 */
struct common_maxima {
    uint64_t failed; /* world_size - rank of the first failed rank; 0: none */
    uint64_t match_max, match_min, differ_max, differ_min; /* minima are stored as ~minimum */
};
#define COMMON_MAXIMA (sizeof(struct common_maxima) / sizeof(uint64_t))

static dist_status common_gather(dist_group *group, uint64_t *maxima, size_t count)
{
    return dist_all_reduce(group, maxima, maxima, count, DIST_UINT64, DIST_MAX);
}

dist_status disti_ddp_agree(dist_group *group, const char *call, dist_status status,
                            struct ddp_hashes mine, bool *differs_p)
{
    const int rank = dist_get_rank(group), world = dist_get_world_size(group);
    struct common_maxima all = {0, mine.must_match, ~mine.must_match, mine.may_differ,
                                ~mine.may_differ};

    if (status != DIST_OK) {
        char text[1024];

        /* Notifies the other ranks of the failure; the last error stays unchanged. */
        all = (struct common_maxima){
            .failed = (uint64_t)(dist_get_world_size(group) - dist_get_rank(group))};
        disti_text(text, sizeof(text), "%s", dist_last_error());
        common_gather(group, &all.failed, COMMON_MAXIMA);
        disti_fail_unlogged(text);
        return status;
    }
    status = common_gather(group, &all.failed, COMMON_MAXIMA);
    if (status != DIST_OK)
        return status;
    if (all.failed > 0)
        return disti_fail(DIST_ERR_ABORTED,
                          "rank %d: %s failed on rank %d: see the error on that rank", rank, call,
                          world - (int)all.failed);
    if (all.match_max != ~all.match_min) {
        /* Names a rank with a different hash. */
        const bool most = mine.must_match == all.match_max,
                   least = mine.must_match == ~all.match_min;
        uint64_t firsts[] = {most ? (uint64_t)(world - rank) : 0,
                             least ? (uint64_t)(world - rank) : 0};

        status = common_gather(group, firsts, 2);
        if (status != DIST_OK)
            return status;
        return disti_fail(DIST_ERR_MISMATCH,
                          "rank %d: %s: the parameters or options of rank %d differ from this "
                          "rank's: use the same list, counts and options on all ranks, and "
                          "allocate gradients on all ranks or on none",
                          rank, call, world - (int)firsts[most]);
    }
    *differs_p = all.differ_max != ~all.differ_min;
    return DIST_OK;
}

/* ---- destruction ---- */

dist_status disti_ddp_leave(dist_group *group)
{
    uint8_t leaves = 1;

    return dist_all_reduce(group, &leaves, &leaves, 1, DIST_UINT8, DIST_MAX);
}

DISTI_PROCESS_LOCK(common_lock);
static void *common_destroyed[DDP_DESTROYED];
static unsigned common_destroyed_next;

void disti_ddp_keep_destroyed(void *handle)
{
    void *oldest;

    pthread_mutex_lock(&common_lock);
    oldest = common_destroyed[common_destroyed_next % DDP_DESTROYED];
    common_destroyed[common_destroyed_next++ % DDP_DESTROYED] = handle;
    pthread_mutex_unlock(&common_lock);
    free(oldest);
}

/* ---- sums of squares ---- */

/* Independent partial sums, so that the loop vectorizes. The order of additions is fixed. */
enum { NORM_LANES = 8 };

double disti_squares(const void *x, size_t count, dist_dtype dtype)
{
    const float *singles = x;
    const double *doubles = x;
    double sums[NORM_LANES] = {0.0}, sum = 0.0;
    size_t i = 0;

    if (dtype == DIST_FLOAT32) {
        for (; i + NORM_LANES <= count; i += NORM_LANES)
            for (int j = 0; j < NORM_LANES; j++)
                sums[j] += (double)singles[i + (size_t)j] * (double)singles[i + (size_t)j];
        for (; i < count; i++)
            sums[0] += (double)singles[i] * (double)singles[i];
    } else
        for (; i < count; i++)
            sums[i % NORM_LANES] += doubles[i] * doubles[i];
    for (int j = 0; j < NORM_LANES; j++)
        sum += sums[j];
    return sum;
}

/* ---- names ---- */

void disti_ddp_list_add(struct ddp_list *list, const char *name)
{
    list->count++;
    /* " and 99999 more" still fits after the name. */
    if (list->length + strlen(name) + 40 <= sizeof(list->text))
        list->length += disti_text(list->text + list->length, sizeof(list->text) - list->length,
                                   "%s%s", list->shown++ ? ", " : "", name);
}

const char *disti_ddp_list_end(struct ddp_list *list)
{
    if (list->count > list->shown)
        disti_text(list->text + list->length, sizeof(list->text) - list->length, "%s%d more",
                   list->shown ? " and " : "", list->count - list->shown);
    return list->text;
}
