/* SPDX-License-Identifier: BSD-3-Clause */
/* News from the store: one connection, several groups. Each gets what concerns it. */
#include "core/group/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool news_is_member(const struct dist_group *group, int world_rank)
{
    return dist_get_group_rank(group, world_rank) >= 0;
}

/* A failure of this group, or a rank of it that is gone. Without its launcher no job goes on. */
static bool news_concerns(const struct dist_group *group, const struct disti_notice *notice)
{
    if (notice->group != DISTI_NO_GROUP)
        return notice->group == (int32_t)group->number;
    return notice->rank < 0 || news_is_member(group, notice->rank);
}

static void news_give(struct dist_group *group, const struct disti_notice *notice)
{
    if (group->has_news || !news_concerns(group, notice))
        return;
    *group->news = *notice;
    group->has_news = true;
}

/* That makes it no failure: a call that the rank has made may still end. */
static void news_note_leaver(struct disti_world *world, const struct disti_notice *notice)
{
    struct dist_group *group = world->groups;

    while (group && (int32_t)group->number != notice->group)
        group = group->next;
    if (!group)
        return;
    if (!group->leaver)
        group->leaver = malloc(sizeof(*group->leaver));
    if (!group->leaver) /* its deadline ends what waits for that rank */
        return;
    *group->leaver = *notice;
    atomic_store(&group->is_left, true);
}

static void news_remember(struct disti_world *world, const struct disti_notice *notice)
{
    struct world_gone *gone = malloc(sizeof(*gone));

    if (!gone)
        return;
    gone->notice = *notice;
    gone->next = world->gone;
    world->gone = gone;
}

/* Reads all that there is, with the world's lock held. */
static void news_distribute(struct disti_world *world)
{
    struct disti_notice notice;

    while (world->bootstrap.store && disti_store_notice(world->bootstrap.store, &notice)) {
        if (notice.rank == world->rank)
            continue;
        if (notice.leaving) {
            disti_info("%s", notice.text);
            news_note_leaver(world, &notice);
            continue;
        }
        disti_warn("%s", notice.text);
        for (struct dist_group *group = world->groups; group; group = group->next)
            news_give(group, &notice);
        if (notice.group == DISTI_NO_GROUP)
            news_remember(world, &notice);
    }
}

/* The oldest that concerns it: who has gone since may have left because of that one. */
static void news_give_first(struct dist_group *group)
{
    const struct world_gone *gone = group->world->gone, *first = NULL;

    for (; gone; gone = gone->next) { /* newest first */
        if (news_concerns(group, &gone->notice))
            first = gone;
    }
    if (first)
        news_give(group, &first->notice);
}

void disti_news_subscribe(struct dist_group *group)
{
    struct disti_world *world = group->world;
    struct dist_group **entry = &world->groups;

    pthread_mutex_lock(&world->lock);
    while (*entry && (*entry)->number < group->number)
        entry = &(*entry)->next;
    group->next = *entry;
    *entry = group;
    news_give_first(group);
    pthread_mutex_unlock(&world->lock);
}

void disti_news_unsubscribe(struct dist_group *group)
{
    struct disti_world *world = group->world;
    struct dist_group **entry = &world->groups;

    pthread_mutex_lock(&world->lock);
    while (*entry && *entry != group)
        entry = &(*entry)->next;
    if (*entry)
        *entry = group->next;
    pthread_mutex_unlock(&world->lock);
}

bool disti_news_is_gone(struct disti_world *world, int world_rank)
{
    const struct world_gone *gone;

    if (world_rank == world->rank)
        return false;
    pthread_mutex_lock(&world->lock);
    news_distribute(world);
    gone = world->gone;
    while (gone && gone->notice.rank != world_rank)
        gone = gone->next;
    pthread_mutex_unlock(&world->lock);
    return gone != NULL;
}

/* The store knows ranks of the world: "rank 5 (host" is "rank 1 (world rank 5, host" in a group. */
static void news_hand_out(const struct dist_group *group, const struct disti_notice *news,
                          struct disti_notice *notice_p)
{
    char begins[32];
    const size_t length = (size_t)snprintf(begins, sizeof(begins), "rank %d (", news->rank);

    *notice_p = *news;
    if (group->number == 0 || news->rank < 0 || !news_is_member(group, news->rank) ||
        strncmp(news->text, begins, length) != 0)
        return;
    disti_text(notice_p->text, sizeof(notice_p->text), "rank %d (world rank %d, %s",
               dist_get_group_rank(group, news->rank), news->rank, news->text + length);
}

bool disti_news_leaver(struct dist_group *group, struct disti_notice *notice_p)
{
    if (!atomic_load_explicit(&group->is_left, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&group->world->lock);
    news_hand_out(group, group->leaver, notice_p);
    pthread_mutex_unlock(&group->world->lock);
    return true;
}

bool disti_news_read(struct dist_group *group, struct disti_notice *notice_p)
{
    struct disti_world *world = group->world;
    bool has_news;

    pthread_mutex_lock(&world->lock);
    if (!group->has_news)
        news_distribute(world);
    has_news = group->has_news;
    if (has_news)
        news_hand_out(group, group->news, notice_p);
    pthread_mutex_unlock(&world->lock);
    return has_news;
}
