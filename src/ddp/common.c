/* SPDX-License-Identifier: BSD-3-Clause */
/* What a dist_ddp and a dist_zero have in common. */
#include "ddp/common.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* ---- the start ---- */

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

static dist_status common_compare(dist_group *group, const char *call, const struct ddp_word *all,
                                  bool *apart_p)
{
    const int rank = dist_get_rank(group);

    for (int i = 0; i < dist_get_world_size(group); i++) {
        if (all[i].alike == 0)
            return disti_fail(DIST_ERR_ABORTED,
                              "rank %d: %s failed on rank %d, whose own message says why", rank,
                              call, i);
        if (all[i].alike != all[rank].alike)
            return disti_fail(DIST_ERR_MISMATCH,
                              "rank %d: %s: rank %d has other parameters or options than this "
                              "rank; give all ranks the same list, counts and options, and "
                              "gradients in memory of their own on all or none",
                              rank, call, i);
        *apart_p |= all[i].apart != all[rank].apart;
    }
    return DIST_OK;
}

dist_status disti_ddp_agree(dist_group *group, const char *call, dist_status status,
                            struct ddp_word mine, bool *apart_p)
{
    const int world = dist_get_world_size(group);
    struct ddp_word *all = calloc((size_t)world, sizeof(*all));
    dist_status gathered;

    if (!all)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for a word of each of %d ranks", world);
    mine.alike = status == DIST_OK ? mine.alike | 1 : 0;
    gathered = dist_all_gather(group, &mine, all, sizeof(mine), DIST_UINT8);
    if (status == DIST_OK)
        status = gathered == DIST_OK ? common_compare(group, call, all, apart_p) : gathered;
    free(all);
    return status;
}

/* ---- the end ---- */

dist_status disti_ddp_leave(dist_group *group)
{
    uint8_t leaves = 1;

    return dist_all_reduce(group, &leaves, &leaves, 1, DIST_UINT8, DIST_MAX);
}

/* ---- names ---- */

/* Where " and 99999 more" still fits behind the name. */
static bool common_has_room(const struct ddp_list *list, const char *name)
{
    return list->length + strlen(name) + 40 <= sizeof(list->text);
}

void disti_ddp_list_add(struct ddp_list *list, const char *name)
{
    list->count++;
    if (common_has_room(list, name))
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
