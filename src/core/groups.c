/* SPDX-License-Identifier: BSD-3-Clause */
/* Creating, splitting, shrinking and leaving groups, and how their ranks agree on these. */
#include "backends/registry.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/collective.h"
#include "base/faults.h"
#include "base/hash.h"
#include "base/lock.h"
#include "core/group.h"
#include "endpoint/endpoint.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Leaving a group together with its other ranks */

/* Time for which the store waits for the other ranks to disconnect after all have left. */
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

/* Reports to the store, once, that this rank is leaving the group. */
static void leave_report(struct dist_group *group)
{
    const struct disti_party party = disti_group_party(group);

    if (group->world_size > 1 && !atomic_load(&group->abandoned) && !group->failed &&
        !group->leave_reported)
        disti_store_tell_leaving(group->world->bootstrap.store, &party, group->sequence);
    group->leave_reported = true;
}

/*
 * Makes progress once if no thread does. Another rank may be blocked in a mismatched call and ask
 * which call this rank made; the question arrives as a message. Returns true if no request is
 * pending.
 */
static bool leave_poll(struct dist_group *group)
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

/*
 * Called while this rank waits for other ranks to leave. They may be blocked in a call that this
 * rank never makes, in this group or, if the world is destroyed, in another: answers their
 * questions and reports that this rank is leaving.
 */
static void leave_late(void *arg)
{
    struct dist_group *group = arg, *other = group->world->groups;

    if (!group->world->leaving) {
        leave_poll(group);
        leave_report(group);
    }
    for (; group->world->leaving && other; other = other->next) {
        if (leave_poll(other) || other == group)
            leave_report(other);
    }
}

static void compare_summarize(struct dist_group *group, struct disti_summary *summary_p);

static bool compare_same(const struct disti_summary *all, int ranks);

static dist_status compare_explain(struct dist_group *group, const struct disti_summary *sums,
                                   int timeout_ms);

/* Waits until all ranks leave the group, so that no pending messages are lost and no disconnect
 * looks like a crash. Also compares the ranks' calls. */
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
    party.what = "for the other ranks to leave the group";
    snprintf(key, sizeof(key), "dist/leave/%u", group->number);
    compare_summarize(group, &own);
    /* Without memory this rank does not compare calls. */
    all = calloc((size_t)group->world_size, sizeof(*all));
    status = disti_store_leave(store, &party, key, &own, all, sizeof(own), disti_left_ms(until),
                               leave_late, group);
    /* This rank has given up: a rank that leaves later must not wait for it. */
    if (status == DIST_ERR_TIMEOUT && !disti_news_read(group, &notice))
        disti_store_report(store, &party, status, dist_last_error());
    if (group->failed) /* leave_poll found an error */
        status = disti_fail(group->failed, "%s", group->cause);
    else if (status == DIST_OK && all && !compare_same(all, group->world_size))
        status = compare_explain(group, all, disti_left_ms(until));
    free(all);
    return status;
}

static dist_status leave_group(struct dist_group *group, int64_t until)
{
    dist_status status = disti_group_drain(group), left, lost;

    atomic_store(&group->over, true);
    atomic_store(&group->destroyed, true);
    left = leave_together(group, until);
    disti_abort_disable(group);
    group->config.left = left == DIST_OK && !group->failed;
    lost = group->failed ? group->failed : left;
    /* A rank is silent or lost. */
    if (lost == DIST_ERR_TIMEOUT || disti_group_has_lost(group, lost))
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
    /* In the order of their numbers, so that all ranks wait for each other in the same order. */
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

/* Shrinking: a group of the surviving ranks */

/*
 * The store notifies every rank of each loss, in the same order, so the surviving ranks arrive at
 * the same list. A rank that tries an outdated list cannot complete the exchange, since the list
 * contains a lost rank; its attempt fails with the notice of that rank.
 *
 *     A: loses C ........... [A B] waits for B ......... both created it: done
 *     B: [A B C] fails: C .. [A B] joins A
 *
 * If a rank dies during creation, the group may exist on some ranks only. So all ranks confirm in
 * the store that they have created it; the confirmation succeeds on all ranks or on none.
 */

/* Delay between attempts if no further rank is known to be lost: a connection broke, or a notice
 * is late. */
#define SHRINK_AGAIN_MS 10

/* Writes the group's ranks that are not known to be lost. Returns their number. */
static int shrink_list(struct dist_group *group, int *ranks)
{
    int left = 0;

    for (int r = 0; r < group->world_size; r++) {
        if (!disti_news_has_exited(group->world, group->members[r]))
            ranks[left++] = r;
    }
    return left;
}

/* Waits until all ranks have created the new group. The result is the same on all of them. */
static dist_status shrink_confirm(struct dist_group *group, int timeout_ms)
{
    struct disti_party party = disti_group_party(group);
    char key[64];

    if (group->world_size == 1)
        return DIST_OK;
    party.what = "for the other surviving ranks";
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
 * Fails if the store is lost. Without it the ranks have no common order of losses: each of two
 * parts of the job could take the other for dead and continue. The status is not ERR_PEER_LOST,
 * after which programs try again.
 */
static dist_status shrink_check_store(const struct dist_group *group)
{
    struct disti_store *store = group->world->bootstrap.store;
    char why[GROUP_TEXT];

    if (!store || !disti_store_is_lost(store))
        return DIST_OK;
    if (disti_store_lost_why(store, why, sizeof(why)))
        return disti_fail(DIST_ERR_RENDEZVOUS,
                          "rank %d: dist_shrink cannot determine the surviving ranks: %s. To "
                          "survive the loss of rank 0 too, run the store in a launcher: start "
                          "the ranks with distrun --on-failure continue (under mpirun or srun: "
                          "one distrun per node)",
                          group->world->rank, why);
    return disti_fail(DIST_ERR_RENDEZVOUS,
                      "rank %d: dist_shrink cannot determine the surviving ranks: %s. No rank can "
                      "continue: restart the job",
                      group->world->rank, why);
}

static dist_status groups_check(const struct dist_group *parent, const char *what,
                                const struct dist_group_options *given, dist_group **group_p,
                                struct dist_group_options *options);

static dist_status group_decline(struct dist_group *parent, const int *members, int count,
                                 dist_status status);

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
    status = groups_check(group, "dist_shrink", given, group_p, &options);
    if (status != DIST_OK) {
        const int declined = shrink_list(group, ranks);

        /* Tell the other surviving ranks, which call dist_shrink, why this rank fails. */
        for (int i = 0; i < declined; i++)
            ranks[i] = group->members[ranks[i]];
        status = group_decline(group, ranks, declined, status);
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

/* Agreement: the ranks of a new group agree on its number through the store */

/* Counts how often groups were created from one list of ranks. */
struct group_turn {
    struct group_turn *next;
    uint64_t hash;
    uint32_t taken;
};

/* The data that each rank of a new group sends to the other ranks. Fixed size: exchanged as bytes.
 */
struct agree_offer {
    uint64_t settings; /* hash of the settings, which may have changed since the ranks joined */
    uint32_t number;   /* the group's number, from its lowest world rank; otherwise 0 */
    char backend[52];  /* "": the rank cannot create the group */
};

struct group_turn *disti_turn_new(void)
{
    return calloc(1, sizeof(struct group_turn));
}

/* Returns the entry for `hash`, if necessary a new one from the preallocated entry, or NULL.
 * agree_take_turn replaces that entry as soon as there is memory. */
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
 * Sets *turn_p to how often the list was used before, which is part of the key of the exchange.
 * Several threads may create groups of one list concurrently if they begin in the same order on all
 * ranks.
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

/* True if tags of group `number` would be those of another open group, since tags contain only
 * the low bits of the number. */
static bool group_number_clashes(struct disti_world *world, uint32_t number)
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

/* Count of numbers that a rank reserves in the store at a time, for its next groups. */
#define AGREE_NUMBERS 16

/* Takes the next reserved number. Returns false if none is left. */
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

/* Reserves more numbers. Numbers that another thread has reserved at the same time are
 * discarded. */
static dist_status agree_fetch_numbers(struct disti_world *world)
{
    int64_t first;
    dist_status status = disti_store_take_numbers(world->bootstrap.store, AGREE_NUMBERS, &first);

    if (status != DIST_OK)
        return status;
    if (first < 1 || first > INT32_MAX - AGREE_NUMBERS)
        return disti_fail(DIST_ERR_UNSUPPORTED,
                          "rank %d: this job has created %lld groups, the maximum: restart it",
                          world->rank, (long long)first);
    pthread_mutex_lock(&world->lock);
    world->next_number = first;
    world->numbers_left = AGREE_NUMBERS;
    pthread_mutex_unlock(&world->lock);
    return DIST_OK;
}

/* Returns a number that no other group of this world has or had. */
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
    } while (status == DIST_OK && group_number_clashes(world, (uint32_t)number));
    *number_p = (uint32_t)number;
    return status;
}

/* Compares the offers, which are the same on all ranks. If they differ, each rank fails with a
 * message of its own. */
static dist_status agree_compare(const struct disti_world *world,
                                 const struct disti_group_spec *spec,
                                 const struct agree_offer *mine, const struct agree_offer *offers)
{
    for (int i = 0; i < spec->size; i++) {
        if (!offers[i].backend[0])
            return disti_fail(
                DIST_ERR_PEER_LOST,
                "new group: rank %d (world rank %d, host %s) cannot create the group; "
                "its own error has the cause: fix that and create the group again",
                i, spec->members[i], world->peers[spec->members[i]].locality.host);
    }
    for (int i = 1; i < spec->size; i++) {
        if (strncmp(offers[i].backend, offers[0].backend, sizeof(offers[0].backend)) != 0)
            return disti_fail(
                DIST_ERR_MISMATCH,
                "new group: rank %d (world rank %d, host %s) requests backend %.59s, but rank "
                "0 (world rank %d, host %s) requests %.59s: select the same backend on all ranks",
                i, spec->members[i], world->peers[spec->members[i]].locality.host,
                offers[i].backend, spec->members[0], world->peers[spec->members[0]].locality.host,
                offers[0].backend);
    }
    for (int i = 0; i < spec->size; i++) {
        if (offers[i].settings != mine->settings) {
            char text[DISTI_WORLD_SETTINGS_SIZE];

            disti_world_settings(world, text);
            return disti_fail(
                DIST_ERR_MISMATCH,
                "new group: world rank %d has the settings \"%s\", but rank %d (world rank "
                "%d, host %s) has different ones, since variables have changed after the "
                "ranks joined: set the same values on all ranks for " DISTI_WORLD_SETTINGS,
                world->rank, text, i, spec->members[i],
                world->peers[spec->members[i]].locality.host);
        }
    }
    return DIST_OK;
}

#define AGREE_KEY 96

/* Writes the store key of the `turn`-th exchange of the list. Returns key. */
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

/* True if creation failed with this status on all ranks, since a rank declined or the parent was
 * aborted. */
static bool group_is_declined(dist_status status)
{
    return status == DIST_ERR_INVALID_ARGUMENT || status == DIST_ERR_NO_BACKEND ||
           status == DIST_ERR_ABI || status == DIST_ERR_UNSUPPORTED || status == DIST_ERR_ABORTED;
}

/* Returns the status for the other ranks: `status` if it is about arguments, otherwise
 * ERR_ABORTED. */
static dist_status group_decline_status(dist_status status)
{
    return group_is_declined(status) ? status : DIST_ERR_ABORTED;
}

/*
 * Called instead of group_agree by a rank whose arguments are invalid (dist_last_error has the
 * cause): fails the other ranks' calls with that cause. `members` are world ranks. Uses up a turn
 * of the list, as on every other rank. Does not block. Returns `status` and preserves the last
 * error.
 */
static dist_status group_decline(struct dist_group *parent, const int *members, int count,
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
                           group_decline_status(status), why);
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
    if (status != DIST_OK && !group_is_declined(status)) {
        struct group_turn *given;

        /* The exchange failed: undo the turn, so that a retry uses the same key as late ranks. */
        pthread_mutex_lock(&parent->world->lock);
        given = agree_find_turn(parent, hash);
        if (given && given->taken == turn + 1)
            given->taken = turn;
        pthread_mutex_unlock(&parent->world->lock);
    }
    return status;
}

/* Fills in this rank's offer. On failure the offer says that the rank cannot create the group. */
static dist_status agree_offer(struct disti_world *world, const struct disti_group_spec *spec,
                               const char *backend, bool numbers, struct agree_offer *mine)
{
    char text[DISTI_WORLD_SETTINGS_SIZE];
    dist_status status = DIST_OK;

    memset(mine, 0, sizeof(*mine));
    mine->settings = disti_world_settings(world, text);
    if (spec->no_memory)
        return disti_fail(DIST_ERR_NO_MEMORY, "rank %d has no memory for a group of %d ranks",
                          world->rank, spec->size);
    if (numbers)
        status = agree_new_number(world, &mine->number);
    if (status == DIST_OK)
        snprintf(mine->backend, sizeof(mine->backend), "%s", backend);
    return status;
}

/* The ranks of a new group agree on its number and verify that they request the same backend.
 * Blocks until all have joined, at most until until_ns; ERR_TIMEOUT names the missing ranks. */
static dist_status group_agree(struct dist_group *parent, const struct disti_group_spec *given,
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
    /* Takes part even if this rank cannot create the group: otherwise the other ranks would wait
     * for their timeout. */
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

/* New groups from a list of ranks, by color, or of all ranks */

/* The data that each rank sends to the other ranks in dist_split_group. */
struct split_choice {
    int32_t color, key;
};
#define SPLIT_NO_MEMORY INT32_MIN /* as color: the rank has no memory for the call */

/* A rank with this rank's color. */
struct split_member {
    int32_t key;
    int rank; /* rank in the parent */
};

static dist_status groups_bad(const struct dist_group *parent, const char *what, const char *format,
                              ...) __attribute__((format(printf, 3, 4)));
static dist_status groups_bad(const struct dist_group *parent, const char *what, const char *format,
                              ...)
{
    char name[GROUP_NAME], text[256];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s, %s: %s", disti_group_name(parent, name), what,
                      text);
}

/* Checks the parent. A failed group may be a parent, so that the surviving ranks can continue;
 * an aborted group may not. */
static dist_status groups_check_parent(struct dist_group *parent, const char *what)
{
    dist_status status = disti_group_check(parent, what);

    if (status != DIST_OK)
        return status;
    disti_group_enter(parent);
    disti_group_check_abort(parent);
    if (parent->aborted)
        status = disti_group_refuse(parent, what);
    disti_group_exit(parent);
    return status;
}

/* From here until groups_end, this thread stops waiting if the parent is aborted. */
static void groups_begin(const struct dist_group *parent)
{
    disti_log_use(parent->log);
    disti_store_end_on_abort((int32_t)parent->number);
}

static void groups_end(void)
{
    disti_store_end_on_abort(DISTI_NO_GROUP);
    disti_log_use(NULL);
}

/* True if the library chooses the backend. */
static bool groups_is_auto(const char *backend)
{
    return !backend || !*backend || strcmp(backend, "auto") == 0;
}

/* Checks the arguments that all calls for creating groups have in common. `options` becomes a
 * copy of `given` with every default filled in. `what` is the call's name for the message. */
static dist_status groups_check(const struct dist_group *parent, const char *what,
                                const struct dist_group_options *given, dist_group **group_p,
                                struct dist_group_options *options)
{
    static const struct dist_group_options fresh = DIST_GROUP_OPTIONS_INIT;
    const struct dist_backend *backend;
    dist_status status = disti_work_may_wait(what);

    if (status != DIST_OK)
        return status;
    if (!group_p)
        return groups_bad(parent, what, "group_p is NULL");
    *options = fresh;
    if (given &&
        (given->size <= offsetof(struct dist_group_options, backend) || given->size > 65536))
        return groups_bad(
            parent, what,
            "options->size is %zu: initialise the options with DIST_GROUP_OPTIONS_INIT",
            given->size);
    if (given)
        memcpy(options, given, given->size < sizeof(*options) ? given->size : sizeof(*options));
    if (options->timeout_ms < 0)
        return groups_bad(parent, what,
                          "timeout_ms is %d: pass milliseconds, or 0 for the parent's timeout",
                          options->timeout_ms);
    if (options->timeout_ms == 0)
        options->timeout_ms = parent->timeout_ms;
    if (!options->stream)
        options->stream = parent->stream;
    status = disti_stream_check(options->stream);
    if (status == DIST_OK && !groups_is_auto(options->backend))
        status = disti_backend_find(options->backend, &backend);
    return status;
}

/* Returns the name of the backend: `asked`, or by default the parent's backend. "auto" selects
 * gloo. For a single rank, both the default and "auto" are self. */
static const char *groups_backend_name(const struct dist_group *parent, const char *asked, int size)
{
    if (groups_is_auto(asked) && size == 1)
        return "self";
    if (!asked || !*asked)
        return parent->backend->name;
    return groups_is_auto(asked) ? "gloo" : asked;
}

static dist_status groups_try_open(struct disti_world *world, const struct disti_group_spec *spec,
                                   const char *backend_name, struct dist_group **group_p)
{
    const struct dist_backend *backend;
    struct dist_group *group;
    dist_status status = disti_group_new(world, spec, &group);

    if (status != DIST_OK)
        return status;
    if (group_number_clashes(world, spec->number))
        status = disti_fail(DIST_ERR_UNSUPPORTED,
                            "rank %d has an old group whose message tags are the same as those of "
                            "new group %u: destroy unused groups, or create the group again",
                            world->rank, spec->number);
    if (status == DIST_OK)
        status = disti_backend_find(backend_name, &backend);
    if (status == DIST_OK)
        status = disti_group_open(group, backend);
    if (status != DIST_OK) {
        disti_group_free(group);
        return status;
    }
    disti_group_publish(group);
    *group_p = group;
    return DIST_OK;
}

/* Creates a group of the parent's `ranks`, which are converted in place to world ranks. */
static dist_status groups_make(struct dist_group *parent, int *ranks, int count, bool no_memory,
                               const struct dist_group_options *options, int64_t until,
                               dist_group **group_p)
{
    const char *backend = groups_backend_name(parent, options->backend, count);
    struct disti_group_spec spec = {.members = ranks,
                                    .size = count,
                                    .timeout_ms = options->timeout_ms,
                                    .stream = options->stream,
                                    .meanwhile = options->meanwhile,
                                    .meanwhile_arg = options->meanwhile_arg,
                                    .until_ns = until,
                                    .no_memory = no_memory};
    dist_status status;

    for (int i = 0; i < count; i++)
        ranks[i] = parent->members[ranks[i]];
    status = group_agree(parent, &spec, backend, &spec.number);
    if (status == DIST_OK) {
        const struct disti_party party = {
            .group = (int32_t)spec.number, .ranks = spec.members, .count = spec.size};

        status = groups_try_open(parent->world, &spec, backend, group_p);
        if (status != DIST_OK && parent->world->bootstrap.store)
            disti_store_report(parent->world->bootstrap.store, &party, status, dist_last_error());
    }
    if (status == DIST_OK)
        disti_info("rank %d is rank %d of %d in group %u: backend %s", parent->world->rank,
                   (*group_p)->rank, count, spec.number, (*group_p)->backend->name);
    return status;
}

/* Checks that each entry is a rank of the parent and occurs once. Sets *mine_p to whether this
 * rank is in the list. */
static dist_status groups_check_list(const struct dist_group *parent, const int *ranks, int count,
                                     int *seen, bool *mine_p)
{
    static const char what[] = "dist_new_group";
    dist_status status = DIST_OK;

    for (int i = 0; status == DIST_OK && i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= parent->world_size)
            status = groups_bad(parent, what, "ranks[%d] is %d: the parent has the ranks 0 to %d",
                                i, ranks[i], parent->world_size - 1);
        else if (seen[ranks[i]])
            status =
                groups_bad(parent, what, "ranks[%d] and ranks[%d] are both %d: list each rank once",
                           seen[ranks[i]] - 1, i, ranks[i]);
        else
            seen[ranks[i]] = i + 1; /* 0: not in the list */
    }
    *mine_p = seen[parent->rank] != 0;
    return status;
}

/* Creates a group of the first `count` ranks of the lists; the timeout starts here. */
static dist_status groups_make_now(struct dist_group *parent, const struct disti_group_lists *lists,
                                   int count, const struct dist_group_options *options,
                                   dist_group **group_p)
{
    dist_status status;

    groups_begin(parent);
    status = groups_make(parent, lists->ranks, count, lists->is_reserve, options,
                         disti_deadline_ms(options->timeout_ms), group_p);
    groups_end();
    return status;
}

dist_status dist_new_group(dist_group *parent, const int *ranks, int count,
                           const struct dist_group_options *given, dist_group **group_p)
{
    static const char what[] = "dist_new_group";
    struct dist_group_options options;
    struct disti_group_lists lists;
    bool mine = false;
    dist_status status = groups_check_parent(parent, what);

    if (status != DIST_OK)
        return status;
    if (!ranks)
        return groups_bad(parent, what, "ranks is NULL");
    if (count < 1)
        return groups_bad(parent, what, "count is %d: pass 1 to %d ranks of the parent", count,
                          parent->world_size);
    status = disti_group_lists_alloc(parent, &lists);
    if (status != DIST_OK)
        return status;
    status = groups_check_list(parent, ranks, count, lists.seen, &mine);
    if (status != DIST_OK)
        goto out;
    memcpy(lists.ranks, ranks, (size_t)count * sizeof(*ranks));
    status = groups_check(parent, what, given, group_p, &options);
    if (status != DIST_OK && mine) {
        for (int i = 0; i < count; i++)
            lists.ranks[i] = parent->members[lists.ranks[i]];
        status = group_decline(parent, lists.ranks, count, status);
    }
    if (status == DIST_OK && mine)
        status = groups_make_now(parent, &lists, count, &options, group_p);
    else if (status == DIST_OK)
        *group_p = NULL;
out:
    disti_group_lists_free(parent, &lists);
    return status;
}

dist_status dist_dup_group(dist_group *parent, const struct dist_group_options *given,
                           dist_group **group_p)
{
    static const char what[] = "dist_dup_group";
    struct dist_group_options options;
    struct disti_group_lists lists;
    dist_status status = groups_check_parent(parent, what);

    if (status != DIST_OK)
        return status;
    status = groups_check(parent, what, given, group_p, &options);
    if (status != DIST_OK)
        return group_decline(parent, parent->members, parent->world_size, status);
    status = disti_group_lists_alloc(parent, &lists);
    if (status != DIST_OK)
        return status;
    for (int r = 0; r < parent->world_size; r++)
        lists.ranks[r] = r;
    status = groups_make_now(parent, &lists, parent->world_size, &options, group_p);
    disti_group_lists_free(parent, &lists);
    return status;
}

dist_status dist_decline_dup_group(dist_group *parent, dist_status status)
{
    const dist_status checked = disti_group_check(parent, "dist_decline_dup_group");

    if (checked != DIST_OK)
        return checked;
    if (status >= DIST_OK)
        return groups_bad(parent, "dist_decline_dup_group", "status is %d: pass a DIST_ERR_ value",
                          (int)status);
    return group_decline(parent, parent->members, parent->world_size, status);
}

/* Orders by key, then by rank. */
static int split_order(const void *a, const void *b)
{
    const struct split_member *x = a, *y = b;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

#define SPLIT_KEY 64

/* Writes the store key of the next exchange of choices. Returns its number. */
static uint32_t split_take_turn(struct dist_group *parent, char key[SPLIT_KEY])
{
    uint32_t turn;

    pthread_mutex_lock(&parent->world->lock);
    turn = parent->splits++;
    pthread_mutex_unlock(&parent->world->lock);
    snprintf(key, SPLIT_KEY, "dist/split/%u/%u", parent->number, turn);
    return turn;
}

/* Like group_decline, for dist_split_group. */
static dist_status split_decline(struct dist_group *parent, dist_status status)
{
    struct disti_party party = disti_group_party(parent);
    char key[SPLIT_KEY];

    if (parent->world_size == 1)
        return status;
    party.group = DISTI_NO_GROUP;
    split_take_turn(parent, key);
    disti_store_refuse(parent->world->bootstrap.store, &party, key, group_decline_status(status),
                       dist_last_error());
    return status;
}

/* Exchanges every rank's choice through the store, so it works on a failed parent too. */
static dist_status split_exchange(struct dist_group *parent, const struct split_choice *mine,
                                  int64_t until, struct split_choice *all)
{
    struct disti_party party = disti_group_party(parent);
    uint32_t turn;
    char key[SPLIT_KEY];
    dist_status status;

    if (parent->world_size == 1) {
        if (all)
            all[0] = *mine;
        return DIST_OK;
    }
    party.group = DISTI_NO_GROUP;
    party.what = "for the group's ranks to split it";
    turn = split_take_turn(parent, key);
    status = disti_store_all_gather(parent->world->bootstrap.store, &party, key, mine, all,
                                    sizeof(*mine), disti_left_ms(until));
    if (status == DIST_OK || group_is_declined(status))
        return status;
    pthread_mutex_lock(&parent->world->lock);
    if (parent->splits == turn + 1) /* the retry must use the same key as late ranks */
        parent->splits = turn;
    pthread_mutex_unlock(&parent->world->lock);
    return status;
}

static dist_status split_check(const struct dist_group *parent, const struct split_choice *all)
{
    for (int r = 0; r < parent->world_size; r++) {
        if (all[r].color == SPLIT_NO_MEMORY)
            return disti_fail(
                DIST_ERR_PEER_LOST,
                "dist_split_group: rank %d (host %s) has no memory for the call: free "
                "memory there and call it again",
                r, parent->world->peers[parent->members[r]].locality.host);
    }
    return DIST_OK;
}

static dist_status split_make(struct dist_group *parent, const struct split_choice *mine,
                              const struct dist_group_options *options, dist_group **group_p)
{
    static const struct split_choice cannot = {.color = SPLIT_NO_MEMORY};
    int64_t until = disti_deadline_ms(options->timeout_ms);
    size_t count = (size_t)parent->world_size;
    struct split_choice *all = calloc(count, sizeof(*all));
    struct split_member *members = calloc(count, sizeof(*members));
    int *ranks = calloc(count, sizeof(*ranks)), size;
    dist_status status = DIST_ERR_NO_MEMORY;

    if (!all || !members || !ranks) {
        split_exchange(parent, &cannot, until, NULL);
        disti_fail(status, "dist_split_group: rank %d has no memory for lists of %zu ranks",
                   parent->rank, count);
        goto out;
    }
    status = split_exchange(parent, mine, until, all);
    if (status == DIST_OK)
        status = split_check(parent, all);
    if (status != DIST_OK)
        goto out;
    size = 0; /* the parent's ranks of this color, in the new order */
    for (int r = 0; r < parent->world_size; r++) {
        if (all[r].color == mine->color)
            members[size++] = (struct split_member){.key = all[r].key, .rank = r};
    }
    qsort(members, (size_t)size, sizeof(*members), split_order);
    for (int i = 0; i < size; i++)
        ranks[i] = members[i].rank;
    if (mine->color == DIST_NO_COLOR)
        *group_p = NULL;
    else
        status = groups_make(parent, ranks, size, false, options, until, group_p);
out:
    free(all);
    free(members);
    free(ranks);
    return status;
}

dist_status dist_split_group(dist_group *parent, int color, int key,
                             const struct dist_group_options *given, dist_group **group_p)
{
    static const char what[] = "dist_split_group";
    const struct split_choice mine = {.color = color, .key = key};
    struct dist_group_options options;
    dist_status status = groups_check_parent(parent, what);

    if (status != DIST_OK)
        return status;
    status = groups_check(parent, what, given, group_p, &options);
    if (status == DIST_OK && color < 0 && color != DIST_NO_COLOR)
        status = groups_bad(parent, what, "color is %d: pass 0 or more, or DIST_NO_COLOR", color);
    if (status != DIST_OK)
        return split_decline(parent, status);
    groups_begin(parent);
    status = split_make(parent, &mine, &options, group_p);
    groups_end();
    return status;
}

/* Comparison of the ranks' calls when they leave a group */

/*
 * A call in which no rank waits for another succeeds even if the ranks made different calls, for
 * instance broadcasts from two roots. The next call that waits reports the mismatch. If there is no
 * such call, the ranks detect it here:
 *
 *   leave      all ranks exchange a summary: a hash of their last calls
 *   details    only if the summaries differ: all ranks exchange their last calls
 */
#define COMPARE_CALLS 1024
#define COMPARE_DETAILS 64

struct compare_call {
    uint64_t what, count, sequence;
};

struct compare_details {
    struct compare_call calls[COMPARE_DETAILS]; /* at index sequence % COMPARE_DETAILS */
};

/* Copies the part of a recorded call that must be equal on all ranks. Returns false if the call
 * is not recorded. */
static bool compare_recall(struct dist_group *group, uint64_t sequence, struct compare_call *call_p)
{
    const struct disti_flight_entry *entry = disti_flight_entry(&group->flight.calls, sequence);
    uint64_t what = atomic_load_explicit(&entry->what, memory_order_relaxed);
    const dist_collective collective = (dist_collective)(what >> 32 & 0xff);

    if (atomic_load_explicit(&entry->sequence, memory_order_relaxed) != sequence ||
        what >> 56 == DISTI_FLIGHT_NONE)
        return false;
    what &= UINT64_MAX >> 8;
    if (!disti_algorithm_reduces(collective))
        what &= ~(UINT64_C(0xff) << 48);
    if (collective == DIST_COLL_BARRIER)
        what &= ~(UINT64_C(0xff) << 40);
    if (!disti_collective_rooted(collective))
        what &= ~UINT64_C(0xffffffff);
    call_p->what = what;
    call_p->count = disti_collective_uneven(collective)
                        ? 0
                        : atomic_load_explicit(&entry->count, memory_order_relaxed);
    call_p->sequence = sequence;
    return true;
}

/* Returns the capacity of the call record; 0 with DIST_FLIGHT=0. */
static uint64_t compare_kept(const struct dist_group *group)
{
    const struct disti_flight_ring *calls = &group->flight.calls;

    return atomic_load(&calls->entries) == &group->flight.none ? 0 : calls->mask + 1;
}

static void compare_summarize(struct dist_group *group, struct disti_summary *summary_p)
{
    const uint64_t kept = compare_kept(group);
    const uint64_t window = kept < COMPARE_CALLS ? kept : COMPARE_CALLS;
    uint64_t hash = DISTI_HASH_START;
    struct compare_call call;

    for (uint64_t s = group->sequence < window ? 0 : group->sequence - window; s < group->sequence;
         s++) {
        if (compare_recall(group, s, &call))
            hash = disti_hash_call(disti_hash_call(hash, call.what), call.count);
    }
    *summary_p = (struct disti_summary){.calls = group->sequence, .kept = kept, .hash = hash};
}

static bool compare_same(const struct disti_summary *all, int ranks)
{
    bool same = true;

    for (int r = 0; r < ranks; r++)
        same = same && all[r].calls == all[0].calls &&
               (all[r].hash == all[0].hash || all[r].kept != all[0].kept);
    return same;
}

/* ---- details ---- */

static const struct compare_call *compare_find(const struct compare_details *details,
                                               uint64_t sequence)
{
    const struct compare_call *call = &details->calls[sequence % COMPARE_DETAILS];

    return call->sequence == sequence ? call : NULL;
}

/* Finds the first call that differs between rank 0 and another rank. Returns false if none is
 * recorded. */
static bool compare_first(const struct compare_details *all, int ranks, uint64_t from, uint64_t to,
                          uint64_t *sequence_p, int *rank_p)
{
    for (uint64_t s = from; s < to; s++) {
        const struct compare_call *first = compare_find(&all[0], s);

        for (int r = 1; r < ranks; r++) {
            const struct compare_call *other = compare_find(&all[r], s);

            if (!first && !other)
                continue;
            *sequence_p = s;
            *rank_p = r;
            if (!first || !other || first->what != other->what || first->count != other->count)
                return true;
        }
    }
    return false;
}

/* Writes "called broadcast(count 5, float32, root 1)". */
static void compare_name(const struct compare_call *call, char *text, size_t size)
{
    const dist_collective collective = call ? (dist_collective)(call->what >> 32 & 0xff) : 0;
    size_t used;

    if (!call) {
        disti_text(text, size, "called nothing");
        return;
    }
    used = disti_text(text, size, "called %s", dist_collective_string(collective));
    if (collective == DIST_COLL_BARRIER)
        return;
    used += disti_text(text + used, size - used, "(");
    if (!disti_collective_uneven(collective))
        used +=
            disti_text(text + used, size - used, "count %llu, ", (unsigned long long)call->count);
    used += disti_text(text + used, size - used, "%s",
                       dist_dtype_string((dist_dtype)(call->what >> 40 & 0xff)));
    if (disti_algorithm_reduces(collective))
        used += disti_text(text + used, size - used, ", %s",
                           dist_op_string((dist_op)(call->what >> 48 & 0xff)));
    if (disti_collective_rooted(collective))
        used += disti_text(text + used, size - used, ", root %d", (int)(uint32_t)call->what);
    disti_text(text + used, size - used, ")");
}

/* Reports the mismatch. All ranks produce the same text from the same data. */
static dist_status compare_report(const struct dist_group *group, const struct disti_summary *sums,
                                  const struct compare_details *all)
{
    char name[GROUP_NAME], first[128], other[128];
    uint64_t most = 0, sequence;
    int rank;

    for (int r = 0; r < group->world_size; r++)
        most = sums[r].calls > most ? sums[r].calls : most;
    disti_group_name(group, name);
    if (!compare_first(all, group->world_size, most < COMPARE_DETAILS ? 0 : most - COMPARE_DETAILS,
                       most, &sequence, &rank))
        return disti_fail(DIST_ERR_MISMATCH,
                          "%s, dist_destroy_process_group: the ranks called different collectives "
                          "more than %d calls ago, or calls are not recorded (DIST_FLIGHT=0): make "
                          "every rank call the same collectives with the same arguments in the "
                          "same order",
                          name, COMPARE_DETAILS);
    compare_name(compare_find(&all[0], sequence), first, sizeof(first));
    compare_name(compare_find(&all[rank], sequence), other, sizeof(other));
    return disti_fail(
        DIST_ERR_MISMATCH,
        "%s, dist_destroy_process_group: rank 0 %s as operation %llu, but rank %d %s: "
        "make every rank call the same collectives with the same arguments in the "
        "same order",
        name, first, (unsigned long long)sequence, rank, other);
}

/* The summaries differ: exchanges the last calls among all ranks. Returns ERR_MISMATCH with a
 * report. */
static dist_status compare_explain(struct dist_group *group, const struct disti_summary *sums,
                                   int timeout_ms)
{
    struct disti_party party = disti_group_party(group);
    struct compare_details *all = calloc((size_t)group->world_size + 1, sizeof(*all));
    struct compare_details *own = all ? &all[group->world_size] : NULL;
    dist_status status = DIST_ERR_NO_MEMORY;
    char key[64];

    party.what = "for the other ranks' calls";
    snprintf(key, sizeof(key), "dist/calls/%u", group->number);
    if (own) {
        uint64_t at = group->sequence < COMPARE_DETAILS ? 0 : group->sequence - COMPARE_DETAILS;

        for (int i = 0; i < COMPARE_DETAILS; i++)
            own->calls[i].sequence = UINT64_MAX;
        for (; compare_kept(group) > 0 && at < group->sequence; at++)
            compare_recall(group, at, &own->calls[at % COMPARE_DETAILS]);
        status = disti_store_all_gather(group->world->bootstrap.store, &party, key, own, all,
                                        sizeof(*own), timeout_ms);
    }
    if (status == DIST_OK)
        status = compare_report(group, sums, all);
    else
        status =
            disti_fail(DIST_ERR_MISMATCH,
                       "%s, dist_destroy_process_group: the ranks called different collectives, "
                       "but could not exchange details: make every rank call the same collectives "
                       "with the same arguments in the same order",
                       disti_group_name(group, (char[GROUP_NAME]){0}));
    free(all);
    return status;
}
