/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading what a flight recorder has written. Nothing in a file is believed unseen. */
#include <config.h>

#include "tools/common/args.h"
#include "tools/flight.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_JANSSON
#include <jansson.h>

/* The text of a member, cut to size; "": there is none. */
static void read_text(const json_t *object, const char *name, char *text, size_t size)
{
    const char *value = json_string_value(json_object_get(object, name));

    snprintf(text, size, "%s", value ? value : "");
}

/* A whole number from `least` to `most`; false: there is none. */
static bool read_number(const json_t *object, const char *name, int64_t least, int64_t most,
                        int64_t *value_p)
{
    const json_t *value = json_object_get(object, name);

    if (!json_is_integer(value))
        return false;
    *value_p = json_integer_value(value);
    return *value_p >= least && *value_p <= most;
}

static bool read_ends(const char *text, const char *end)
{
    const size_t length = strlen(text), wanted = strlen(end);

    return length >= wanted && strcmp(text + length - wanted, end) == 0;
}

static bool read_call(const json_t *json, struct flight_call *call)
{
    char name[48], dtype[16], kind[48];
    int64_t count;

    if (!read_number(json, "sequence", 0, INT64_MAX, &call->sequence) ||
        !read_number(json, "count", INT64_MIN, INT64_MAX, &count))
        return false;
    read_text(json, "call", name, sizeof(name));
    read_text(json, "dtype", dtype, sizeof(dtype));
    read_text(json, "state", call->state, sizeof(call->state));
    call->begun = json_real_value(json_object_get(json, "begun"));
    /* "sum" or "root 2", if the call has such; "": it has not. */
    size_t size = sizeof(kind);
    const bool reduces = strncmp(name, "all_reduce", 10) == 0 || strncmp(name, "reduce", 6) == 0;
    const bool rooted = strcmp(name, "reduce") == 0 || strcmp(name, "broadcast") == 0 ||
                        strncmp(name, "gather", 6) == 0 || strncmp(name, "scatter", 7) == 0;
    char op[24];
    int64_t root = 0;

    read_text(json, "op", op, sizeof(op));
    read_number(json, "root", INT32_MIN, INT32_MAX, &root);
    kind[0] = '\0';
    if (reduces)
        snprintf(kind, size, ", %s", op);
    if (rooted)
        snprintf(kind + strlen(kind), size - strlen(kind), ", root %" PRId64, root);
    call->pending = strcmp(call->state, "done") != 0;
    if (strcmp(name, "barrier") == 0)
        snprintf(call->words, sizeof(call->words), "barrier #%" PRId64, call->sequence);
    else
        snprintf(call->words, sizeof(call->words), "%s #%" PRId64 " (%s x %" PRIu64 "%s)", name,
                 call->sequence, dtype, (uint64_t)count, kind);
    if (read_ends(name, "_v")) /* each rank has counts of its own */
        snprintf(call->alike, sizeof(call->alike), "%s %s%s", name, dtype, kind);
    else
        snprintf(call->alike, sizeof(call->alike), "%s", call->words);
    return true;
}

/* In the order of their sequences: else the file is not the recorder's. */
static bool read_calls(const json_t *json, struct flight_rank *rank)
{
    const size_t count = json_array_size(json);

    rank->calls = calloc(count + 1, sizeof(*rank->calls));
    for (size_t i = 0; rank->calls && i < count; i++) {
        if (!read_call(json_array_get(json, i), &rank->calls[i]) ||
            (i > 0 && rank->calls[i].sequence <= rank->calls[i - 1].sequence))
            return false;
        rank->count++;
    }
    return rank->calls;
}

static bool read_message(const json_t *json, int size, struct flight_message *message)
{
    char name[48], dtype[16];
    int64_t count, peer;

    if (!read_number(json, "sequence", 0, INT64_MAX, &message->sequence) ||
        !read_number(json, "count", INT64_MIN, INT64_MAX, &count) ||
        !read_number(json, "root", -1, (int64_t)size - 1, &peer) ||
        !read_number(json, "tag", INT64_MIN, INT64_MAX, &message->tag))
        return false;
    read_text(json, "call", name, sizeof(name));
    read_text(json, "dtype", dtype, sizeof(dtype));
    read_text(json, "state", message->state, sizeof(message->state));
    message->sends = read_ends(name, "send");
    message->peer = (int)peer;
    message->pending = strcmp(message->state, "done") != 0;
    snprintf(message->what, sizeof(message->what), "%s x %" PRIu64, dtype, (uint64_t)count);
    return message->sends || read_ends(name, "recv");
}

/* In the order of their sequences too. A file without any is one of an older version's. */
static bool read_messages(const json_t *json, int size, struct flight_rank *rank)
{
    const size_t count = json_array_size(json);

    rank->messages = calloc(count + 1, sizeof(*rank->messages));
    for (size_t i = 0; rank->messages && i < count; i++) {
        if (!read_message(json_array_get(json, i), size, &rank->messages[i]) ||
            (i > 0 && rank->messages[i].sequence <= rank->messages[i - 1].sequence))
            return false;
        rank->message_count++;
    }
    return rank->messages;
}

/* The group with that number in that job, made if it is new; NULL: its size is another. */
static struct flight_group *read_find(struct flight_group **groups, const char *job, int64_t number,
                                      int size)
{
    struct flight_group **entry = groups;

    while (*entry && ((*entry)->number != number || strcmp((*entry)->job, job) != 0))
        entry = &(*entry)->next;
    if (!*entry) {
        struct flight_group *made = calloc(1, sizeof(*made));
        struct flight_rank *ranks = calloc((size_t)size, sizeof(*ranks));

        if (!made || !ranks) {
            free(made);
            free(ranks);
            return NULL;
        }
        snprintf(made->job, sizeof(made->job), "%s", job);
        made->number = number;
        snprintf(made->name, sizeof(made->name), number ? "group %" PRId64 : "group world", number);
        made->size = size;
        made->ranks = ranks;
        *entry = made;
    }
    return (*entry)->size == size ? *entry : NULL;
}

/* A rank of the group, whose members the array tells. */
static bool read_rank(const json_t *json, const json_t *members, struct flight_rank *rank,
                      int64_t number)
{
    int64_t world_rank;

    if (rank->here || !read_number(json, "world_rank", 0, FLIGHT_RANKS_MAX, &world_rank) ||
        json_integer_value(json_array_get(members, (size_t)number)) != world_rank)
        return false;
    rank->here = true;
    rank->world_rank = (int)world_rank;
    read_text(json, "waits_for", rank->waits_for, sizeof(rank->waits_for));
    read_text(json, "error", rank->error, sizeof(rank->error));
    return read_calls(json_object_get(json, "calls"), rank) &&
           read_messages(json_object_get(json, "messages"), (int)json_array_size(members), rank);
}

static const char *read_group(const json_t *root, const json_t *json, struct flight_group **groups)
{
    const json_t *members = json_object_get(json, "members");
    const size_t size = json_array_size(members);
    struct flight_group *group;
    struct flight_rank *rank;
    int64_t number, own;
    char job[32];

    read_text(json, "job", job, sizeof(job));
    if (size == 0 || size > FLIGHT_RANKS_MAX || !job[0] ||
        !read_number(json, "group", 0, UINT32_MAX, &number) ||
        !read_number(json, "rank", 0, (int64_t)size - 1, &own))
        return "a group in it lacks its number, its rank or its members";
    group = read_find(groups, job, number, (int)size);
    if (!group)
        return "another file has other members of a group";
    rank = &group->ranks[own];
    if (rank->here)
        return "another file is of the same rank: give one file a rank";
    read_text(root, "host", rank->host, sizeof(rank->host));
    if (!read_number(root, "pid", 1, INT64_MAX, &rank->pid) || !read_rank(json, members, rank, own))
        return "the calls of a group in it are no flight recorder's";
    return NULL;
}

/* Adds what the file says. False: failure says what is wrong with it. */
static bool flight_read(const char *path, struct flight_group **groups,
                        char failure[FLIGHT_FAILURE])
{
    json_error_t error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    const json_t *list = json_object_get(root, "groups");
    const char *format = json_string_value(json_object_get(root, "format"));
    const char *wrong = NULL;

    if (!root)
        wrong = error.text;
    else if (!format || strcmp(format, "dist-flight") != 0)
        wrong = "it is no file of a flight recorder";
    else if (json_integer_value(json_object_get(root, "version")) != 1)
        wrong = "another version of libdist has written it: read it with the dist_info of that one";
    else if (!json_is_array(list))
        wrong = "it has no groups";
    for (size_t i = 0; i < json_array_size(list) && !wrong; i++)
        wrong = read_group(root, json_array_get(list, i), groups);
    if (wrong)
        snprintf(failure, FLIGHT_FAILURE, "%s: %s", path, wrong);
    json_decref(root);
    return !wrong;
}
#else
static bool flight_read(const char *path, struct flight_group **groups,
                        char failure[FLIGHT_FAILURE])
{
    (void)path;
    (void)groups;
    snprintf(failure, FLIGHT_FAILURE,
             "this dist_info was built without jansson: install libjansson-dev and build it again");
    return false;
}
#endif

/* What the records of two ranks say together of a send or a receive that has not ended. */

/* So many of a group are told at most: they are the oldest. */
#define MESSAGES_MOST 16

/* Nothing older has been written over. */
static bool messages_whole(const struct flight_rank *rank)
{
    return rank->message_count == 0 || rank->messages[0].sequence == 0;
}

/* Sends, or receives, with that peer and tag, older than `before`. A receive from any rank may be
 * from this one. */
static int messages_count(const struct flight_rank *rank, bool sends, int peer, int64_t tag,
                          int64_t before)
{
    int count = 0;

    for (int i = 0; i < rank->message_count && rank->messages[i].sequence < before; i++) {
        const struct flight_message *other = &rank->messages[i];

        count += other->sends == sends && other->tag == tag &&
                 (other->peer == peer || (!sends && other->peer < 0));
    }
    return count;
}

/* "rank 3 (host b, pid 812)" */
static void flight_say_rank(const struct flight_group *group, int r, char *text, size_t size)
{
    const struct flight_rank *rank = &group->ranks[r];

    if (group->number == 0)
        snprintf(text, size, "rank %d (host %s, pid %" PRId64 ")", r, rank->host, rank->pid);
    else
        snprintf(text, size, "rank %d (world rank %d, host %s, pid %" PRId64 ")", r,
                 rank->world_rank, rank->host, rank->pid);
}

/* "; rank 0 (host a, pid 7) has not called that send", if its record tells. */
static void messages_say_peer(const struct flight_group *group, int rank,
                              const struct flight_message *message)
{
    const struct flight_rank *peer = &group->ranks[message->peer];
    const char *call = message->sends ? "recv" : "send";
    char who[160];

    flight_say_rank(group, message->peer, who, sizeof(who));
    if (!peer->here)
        printf("; no file is of rank %d", message->peer);
    else if (!messages_whole(peer) || !messages_whole(&group->ranks[rank]))
        printf("; the records begin too late to tell whether %s has called that %s (DIST_FLIGHT)",
               who, call);
    else if (messages_count(peer, !message->sends, rank, message->tag, INT64_MAX) >
             messages_count(&group->ranks[rank], message->sends, message->peer, message->tag,
                            message->sequence)) /* with one peer and tag they meet in their order */
        printf("; %s has called that %s", who, call);
    else
        printf("; %s never called that %s", who, call);
}

/* What the records of a group's ranks say together: who called something else, who is behind. */

#define SAY_LIST 512

/* ---- words ---- */

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

static bool say_mismatch(const struct flight_group *group, bool *marks)
{
    const struct flight_call *other = NULL, *first;
    char same[SAY_LIST], rest[SAY_LIST];

    /* The first call that is not the same on all ranks: only that one matters. */
    for (int r = 0; r < group->size; r++) {
        for (int i = 0; i < group->ranks[r].count; i++) {
            const struct flight_call *call = &group->ranks[r].calls[i];

            if ((!other || call->sequence < other->sequence) &&
                strcmp(say_theirs(group, call->sequence)->alike, call->alike) != 0)
                other = call;
        }
    }
    if (!other)
        return false;
    first = say_theirs(group, other->sequence);
    say_callers(group, first, marks, same);
    say_callers(group, other, marks, rest);
    printf("%s: %s called %s, but %s called %s: make every rank call the same, in the same order\n",
           group->name, same, first->words, rest, other->words);
    return true;
}

/* It has called less than another rank. */
static void say_is_behind(const struct flight_group *group, int behind, bool *marks)
{
    const struct flight_rank *rank = &group->ranks[behind];
    const int64_t next = say_last(rank) + 1;
    const struct flight_call *call = say_theirs(group, next);
    char who[160];

    flight_say_rank(group, behind, who, sizeof(who));
    if (call)
        printf("%s has not called %s of %s; ", who, call->words, group->name);
    else
        printf("%s has not made call #%" PRId64 " of %s; ", who, next, group->name);
    if (rank->count)
        printf("its last call was %s", rank->calls[rank->count - 1].words);
    else
        printf("it has called nothing");
    /* "; ranks 0-2 wait for it", of those that are in call `sequence` or a later one. */
    char list[SAY_LIST];
    int count;

    for (int r = 0; r < group->size; r++) {
        const struct flight_call *waiting = say_pending(&group->ranks[r]);

        marks[r] = waiting && waiting->sequence >= next;
    }
    count = say_list(group, marks, list);
    if (count)
        printf("; %s wait%s for it", list, count == 1 ? "s" : "");
    printf("\n");
}

/* Who came so late to a call that the others had given up, perhaps. */
static void say_latest(const struct flight_group *group, int64_t sequence)
{
    int first = -1, last = -1;
    double begun = 0, ended = 0; /* when they called it */
    char who[160];

    for (int r = 0; r < group->size; r++) {
        const struct flight_call *call = say_find(&group->ranks[r], sequence);

        if (!call || call->begun <= 0)
            continue;
        if (first < 0 || call->begun < begun)
            first = r, begun = call->begun;
        if (last < 0 || call->begun > ended)
            last = r, ended = call->begun;
    }
    if (first == last)
        return;
    flight_say_rank(group, last, who, sizeof(who));
    printf("; the last to call it was %s, %.1f s after rank %d", who, ended - begun, first);
}

/* All of them have made the same last call. */
static void say_are_level(const struct flight_group *group, int64_t last, bool *marks)
{
    char list[SAY_LIST];
    int here = 0, count;

    for (int r = 0; r < group->size; r++) {
        const struct flight_call *call = say_pending(&group->ranks[r]);

        here += group->ranks[r].here;
        marks[r] = call && group->ranks[r].here;
    }
    count = say_list(group, marks, list);
    if (last < 0) {
        printf("%s: no rank has called a collective\n", group->name);
    } else if (!count) {
        printf("%s: every rank has ended %s: nobody waits in a collective\n", group->name,
               say_theirs(group, last)->words);
    } else {
        printf("%s: every rank has called %s, which has not ended on %s%s", group->name,
               say_theirs(group, last)->words, count == here ? "any of " : "", list);
        say_latest(group, last);
        printf("\n");
    }
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

/* Prints what the files say of a group. */
static void flight_say(const struct flight_group *group)
{
    static bool marks[FLIGHT_RANKS_MAX];
    int behind = -1; /* the lowest rank of those that have called least; -1: no rank has a file */
    int64_t last = -1;

    for (int r = 0; r < group->size; r++) {
        if (group->ranks[r].here &&
            (behind < 0 || say_last(&group->ranks[r]) < say_last(&group->ranks[behind])))
            behind = r;
        last = say_last(&group->ranks[r]) > last ? say_last(&group->ranks[r]) : last;
    }
    if (!say_mismatch(group, marks)) {
        if (say_last(&group->ranks[behind]) < last)
            say_is_behind(group, behind, marks);
        else
            say_are_level(group, last, marks);
    }
    /* Prints which sends and receives have not ended, and what their peers did; nothing if
     * none has. Each of the ranks has a file, or is not here. */
    int said = 0;

    for (int r = 0; r < group->size; r++) {
        const struct flight_rank *rank = &group->ranks[r];

        for (int i = 0; i < rank->message_count; i++) {
            if (!rank->messages[i].pending)
                continue;
            if (said < MESSAGES_MOST) {
                /* "rank 2 (host a, pid 9) waits in recv from rank 0, tag 7 (float32 x 8); ..." */
                const bool failed = strcmp(rank->messages[i].state, "failed") == 0 ||
                                    strcmp(rank->messages[i].state, "refused") == 0;
                char who[160], peer[24] = "any rank";

                if (rank->messages[i].peer >= 0)
                    snprintf(peer, sizeof(peer), "rank %d", rank->messages[i].peer);
                flight_say_rank(group, r, who, sizeof(who));
                printf("%s %s in %s %s, tag %" PRId64 " (%s)", who, failed ? "failed" : "waits",
                       rank->messages[i].sends ? "send to" : "recv from", peer,
                       rank->messages[i].tag, rank->messages[i].what);
                if (rank->messages[i].peer >= 0)
                    messages_say_peer(group, r, &rank->messages[i]);
                printf("\n");
            }
            said++;
        }
    }
    if (said > MESSAGES_MOST)
        printf("%d more sends and receives have not ended\n", said - MESSAGES_MOST);
    char list[SAY_LIST];

    for (int r = 0; r < group->size; r++)
        marks[r] = !group->ranks[r].here;
    if (say_list(group, marks, list))
        printf("%s: no file is of %s: that may be who the others wait for; have it write one "
               "(kill -USR1), or see how it ended\n",
               group->name, list);
    say_each(group);
}

/* dist_info flight FILE...: the command. */

int flight_main(int argc, char **argv)
{
    struct args args = {
        .program = "dist_info flight",
        .usage = "FILE...",
        .about = "Says which rank of a job is behind, or called something else than the other "
                 "ranks. The files are those that the flight recorders of the ranks have written, "
                 "dist-flight.RANK.json, after a time-out or on SIGUSR1.\n"};
    int rest, code = args_begin_bare(&args, argc, argv, argc, &rest);

    if (code >= 0)
        return code;
    if (rest == argc)
        return args_wrong(&args, "name the files to read");
    struct flight_group *groups = NULL;
    char failure[FLIGHT_FAILURE];
    int result = 0;

    for (int i = rest; i < argc && !result; i++) {
        if (flight_read(argv[i], &groups, failure))
            continue;
        fprintf(stderr, "dist_info: %s\n", failure);
        result = 1;
    }
    for (const struct flight_group *group = groups; group && !result; group = group->next)
        flight_say(group);
    if (!groups && !result)
        printf("no group was there when the files were written\n");
    while (groups) {
        struct flight_group *group = groups;

        groups = group->next;
        for (int r = 0; r < group->size; r++) {
            free(group->ranks[r].calls);
            free(group->ranks[r].messages);
        }
        free(group->ranks);
        free(group);
    }
    return result;
}
