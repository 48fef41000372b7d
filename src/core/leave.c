/* SPDX-License-Identifier: BSD-3-Clause */
/* Leaving: the end of a group, together with its other ranks. */
#include "base/checked.h"
#include "base/clock.h"
#include "base/faults.h"
#include "base/hash.h"
#include "base/lock.h"
#include "core/group.h"
#include "endpoint/endpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long the others may take to go away once all have come to the end. */
#define LEAVE_LINGER_MS 2000

void disti_group_abandon(void *arg, const char *what)
{
    struct dist_group *group = arg;
    const struct disti_party party = disti_group_party(group);
    char name[GROUP_NAME], text[GROUP_TEXT];

    if (group->world_size == 1 || atomic_exchange(&group->abandoned, true))
        return;
    snprintf(text, sizeof(text), "%s %s", disti_group_name(group, name), what);
    disti_store_report(group->world->bootstrap.store, &party, DIST_ERR_PEER_LOST, text);
}

/* What this rank leaves: a group, or the world with all its groups. */
static void leave_tell(struct dist_group *group)
{
    const struct disti_party party = disti_group_party(group);

    if (group->world_size > 1 && !atomic_load(&group->abandoned) && !group->failed &&
        !group->told_leaving)
        disti_store_tell_leaving(group->world->bootstrap.store, &party, group->sequence);
    group->told_leaving = true;
}

/*
 * Another rank may wait in a call of the group that this rank called with other arguments, and ask
 * this rank: its question is in a message that is read here. Returns true if no work is pending.
 */
static bool leave_look(struct dist_group *group)
{
    enum disti_drive_state state;
    int moved = 0;
    bool idle;

    if (!disti_lock_try(&group->lock))
        return false;
    state = disti_drive_state(&group->drive);
    idle = !group->works;
    if (idle && !group->failed && group->state &&
        (state == DISTI_DRIVE_IDLE || state == DISTI_DRIVE_CLOSED))
        moved = group->backend->progress(group->state);
    if (moved < 0)
        disti_group_fail(group, NULL, (dist_status)moved);
    disti_lock_release(&group->lock);
    return idle;
}

/* Other ranks let this rank wait. They may wait for it, in this group or another that it leaves. */
static void leave_late(void *arg)
{
    struct dist_group *group = arg, *other = group->world->groups;

    if (!group->world->leaving) {
        leave_look(group);
        leave_tell(group);
    }
    for (; group->world->leaving && other; other = other->next) {
        if (leave_look(other) || other == group)
            leave_tell(other);
    }
}

/* All ranks have come: nobody's last messages are cut off, no goodbye looks like a death. */
static dist_status leave_together(struct dist_group *group, int64_t until)
{
    struct disti_party party = disti_group_party(group);
    struct disti_store *store = group->world->bootstrap.store;
    struct disti_summary own, *all;
    struct disti_notice notice;
    char key[64];
    dist_status status;

    if (group->failed || group->world_size == 1 || atomic_load(&group->abandoned))
        return DIST_OK;
    party.what = "for the others to leave the group";
    snprintf(key, sizeof(key), "dist/leave/%u", group->number);
    disti_compare_summarize(group, &own);
    all = calloc((size_t)group->world_size, sizeof(*all)); /* NULL: this rank compares nothing */
    status = disti_store_leave(store, &party, key, &own, all, sizeof(own), disti_left_ms(until),
                               leave_late, group);
    /* It is over here: a rank that comes later need not wait. */
    if (status == DIST_ERR_TIMEOUT && !disti_news_read(group, &notice))
        disti_store_report(store, &party, status, dist_last_error());
    if (group->failed) /* by what leave_look found */
        status = disti_fail(group->failed, "%s", group->cause);
    else if (status == DIST_OK && all && !disti_compare_same(all, group->world_size))
        status = disti_compare_explain(group, all, disti_left_ms(until));
    free(all);
    return status;
}

static dist_status leave_group(struct dist_group *group, int64_t until)
{
    dist_status status = disti_group_drain(group), left, lost;

    atomic_store(&group->over, true);
    atomic_store(&group->destroyed, true);
    left = leave_together(group, until);
    disti_abort_end(group);
    group->config.left = left == DIST_OK && !group->failed;
    lost = group->failed ? group->failed : left;
    if (lost == DIST_ERR_TIMEOUT ||
        disti_group_has_lost(group, lost)) /* a rank is gone or silent */
        disti_world_lost(group->world);
    disti_group_free(group);
    return status == DIST_OK ? left : status;
}

dist_status dist_destroy_process_group(dist_group *group)
{
    struct disti_world *world;
    dist_status status = group ? disti_group_check(group, "dist_destroy_process_group") : DIST_OK;
    dist_status others = DIST_OK, left;
    int64_t until;

    if (!group || status != DIST_OK)
        return status;
    status = disti_work_may_wait("dist_destroy_process_group");
    if (status != DIST_OK)
        return status;
    world = group->world;
    until = disti_deadline_ms(group->timeout_ms);
    disti_log_use(group->log);
    if (group->number) {
        status = leave_group(group, until);
        disti_log_use(NULL);
        return status;
    }
    disti_faults_at(DISTI_FAULT_CLOSE);
    world->leaving = true;
    /* In order of their numbers: so all ranks wait for each other in one order. */
    for (struct dist_group *other = world->groups, *next; other; other = next) {
        next = other->next;
        left = other->number ? leave_group(other, until) : DIST_OK;
        others = others == DIST_OK ? left : others;
    }
    status = leave_group(group, until);
    disti_log_use(NULL);
    disti_world_close(world, LEAVE_LINGER_MS);
    return others == DIST_OK ? status : others;
}

/* A group of those that are left. */

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
    else {
        char why[GROUP_TEXT];

        disti_text(why, sizeof(why), "%s", dist_last_error());
        disti_group_enter(made);
        disti_group_break(made, status, why);
        disti_group_exit(made);
        dist_destroy_process_group(made);
        disti_fail(status, "%s", why);
    }
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
        const int declined = shrink_list(group, ranks);

        /* The ranks that are left and call dist_shrink are told why this rank does not come. */
        for (int i = 0; i < declined; i++)
            ranks[i] = group->members[ranks[i]];
        status = disti_group_decline(group, ranks, declined, status);
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

/* Before a group is made: its ranks meet in the store, and agree on a number. */

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
        if (offers[i].choice != mine->choice) {
            char text[DISTI_WORLD_CHOICE];

            disti_world_choice(world, text);
            return disti_fail(
                DIST_ERR_MISMATCH,
                "new group: world rank %d has the settings \"%s\", but rank %d (world rank "
                "%d, host %s) has others, as some have changed since the ranks joined: give "
                "all ranks the same " DISTI_WORLD_CHOICES,
                world->rank, text, i, spec->members[i],
                world->peers[spec->members[i]].locality.host);
        }
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
    if (status != DIST_OK && !disti_group_is_declined(status)) {
        struct group_turn *given;

        /* The ranks did not meet: a next try, which some begin late, shall meet them. */
        pthread_mutex_lock(&parent->world->lock);
        given = agree_find_turn(parent, hash);
        if (given && given->taken == turn + 1)
            given->taken = turn;
        pthread_mutex_unlock(&parent->world->lock);
    }
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
    int first = 0;
    dist_status status, met;

    for (int i = 1; i < spec.size; i++) {
        if (spec.members[i] < spec.members[first])
            first = i;
    }
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
