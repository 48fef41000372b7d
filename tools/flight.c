/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info flight: reads the files of flight recorders, validating everything, and compares the
 * ranks. */
#include <config.h>

#include "tools/common/args.h"
#include "tools/flight.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_JANSSON
#include <jansson.h>

/* Copies a string member, truncated to `size`; "" if there is none. */
static void read_text(const json_t *object, const char *name, char *text, size_t size)
{
    const char *value = json_string_value(json_object_get(object, name));

    snprintf(text, size, "%s", value ? value : "");
}

/* Reads an integer member. Returns false if it is missing or outside [least, most]. */
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
    /* ", sum" or ", root 2" if the call has an op or a root; otherwise "". */
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
    if (read_ends(name, "_v")) /* counts may differ between ranks */
        snprintf(call->signature, sizeof(call->signature), "%s %s%s", name, dtype, kind);
    else
        snprintf(call->signature, sizeof(call->signature), "%s", call->words);
    return true;
}

/* Reads the calls. Returns false if they are invalid or not in ascending order, or if out of
 * memory. */
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

/* Reads the messages, which must be in ascending order. Files of older versions have none. Returns
 * false if they are invalid, or if out of memory. */
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

/*
 * Returns the group with that number in that job, and creates it if needed. Returns NULL if the
 * group has another size, or if out of memory.
 */
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

/* Reads the record of rank `number`. `members` are the world ranks of the group. Returns false if
 * the record is invalid or the rank has been read already. */
static bool read_rank(const json_t *json, const json_t *members, struct flight_rank *rank,
                      int64_t number)
{
    int64_t world_rank;

    if (rank->has_file || !read_number(json, "world_rank", 0, FLIGHT_RANKS_MAX, &world_rank) ||
        json_integer_value(json_array_get(members, (size_t)number)) != world_rank)
        return false;
    rank->has_file = true;
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
        return "invalid file: a group lacks its number, its rank or its members";
    group = read_find(groups, job, number, (int)size);
    if (!group)
        return "a group's members differ from those in another file";
    rank = &group->ranks[own];
    if (rank->has_file)
        return "another file is from the same rank: name one file per rank";
    read_text(root, "host", rank->host, sizeof(rank->host));
    if (!read_number(root, "pid", 1, INT64_MAX, &rank->pid) || !read_rank(json, members, rank, own))
        return "invalid file: the calls of a group are not from a flight recorder";
    return NULL;
}

/* Adds the groups of a file. Returns false, with a message in `failure`, if the file is invalid. */
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
        wrong = "not a flight recorder's file";
    else if (json_integer_value(json_object_get(root, "version")) != 1)
        wrong = "written by another version of libdist: use the dist_info of that version";
    else if (!json_is_array(list))
        wrong = "invalid file: it has no groups";
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
             "dist_info was built without jansson: install libjansson-dev and rebuild it");
    return false;
}
#endif

/* Sends and receives that are pending: comparing the records of both ranks. */

#define MESSAGES_MOST 16 /* messages that are printed per group */

/* True if the record has all messages: none was overwritten. */
static bool messages_complete(const struct flight_rank *rank)
{
    return rank->message_count == 0 || rank->messages[0].sequence == 0;
}

/*
 * Counts the rank's sends or receives with that peer and tag whose sequence number is below
 * `before`. Receives from any rank are counted too.
 */
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

/* Writes "rank 3 (host b, pid 812)". */
static void flight_format_rank(const struct flight_group *group, int r, char *text, size_t size)
{
    const struct flight_rank *rank = &group->ranks[r];

    if (group->number == 0)
        snprintf(text, size, "rank %d (host %s, pid %" PRId64 ")", r, rank->host, rank->pid);
    else
        snprintf(text, size, "rank %d (world rank %d, host %s, pid %" PRId64 ")", r,
                 rank->world_rank, rank->host, rank->pid);
}

/* Prints whether the peer has called the matching send or receive, if its record shows that. */
static void messages_print_peer(const struct flight_group *group, int rank,
                                const struct flight_message *message)
{
    const struct flight_rank *peer = &group->ranks[message->peer];
    const char *call = message->sends ? "recv" : "send";
    char who[160];

    flight_format_rank(group, message->peer, who, sizeof(who));
    if (!peer->has_file)
        printf("; there is no file of rank %d", message->peer);
    else if (!messages_complete(peer) || !messages_complete(&group->ranks[rank]))
        printf("; the records begin too late to show whether %s has called that %s (increase "
               "DIST_FLIGHT)",
               who, call);
    else if (messages_count(peer, !message->sends, rank, message->tag, INT64_MAX) >
             messages_count(
                 &group->ranks[rank], message->sends, message->peer, message->tag,
                 message->sequence)) /* messages with the same peer and tag match in order */
        printf("; %s has called that %s", who, call);
    else
        printf("; %s never called that %s", who, call);
}

/* Comparing the records of a group's ranks: mismatched calls, and ranks that are behind. */

#define LIST_SIZE 512

/* ---- lists of ranks ---- */

/* Writes "rank 3" or "ranks 0-2, 5" for the marked ranks, with "..." if truncated. Returns the
 * number of marked ranks. */
static int list_ranks(const struct flight_group *group, const bool *marks, char text[LIST_SIZE])
{
    char list[LIST_SIZE - 8] = "";
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
    snprintf(text, LIST_SIZE, "%s %s", count == 1 ? "rank" : "ranks", list);
    return count;
}

/* ---- calls ---- */

/* Returns the sequence number of the rank's last call; -1: none. */
static int64_t call_last(const struct flight_rank *rank)
{
    return rank->count ? rank->calls[rank->count - 1].sequence : -1;
}

/* Returns the rank's call with that sequence number, or NULL if it is not in the record. */
static const struct flight_call *call_find(const struct flight_rank *rank, int64_t sequence)
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

/* Returns the call with that sequence number of the lowest rank that has it in its record, or NULL.
 */
static const struct flight_call *call_find_any(const struct flight_group *group, int64_t sequence)
{
    const struct flight_call *call = NULL;

    for (int r = 0; r < group->size && !call; r++)
        call = call_find(&group->ranks[r], sequence);
    return call;
}

/* Returns the rank's oldest pending call, or NULL if there is none. */
static const struct flight_call *call_pending(const struct flight_rank *rank)
{
    for (int i = 0; i < rank->count; i++) {
        if (rank->calls[i].pending)
            return &rank->calls[i];
    }
    return NULL;
}

/* ---- printing ---- */

/* Lists the ranks that made this call with this sequence number. */
static void list_callers(const struct flight_group *group, const struct flight_call *wanted,
                         bool *marks, char text[LIST_SIZE])
{
    for (int r = 0; r < group->size; r++) {
        const struct flight_call *call = call_find(&group->ranks[r], wanted->sequence);

        marks[r] = call && strcmp(call->signature, wanted->signature) == 0;
    }
    list_ranks(group, marks, text);
}

/* Prints the first mismatched call, if there is one. */
static bool print_mismatch(const struct flight_group *group, bool *marks)
{
    const struct flight_call *other = NULL, *first;
    char same[LIST_SIZE], rest[LIST_SIZE];

    /* Find the first mismatched call: later mismatches are consequences of it. */
    for (int r = 0; r < group->size; r++) {
        for (int i = 0; i < group->ranks[r].count; i++) {
            const struct flight_call *call = &group->ranks[r].calls[i];

            if ((!other || call->sequence < other->sequence) &&
                strcmp(call_find_any(group, call->sequence)->signature, call->signature) != 0)
                other = call;
        }
    }
    if (!other)
        return false;
    first = call_find_any(group, other->sequence);
    list_callers(group, first, marks, same);
    list_callers(group, other, marks, rest);
    printf("%s: %s called %s, but %s called %s: make every rank call the same, in the same order\n",
           group->name, same, first->words, rest, other->words);
    return true;
}

/* Prints that a rank has made fewer calls than another rank, and which ranks wait for it. */
static void print_behind(const struct flight_group *group, int behind, bool *marks)
{
    const struct flight_rank *rank = &group->ranks[behind];
    const int64_t next = call_last(rank) + 1;
    const struct flight_call *call = call_find_any(group, next);
    char who[160];

    flight_format_rank(group, behind, who, sizeof(who));
    if (call)
        printf("%s has not called %s of %s; ", who, call->words, group->name);
    else
        printf("%s has not made call #%" PRId64 " of %s; ", who, next, group->name);
    if (rank->count)
        printf("its last call was %s", rank->calls[rank->count - 1].words);
    else
        printf("it has made no call");
    /* "; ranks 0-2 wait for it": the ranks whose pending call is `next` or a later one. */
    char list[LIST_SIZE];
    int count;

    for (int r = 0; r < group->size; r++) {
        const struct flight_call *waiting = call_pending(&group->ranks[r]);

        marks[r] = waiting && waiting->sequence >= next;
    }
    count = list_ranks(group, marks, list);
    if (count)
        printf("; %s wait%s for it", list, count == 1 ? "s" : "");
    printf("\n");
}

/* Prints which rank made the call last, since the other ranks may have timed out before it did. */
static void print_latest(const struct flight_group *group, int64_t sequence)
{
    int first = -1, last = -1;
    double begun = 0, ended = 0; /* times at which `first` and `last` made the call */
    char who[160];

    for (int r = 0; r < group->size; r++) {
        const struct flight_call *call = call_find(&group->ranks[r], sequence);

        if (!call || call->begun <= 0)
            continue;
        if (first < 0 || call->begun < begun)
            first = r, begun = call->begun;
        if (last < 0 || call->begun > ended)
            last = r, ended = call->begun;
    }
    if (first == last)
        return;
    flight_format_rank(group, last, who, sizeof(who));
    printf("; the last to call it was %s, %.1f s after rank %d", who, ended - begun, first);
}

/* Prints the state of a group whose ranks have all made the same last call. */
static void print_level(const struct flight_group *group, int64_t last, bool *marks)
{
    char list[LIST_SIZE];
    int here = 0, count;

    for (int r = 0; r < group->size; r++) {
        const struct flight_call *call = call_pending(&group->ranks[r]);

        here += group->ranks[r].has_file;
        marks[r] = call && group->ranks[r].has_file;
    }
    count = list_ranks(group, marks, list);
    if (last < 0) {
        printf("%s: no rank has called a collective\n", group->name);
    } else if (!count) {
        printf("%s: every rank has completed %s: no rank waits in a collective\n", group->name,
               call_find_any(group, last)->words);
    } else {
        printf("%s: every rank has called %s, which has not completed on %s%s", group->name,
               call_find_any(group, last)->words, count == here ? "any of " : "", list);
        print_latest(group, last);
        printf("\n");
    }
}

/* Prints one line for each rank, and its error. */
static void print_ranks(const struct flight_group *group)
{
    for (int r = 0; r < group->size; r++) {
        const struct flight_rank *rank = &group->ranks[r];
        const struct flight_call *call = call_pending(rank);
        char who[160];

        if (!rank->has_file)
            continue;
        if (!call && rank->count)
            call = &rank->calls[rank->count - 1];
        flight_format_rank(group, r, who, sizeof(who));
        printf("  %s: %s%s%s%s%s\n", who, call ? call->words : "no call", call ? ", " : "",
               call ? call->state : "", rank->waits_for[0] ? ", waited for " : "", rank->waits_for);
        if (rank->error[0])
            printf("    %s\n", rank->error);
    }
}

/* Prints the analysis of a group. */
static void flight_print(const struct flight_group *group)
{
    static bool marks[FLIGHT_RANKS_MAX];
    int behind = -1; /* the rank with the fewest calls, the lowest of several; -1: no files */
    int64_t last = -1;

    for (int r = 0; r < group->size; r++) {
        if (group->ranks[r].has_file &&
            (behind < 0 || call_last(&group->ranks[r]) < call_last(&group->ranks[behind])))
            behind = r;
        last = call_last(&group->ranks[r]) > last ? call_last(&group->ranks[r]) : last;
    }
    if (!print_mismatch(group, marks)) {
        if (call_last(&group->ranks[behind]) < last)
            print_behind(group, behind, marks);
        else
            print_level(group, last, marks);
    }
    /* Print the pending sends and receives, and what their peers have called. */
    int printed = 0;

    for (int r = 0; r < group->size; r++) {
        const struct flight_rank *rank = &group->ranks[r];

        for (int i = 0; i < rank->message_count; i++) {
            if (!rank->messages[i].pending)
                continue;
            if (printed < MESSAGES_MOST) {
                /* "rank 2 (host a, pid 9) waits in recv from rank 0, tag 7 (float32 x 8); ..." */
                const bool failed = strcmp(rank->messages[i].state, "failed") == 0 ||
                                    strcmp(rank->messages[i].state, "refused") == 0;
                char who[160], peer[24] = "any rank";

                if (rank->messages[i].peer >= 0)
                    snprintf(peer, sizeof(peer), "rank %d", rank->messages[i].peer);
                flight_format_rank(group, r, who, sizeof(who));
                printf("%s %s in %s %s, tag %" PRId64 " (%s)", who, failed ? "failed" : "waits",
                       rank->messages[i].sends ? "send to" : "recv from", peer,
                       rank->messages[i].tag, rank->messages[i].what);
                if (rank->messages[i].peer >= 0)
                    messages_print_peer(group, r, &rank->messages[i]);
                printf("\n");
            }
            printed++;
        }
    }
    if (printed > MESSAGES_MOST)
        printf("%d more sends and receives have not completed\n", printed - MESSAGES_MOST);
    char list[LIST_SIZE];

    for (int r = 0; r < group->size; r++)
        marks[r] = !group->ranks[r].has_file;
    if (list_ranks(group, marks, list))
        printf("%s: there is no file of %s, so the other ranks may wait for it: make it write one "
               "(kill -USR1), or find out how it ended\n",
               group->name, list);
    print_ranks(group);
}

/* dist_info flight FILE...: the command. */

int flight_main(int argc, char **argv)
{
    struct args args = {
        .program = "dist_info flight",
        .usage = "FILE...",
        .about = "Shows which rank of a job is behind, or made another call than the other ranks. "
                 "Each FILE is from a rank's flight recorder: dist-flight.RANK.json, which "
                 "libdist writes after a timeout or on SIGUSR1.\n"};
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
        flight_print(group);
    if (!groups && !result)
        printf("there was no group when the files were written\n");
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
