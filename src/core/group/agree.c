/* SPDX-License-Identifier: BSD-3-Clause */
/* Before a group is made: its ranks meet in the store, and agree on a number. */
#include "base/checked.h"
#include "base/clock.h"
#include "base/hash.h"
#include "core/group/group.h"
#include "endpoint/endpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How often a list of ranks was taken to make a group of them. */
struct group_turn {
    struct group_turn *next;
    uint64_t hash;
    uint32_t taken;
};

/* What each rank lays before the others. Fixed size: it is exchanged as bytes. */
struct agree_offer {
    uint64_t choice;  /* of algorithms, now: variables may have changed since the ranks joined */
    uint32_t number;  /* of the first rank in the world; else 0 */
    char backend[52]; /* "": it cannot make the group */
};

struct group_turn *disti_turn_new(void)
{
    return calloc(1, sizeof(struct group_turn));
}

/* The spare one is replaced as soon as there is memory. */
static struct group_turn *agree_find_turn(struct dist_group *parent, uint64_t hash)
{
    struct group_turn *turn = parent->turns;

    while (turn && turn->hash != hash)
        turn = turn->next;
    if (turn || !parent->spare_turn)
        return turn;
    turn = parent->spare_turn;
    parent->spare_turn = disti_turn_new();
    turn->hash = hash;
    turn->next = parent->turns;
    parent->turns = turn;
    return turn;
}

/*
 * Which time this list is used: what the ranks meet under. Threads may make groups of one list at
 * once, if all ranks begin in the same order.
 */
static dist_status agree_take_turn(struct dist_group *parent, uint64_t hash, uint32_t *turn_p)
{
    struct group_turn *turn;

    pthread_mutex_lock(&parent->world->lock);
    if (!parent->spare_turn)
        parent->spare_turn = disti_turn_new();
    turn = agree_find_turn(parent, hash);
    if (turn)
        *turn_p = turn->taken++;
    pthread_mutex_unlock(&parent->world->lock);
    return turn ? DIST_OK : disti_fail(DIST_ERR_NO_MEMORY, "no memory for a process group");
}

/* The ranks did not meet: a next try, which some begin late, shall meet them. */
static void agree_give_back(struct dist_group *parent, uint64_t hash, uint32_t taken)
{
    struct group_turn *turn;

    pthread_mutex_lock(&parent->world->lock);
    turn = agree_find_turn(parent, hash);
    if (turn && turn->taken == taken + 1)
        turn->taken = taken;
    pthread_mutex_unlock(&parent->world->lock);
}

void disti_turns_free(struct dist_group *group)
{
    free(group->spare_turn);
    group->spare_turn = NULL;
    while (group->turns) {
        struct group_turn *turn = group->turns;

        group->turns = turn->next;
        free(turn);
    }
}

static int agree_first(const struct disti_group_spec *spec)
{
    int first = 0;

    for (int i = 1; i < spec->size; i++) {
        if (spec->members[i] < spec->members[first])
            first = i;
    }
    return first;
}

bool disti_group_number_clashes(struct disti_world *world, uint32_t number)
{
    const struct dist_group *group;

    pthread_mutex_lock(&world->lock);
    group = world->groups;
    while (group &&
           (group->number == number || disti_tag_group(group->number) != disti_tag_group(number)))
        group = group->next;
    pthread_mutex_unlock(&world->lock);
    return group;
}

/* Numbers that a rank takes from the store at once: it asks for the next few groups too. */
#define AGREE_NUMBERS 16

/* The next of those that this rank has. False: it has none. */
static bool agree_own_number(struct disti_world *world, int64_t *number_p)
{
    bool own;

    pthread_mutex_lock(&world->lock);
    own = world->numbers_left > 0;
    if (own) {
        *number_p = world->next_number++;
        world->numbers_left--;
    }
    pthread_mutex_unlock(&world->lock);
    return own;
}

/* More of them; what another thread has just fetched is lost. */
static dist_status agree_fetch_numbers(struct disti_world *world)
{
    int64_t first;
    dist_status status = disti_store_take_numbers(world->bootstrap.store, AGREE_NUMBERS, &first);

    if (status != DIST_OK)
        return status;
    if (first < 1 || first > INT32_MAX - AGREE_NUMBERS)
        return disti_fail(DIST_ERR_UNSUPPORTED, "rank %d: this job has made %lld groups already",
                          world->rank, (long long)first);
    pthread_mutex_lock(&world->lock);
    world->next_number = first;
    world->numbers_left = AGREE_NUMBERS;
    pthread_mutex_unlock(&world->lock);
    return DIST_OK;
}

/* A number that no other group of this world has, nor had. */
static dist_status agree_new_number(struct disti_world *world, uint32_t *number_p)
{
    dist_status status = DIST_OK;
    int64_t number = 0;

    if (!world->bootstrap.store) {
        pthread_mutex_lock(&world->lock);
        *number_p = ++world->last_number;
        pthread_mutex_unlock(&world->lock);
        return DIST_OK;
    }
    do {
        while (status == DIST_OK && !agree_own_number(world, &number))
            status = agree_fetch_numbers(world);
    } while (status == DIST_OK && disti_group_number_clashes(world, (uint32_t)number));
    *number_p = (uint32_t)number;
    return status;
}

/* Rank i of the group to be has other settings than this one has. */
static dist_status agree_choices_differ(const struct disti_world *world,
                                        const struct disti_group_spec *spec, int i)
{
    char text[DISTI_WORLD_CHOICE];

    disti_world_choice(world, text);
    return disti_fail(DIST_ERR_MISMATCH,
                      "new group: world rank %d has the settings \"%s\", but rank %d (world rank "
                      "%d, host %s) has others, as some have changed since the ranks joined: give "
                      "all ranks the same " DISTI_WORLD_CHOICES,
                      world->rank, text, i, spec->members[i],
                      world->peers[spec->members[i]].locality.host);
}

/* All see the same offers. Where they do not agree, each rank fails, and says how it sees it. */
static dist_status agree_compare(const struct disti_world *world,
                                 const struct disti_group_spec *spec,
                                 const struct agree_offer *mine, const struct agree_offer *offers)
{
    for (int i = 0; i < spec->size; i++) {
        if (!offers[i].backend[0])
            return disti_fail(DIST_ERR_PEER_LOST,
                              "new group: rank %d (world rank %d, host %s) cannot make it, as its "
                              "error says: call it again once that rank can",
                              i, spec->members[i], world->peers[spec->members[i]].locality.host);
    }
    for (int i = 1; i < spec->size; i++) {
        if (strncmp(offers[i].backend, offers[0].backend, sizeof(offers[0].backend)) != 0)
            return disti_fail(
                DIST_ERR_MISMATCH,
                "new group: rank %d (world rank %d, host %s) wants backend %.59s, but rank 0 "
                "(world rank %d, host %s) wants %.59s: name the same backend on all its ranks",
                i, spec->members[i], world->peers[spec->members[i]].locality.host,
                offers[i].backend, spec->members[0], world->peers[spec->members[0]].locality.host,
                offers[0].backend);
    }
    for (int i = 0; i < spec->size; i++) {
        if (offers[i].choice != mine->choice)
            return agree_choices_differ(world, spec, i);
    }
    return DIST_OK;
}

#define AGREE_KEY 96

/* The name under which the ranks of a list meet for the `turn`-th time. Returns key. */
static const char *agree_key(char key[AGREE_KEY], const struct dist_group *parent, int size,
                             uint64_t hash, uint32_t turn)
{
    snprintf(key, AGREE_KEY, "dist/group/%u/%d/%016llx/%u", parent->number, size,
             (unsigned long long)hash, turn);
    return key;
}

static uint64_t agree_hash(const int *members, int count)
{
    return disti_hash_bytes(DISTI_HASH_START, members, (size_t)count * sizeof(*members));
}

bool disti_group_is_declined(dist_status status)
{
    return status == DIST_ERR_INVALID_ARGUMENT || status == DIST_ERR_NO_BACKEND ||
           status == DIST_ERR_ABI || status == DIST_ERR_UNSUPPORTED || status == DIST_ERR_ABORTED;
}

dist_status disti_group_decline_status(dist_status status)
{
    return disti_group_is_declined(status) ? status : DIST_ERR_ABORTED;
}

/* A rank that declined has used its turn, and so has every other rank. */
dist_status disti_group_decline(struct dist_group *parent, const int *members, int count,
                                dist_status status)
{
    const struct disti_party party = {.group = DISTI_NO_GROUP, .ranks = members, .count = count};
    const uint64_t hash = agree_hash(members, count);
    struct disti_store *store = parent->world->bootstrap.store;
    char key[AGREE_KEY], why[GROUP_TEXT];
    uint32_t turn = 0;

    if (count == 1 || !store)
        return status;
    disti_text(why, sizeof(why), "%s", dist_last_error());
    if (agree_take_turn(parent, hash, &turn) == DIST_OK)
        disti_store_refuse(store, &party, agree_key(key, parent, count, hash, turn),
                           disti_group_decline_status(status), why);
    disti_fail_unlogged(why);
    return status;
}

static dist_status agree_exchange(struct dist_group *parent, const struct disti_group_spec *spec,
                                  uint64_t hash, const struct agree_offer *mine,
                                  struct agree_offer *offers)
{
    const struct disti_party party = {.group = DISTI_NO_GROUP,
                                      .ranks = spec->members,
                                      .count = spec->size,
                                      .what = "for the ranks of the new group"};
    uint32_t turn = 0;
    char key[AGREE_KEY];
    dist_status status;

    if (spec->size == 1) {
        if (offers)
            offers[0] = *mine;
        return DIST_OK;
    }
    status = agree_take_turn(parent, hash, &turn);
    if (status != DIST_OK)
        return status;
    status = disti_store_all_gather(parent->world->bootstrap.store, &party,
                                    agree_key(key, parent, spec->size, hash, turn), mine, offers,
                                    sizeof(*mine), disti_left_ms(spec->until_ns));
    if (status != DIST_OK && !disti_group_is_declined(status))
        agree_give_back(parent, hash, turn);
    return status;
}

/* What this rank offers; it cannot make the group if that fails. */
static dist_status agree_offer(struct disti_world *world, const struct disti_group_spec *spec,
                               const char *backend, bool numbers, struct agree_offer *mine)
{
    char text[DISTI_WORLD_CHOICE];
    dist_status status = DIST_OK;

    memset(mine, 0, sizeof(*mine));
    mine->choice = disti_world_choice(world, text);
    if (spec->no_memory)
        return disti_fail(DIST_ERR_NO_MEMORY, "rank %d has no memory for a group of %d ranks",
                          world->rank, spec->size);
    if (numbers)
        status = agree_new_number(world, &mine->number);
    if (status == DIST_OK)
        snprintf(mine->backend, sizeof(mine->backend), "%s", backend);
    return status;
}

dist_status disti_group_agree(struct dist_group *parent, const struct disti_group_spec *given,
                              const char *backend, uint32_t *number_p)
{
    struct disti_group_spec spec = *given;
    struct agree_offer *offers = disti_calloc(spec.size, sizeof(*offers)), mine;
    uint64_t hash = agree_hash(spec.members, spec.size);
    int first = agree_first(&spec);
    dist_status status, met;

    spec.no_memory = spec.no_memory || !offers;
    status = agree_offer(parent->world, &spec, backend, spec.members[first] == parent->world->rank,
                         &mine);
    /* Also to say that it cannot: else the others wait for their timeout. */
    met = agree_exchange(parent, &spec, hash, &mine, status == DIST_OK ? offers : NULL);
    if (status == DIST_OK)
        status = met;
    if (status == DIST_OK)
        status = agree_compare(parent->world, &spec, &mine, offers);
    if (status == DIST_OK)
        *number_p = offers[first].number;
    free(offers);
    return status;
}
