/* SPDX-License-Identifier: BSD-3-Clause */
/* What the records of a group's ranks say together: who called something else, who is behind. */
#include "flight.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SAY_LIST 512

/* ---- words ---- */

static void say_name(const struct flight_group *group, char *text, size_t size)
{
    if (group->number == 0)
        snprintf(text, size, "group world");
    else
        snprintf(text, size, "group %" PRId64, group->number);
}

void flight_say_rank(const struct flight_group *group, int r, char *text, size_t size)
{
    const struct flight_rank *rank = &group->ranks[r];

    if (group->number == 0)
        snprintf(text, size, "rank %d (host %s, pid %" PRId64 ")", r, rank->host, rank->pid);
    else
        snprintf(text, size, "rank %d (world rank %d, host %s, pid %" PRId64 ")", r,
                 rank->world_rank, rank->host, rank->pid);
}

/* "rank 3" or "ranks 0-2, 5", of those with a mark; "..." at its end: and more. Returns how many.
 */
static int say_list(const struct flight_group *group, const bool *marks, char text[SAY_LIST])
{
    char list[SAY_LIST - 8] = "";
    bool cut = false;
    size_t used = 0;
    int count = 0;

    for (int r = 0; r < group->size; r++) {
        int last = r;

        if (!marks[r])
            continue;
        while (last + 1 < group->size && marks[last + 1])
            last++;
        if (!cut && used + 40 < sizeof(list)) {
            used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%d", used ? ", " : "", r);
            if (last > r)
                used += (size_t)snprintf(list + used, sizeof(list) - used, "-%d", last);
        } else if (!cut) {
            snprintf(list + used, sizeof(list) - used, ", ...");
            cut = true;
        }
        count += last - r + 1;
        r = last;
    }
    snprintf(text, SAY_LIST, "%s %s", count == 1 ? "rank" : "ranks", list);
    return count;
}

/* ---- calls ---- */

/* -1: it has called nothing. */
static int64_t say_last(const struct flight_rank *rank)
{
    return rank->count ? rank->calls[rank->count - 1].sequence : -1;
}

/* NULL: it has not made it, or does not remember it. */
static const struct flight_call *say_find(const struct flight_rank *rank, int64_t sequence)
{
    int from = 0, to = rank->count;

    while (from < to) {
        const int middle = from + (to - from) / 2;

        if (rank->calls[middle].sequence < sequence)
            from = middle + 1;
        else
            to = middle;
    }
    return from < rank->count && rank->calls[from].sequence == sequence ? &rank->calls[from] : NULL;
}

/* What any rank, the lowest, called as that one; NULL: nobody knows. */
static const struct flight_call *say_theirs(const struct flight_group *group, int64_t sequence)
{
    const struct flight_call *call = NULL;

    for (int r = 0; r < group->size && !call; r++)
        call = say_find(&group->ranks[r], sequence);
    return call;
}

/* The oldest that has not ended well; NULL: it waits for nothing. */
static const struct flight_call *say_pending(const struct flight_rank *rank)
{
    for (int i = 0; i < rank->count; i++) {
        if (rank->calls[i].pending)
            return &rank->calls[i];
    }
    return NULL;
}

/* ---- sentences ---- */

/* The ranks that made this call, under its sequence. */
static void say_callers(const struct flight_group *group, const struct flight_call *wanted,
                        bool *marks, char text[SAY_LIST])
{
    for (int r = 0; r < group->size; r++) {
        const struct flight_call *call = say_find(&group->ranks[r], wanted->sequence);

        marks[r] = call && strcmp(call->alike, wanted->alike) == 0;
    }
    say_list(group, marks, text);
}

/* The first call that is not the same on all ranks: only that one matters. */
static const struct flight_call *say_other(const struct flight_group *group)
{
    const struct flight_call *other = NULL;

    for (int r = 0; r < group->size; r++) {
        const struct flight_rank *rank = &group->ranks[r];

        for (int i = 0; i < rank->count; i++) {
            const struct flight_call *call = &rank->calls[i];

            if ((!other || call->sequence < other->sequence) &&
                strcmp(say_theirs(group, call->sequence)->alike, call->alike) != 0)
                other = call;
        }
    }
    return other;
}

static bool say_mismatch(const struct flight_group *group, bool *marks)
{
    const struct flight_call *other = say_other(group), *first;
    char same[SAY_LIST], rest[SAY_LIST], name[32];

    if (!other)
        return false;
    first = say_theirs(group, other->sequence);
    say_callers(group, first, marks, same);
    say_callers(group, other, marks, rest);
    say_name(group, name, sizeof(name));
    printf("%s: %s called %s, but %s called %s: make every rank call the same, in the same order\n",
           name, same, first->words, rest, other->words);
    return true;
}

/* The lowest of those that have called least. -1: there is no file of any rank. */
static int say_behind(const struct flight_group *group)
{
    int behind = -1;

    for (int r = 0; r < group->size; r++) {
        if (group->ranks[r].here &&
            (behind < 0 || say_last(&group->ranks[r]) < say_last(&group->ranks[behind])))
            behind = r;
    }
    return behind;
}

/* "; ranks 0-2 wait for it", of those that are in call `sequence` or a later one. */
static void say_waiters(const struct flight_group *group, int64_t sequence, bool *marks)
{
    char list[SAY_LIST];
    int count;

    for (int r = 0; r < group->size; r++) {
        const struct flight_call *call = say_pending(&group->ranks[r]);

        marks[r] = call && call->sequence >= sequence;
    }
    count = say_list(group, marks, list);
    if (count)
        printf("; %s wait%s for it", list, count == 1 ? "s" : "");
    printf("\n");
}

/* It has called less than another rank. */
static void say_is_behind(const struct flight_group *group, int behind, bool *marks)
{
    const struct flight_rank *rank = &group->ranks[behind];
    const int64_t next = say_last(rank) + 1;
    const struct flight_call *call = say_theirs(group, next);
    char who[160], name[32];

    flight_say_rank(group, behind, who, sizeof(who));
    say_name(group, name, sizeof(name));
    if (call)
        printf("%s has not called %s of %s; ", who, call->words, name);
    else
        printf("%s has not made call #%" PRId64 " of %s; ", who, next, name);
    if (rank->count)
        printf("its last call was %s", rank->calls[rank->count - 1].words);
    else
        printf("it has called nothing");
    say_waiters(group, next, marks);
}

/* Who came so late to a call that the others had given up, perhaps. */
static void say_latest(const struct flight_group *group, int64_t sequence)
{
    int first = -1, last = -1;
    char who[160];

    for (int r = 0; r < group->size; r++) {
        const struct flight_call *call = say_find(&group->ranks[r], sequence);

        if (!call || call->begun <= 0)
            continue;
        if (first < 0 || call->begun < say_find(&group->ranks[first], sequence)->begun)
            first = r;
        if (last < 0 || call->begun > say_find(&group->ranks[last], sequence)->begun)
            last = r;
    }
    if (first == last)
        return;
    flight_say_rank(group, last, who, sizeof(who));
    printf("; the last to call it was %s, %.1f s after rank %d", who,
           say_find(&group->ranks[last], sequence)->begun -
               say_find(&group->ranks[first], sequence)->begun,
           first);
}

/* All of them have made the same last call. */
static void say_are_level(const struct flight_group *group, int64_t last, bool *marks)
{
    char name[32], list[SAY_LIST];
    int here = 0, count;

    for (int r = 0; r < group->size; r++) {
        const struct flight_call *call = say_pending(&group->ranks[r]);

        here += group->ranks[r].here;
        marks[r] = call && group->ranks[r].here;
    }
    count = say_list(group, marks, list);
    say_name(group, name, sizeof(name));
    if (last < 0)
        printf("%s: no rank has called a collective\n", name);
    else if (!count)
        printf("%s: every rank has ended %s: nobody waits in a collective\n", name,
               say_theirs(group, last)->words);
    else {
        printf("%s: every rank has called %s, which has not ended on %s%s", name,
               say_theirs(group, last)->words, count == here ? "any of " : "", list);
        say_latest(group, last);
        printf("\n");
    }
}

static void say_absent(const struct flight_group *group, bool *marks)
{
    char list[SAY_LIST], name[32];

    for (int r = 0; r < group->size; r++)
        marks[r] = !group->ranks[r].here;
    say_name(group, name, sizeof(name));
    if (say_list(group, marks, list))
        printf("%s: no file is of %s: that may be who the others wait for; have it write one "
               "(kill -USR1), or see how it ended\n",
               name, list);
}

/* A line a rank. */
static void say_each(const struct flight_group *group)
{
    for (int r = 0; r < group->size; r++) {
        const struct flight_rank *rank = &group->ranks[r];
        const struct flight_call *call = say_pending(rank);
        char who[160];

        if (!rank->here)
            continue;
        if (!call && rank->count)
            call = &rank->calls[rank->count - 1];
        flight_say_rank(group, r, who, sizeof(who));
        printf("  %s: %s%s%s%s%s\n", who, call ? call->words : "no call", call ? ", " : "",
               call ? call->state : "", rank->waits_for[0] ? ", waited for " : "", rank->waits_for);
        if (rank->error[0])
            printf("    %s\n", rank->error);
    }
}

void flight_say(const struct flight_group *group)
{
    static bool marks[FLIGHT_RANKS_MAX];
    const int behind = say_behind(group);
    int64_t last = -1;

    for (int r = 0; r < group->size; r++)
        last = say_last(&group->ranks[r]) > last ? say_last(&group->ranks[r]) : last;
    if (!say_mismatch(group, marks)) {
        if (say_last(&group->ranks[behind]) < last)
            say_is_behind(group, behind, marks);
        else
            say_are_level(group, last, marks);
    }
    flight_say_messages(group);
    say_absent(group, marks);
    say_each(group);
}
