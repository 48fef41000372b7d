/* SPDX-License-Identifier: BSD-3-Clause */
/* A process group and its works; private to the core. */
#ifndef DISTI_CORE_GROUP_H
#define DISTI_CORE_GROUP_H

#include "core/drive.h"
#include "core/world.h"

#define GROUP_TIMEOUT_MS (5 * 60 * 1000)
#define GROUP_TEXT 1024

/*
 * Some ranks of a world, with their own connections and their own order of operations. `lock`
 * guards everything behind it, and the calls into the backend. After the first error `failed` holds
 * it, `cause` its text, and the backend has been aborted. The works keep the structure until the
 * last of them is freed, even if the group is gone; of a group that is gone they use what is from
 * `lock` on, and the rank.
 */
struct dist_group {
    struct disti_world *world;
    const struct disti_log *log;
    int rank, world_size, local_rank, local_ranks;
    int timeout_ms;
    const struct dist_place *places; /* by rank */
    struct dist_backend_config config;
    const struct dist_backend *backend;
    void *state; /* the backend's; NULL until it is opened */
    struct disti_wait_policy policy;
    uint32_t gathers; /* how many all-gathers through the store: their keys */

    pthread_mutex_t lock;
    struct disti_drive drive;
    uint64_t sequence, message_sequence;
    struct dist_work *works, *last_work; /* started and not ended, in order */
    struct dist_work *persistent;        /* by next_persistent */
    dist_status failed;
    int lost_rank; /* a rank that is gone, -1: none; works get a grace to end */
    int64_t lost_until_ns;
    char *cause;     /* GROUP_TEXT bytes */
    char *lost_text; /* GROUP_TEXT bytes */
};

/* group.c: making and ending one. */

/* A group of the whole world, not open yet. The caller gives it to disti_group_free. */
dist_status disti_group_new(struct disti_world *world, struct dist_group **group_p);

/* Opens the backend. Blocks until all ranks have done so, at most the timeout. */
dist_status disti_group_open(struct dist_group *group, const struct dist_backend *backend);

/* Closes the backend, and frees. NULL is accepted. */
void disti_group_free(struct dist_group *group);

/* Readable when there is news of lost ranks; -1: there is nothing to wait for. */
int disti_group_news_fd(const struct dist_group *group);

/* fault.c: what ends a group. Call with the lock held. */

/* The first error: keeps it, aborts the backend, ends every work, tells the other ranks. */
void disti_group_break(struct dist_group *group, dist_status status, const char *text);

/*
 * A call of the backend failed with dist_last_error as its cause. For a lost peer the store's news
 * are waited for briefly, since they name the rank that failed first. work may be NULL.
 */
void disti_group_fail(struct dist_group *group, const struct dist_work *work, dist_status status);

/*
 * Looks for news of lost ranks and for the deadline of `work`; breaks the group when a rank that is
 * gone did not leave enough behind for the works to end.
 */
void disti_group_watch(struct dist_group *group, const struct dist_work *work);

/* ERR_ABORTED with the first cause, for calls on a broken group. */
dist_status disti_group_refuse(const struct dist_group *group, const char *what);

#endif
