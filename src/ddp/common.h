/* SPDX-License-Identifier: BSD-3-Clause */
/* What a dist_ddp and a dist_zero have in common: how they begin, how they end, whom they name. */
#ifndef DISTI_DDP_COMMON_H
#define DISTI_DDP_COMMON_H

#include <dist/dist.h>

/* "'conv1.bias'", or "parameter 3" where name is NULL. The caller frees it. NULL: no memory. */
char *disti_ddp_quote(const char *name, int index);

/* What a rank says before all begin. Both are hashes. */
struct ddp_word {
    uint64_t alike; /* of what has to be the same on all ranks */
    uint64_t apart; /* of what may differ */
};

/*
 * Every rank comes here, also one that has failed: with the status of what it did alone. OK on all
 * ranks, or on none: a rank learns of another's failure, or other word. `call` is for the message.
 * *apart_p: whether `apart` is not the same on all. Collective; allocates nothing itself.
 */
dist_status disti_ddp_agree(dist_group *group, const char *call, dist_status status,
                            struct ddp_word mine, bool *apart_p);

/* True if dist_dup_group failed on all ranks: one has declined it, or the parent was aborted. */
static inline bool disti_ddp_is_declined(dist_status status)
{
    return status == DIST_ERR_INVALID_ARGUMENT || status == DIST_ERR_UNSUPPORTED ||
           status == DIST_ERR_ABORTED;
}

/*
 * Ranks that are in a step would wait for one that leaves, and it for them. So this call stands in
 * the order of the steps, and is none of a step's: where another rank is at a step it ends both at
 * once. Behind it nobody uses the memory of this rank any more. Collective.
 */
dist_status disti_ddp_leave(dist_group *group);

/*
 * Keeps the structure of a destroyed handle, so that a later call with that handle finds it marked
 * as destroyed. Frees the oldest of the last DDP_DESTROYED structures. Any thread may call it.
 */
#define DDP_DESTROYED 256
void disti_ddp_keep_destroyed(void *handle);

/* "'a', 'b' and 3 more", name by name. Begins all zero. */
struct ddp_list {
    char text[256];
    size_t length;
    int count, shown;
};

void disti_ddp_list_add(struct ddp_list *list, const char *name);

/* The text, when all have been added. */
const char *disti_ddp_list_end(struct ddp_list *list);

#endif
