/* SPDX-License-Identifier: BSD-3-Clause */
/* A group of those that are left. */
#include "base/clock.h"
#include "core/group/group.h"

#include <stdio.h>
#include <stdlib.h>

/*
 * The store tells every rank of each loss in one order. So those that are left come to one list in
 * the end: who has an older one meets nobody under it, for a rank of it is gone, and hears which.
 *
 *     A: loses C ........... [A B] waits for B ......... both made it: done
 *     B: [A B C] fails: C .. [A B] meets A
 *
 * A rank that dies while the group is made may leave it made on some ranks only. So it counts when
 * all its ranks have said in the store that they have it, which all or none of them hear.
 */

/* Between tries that found nobody else gone: a connection broke, or news are late. */
#define SHRINK_AGAIN_MS 10

/* The ranks of the group that are there, as far as is known here. Returns how many. */
static int shrink_list(struct dist_group *group, int *ranks)
{
    int left = 0;

    for (int r = 0; r < group->world_size; r++) {
        if (!disti_news_is_gone(group->world, group->members[r]))
            ranks[left++] = r;
    }
    return left;
}

/* Do all its ranks have the new group? The same answer on all of them. */
static dist_status shrink_confirm(struct dist_group *group, int timeout_ms)
{
    struct disti_party party = disti_group_party(group);
    char key[64];

    if (group->world_size == 1)
        return DIST_OK;
    party.what = "for the others that are left";
    snprintf(key, sizeof(key), "dist/shrink/%u", group->number);
    return disti_store_all_gather(group->world->bootstrap.store, &party, key, NULL, NULL, 0,
                                  timeout_ms);
}

/* Not all have it: it ends without waiting for anybody. */
static void shrink_undo(struct dist_group *group, dist_status status)
{
    char why[GROUP_TEXT];

    disti_text(why, sizeof(why), "%s", dist_last_error());
    disti_group_enter(group);
    disti_group_break(group, status, why);
    disti_group_exit(group);
    dist_destroy_process_group(group);
    disti_fail(status, "%s", why);
}

static dist_status shrink_try(struct dist_group *group, const int *ranks, int count,
                              const struct dist_group_options *options, int64_t until,
                              dist_group **group_p)
{
    dist_group *made = NULL;
    dist_status status = dist_new_group(group, ranks, count, options, &made);

    if (status != DIST_OK)
        return status;
    status = shrink_confirm(made, disti_left_ms(until));
    if (status == DIST_OK)
        *group_p = made;
    else
        shrink_undo(made, status);
    return status;
}

/*
 * Without the store the ranks have no common order of losses: two parts of the job could each take
 * the other for dead and go on. The status is not ERR_PEER_LOST, at which programs try again.
 */
static dist_status shrink_check_store(const struct dist_group *group)
{
    struct disti_store *store = group->world->bootstrap.store;
    char why[GROUP_TEXT];

    if (!store || !disti_store_is_lost(store))
        return DIST_OK;
    if (disti_store_lost_why(store, why, sizeof(why)))
        return disti_fail(DIST_ERR_RENDEZVOUS,
                          "rank %d: dist_shrink cannot find out which ranks are left: %s. To "
                          "survive the death of rank 0 too, start the ranks with distrun "
                          "--on-failure continue, under mpirun or srun one distrun a node: its "
                          "agent holds the store",
                          group->world->rank, why);
    return disti_fail(DIST_ERR_RENDEZVOUS,
                      "rank %d: dist_shrink cannot find out which ranks are left: %s. No rank can "
                      "go on: start the job again",
                      group->world->rank, why);
}

/* The ranks that are left and call dist_shrink are told why this rank does not come. */
static dist_status shrink_decline(struct dist_group *group, int *ranks, dist_status status)
{
    const int count = shrink_list(group, ranks);

    for (int i = 0; i < count; i++)
        ranks[i] = group->members[ranks[i]];
    return disti_group_decline(group, ranks, count, status);
}

dist_status dist_shrink(dist_group *group, const struct dist_group_options *given,
                        dist_group **group_p)
{
    struct dist_group_options options;
    int *ranks, count, before = 0;
    int64_t until;
    dist_status status = disti_group_check(group, "dist_shrink");

    if (status != DIST_OK)
        return status;
    ranks = calloc((size_t)group->world_size, sizeof(*ranks));
    if (!ranks)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for %d ranks", group->world_size);
    status = disti_groups_check(group, "dist_shrink", given, group_p, &options);
    if (status != DIST_OK) {
        status = shrink_decline(group, ranks, status);
        goto out;
    }
    until = disti_deadline_ms(options.timeout_ms);
    do {
        count = shrink_list(group, ranks);
        if (count == before)
            disti_sleep_ns((int64_t)SHRINK_AGAIN_MS * 1000 * 1000);
        before = count;
        status = shrink_check_store(group);
        if (status != DIST_OK)
            break;
        status = shrink_try(group, ranks, count, &options, until, group_p);
    } while (status == DIST_ERR_PEER_LOST && !disti_expired(until));
out:
    free(ranks);
    return status;
}
