/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading what a flight recorder has written. Nothing in a file is believed unseen. */
#include "flight.h"

#include <config.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void flight_free(struct flight_group *groups)
{
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
}

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

/* "sum" or "root 2", if the call has such; "": it has not. */
static void read_kind(const json_t *json, const char *name, char *text, size_t size)
{
    const bool reduces = strncmp(name, "all_reduce", 10) == 0 || strncmp(name, "reduce", 6) == 0;
    const bool rooted = strcmp(name, "reduce") == 0 || strcmp(name, "broadcast") == 0 ||
                        strncmp(name, "gather", 6) == 0 || strncmp(name, "scatter", 7) == 0;
    char op[24];
    int64_t root = 0;

    read_text(json, "op", op, sizeof(op));
    read_number(json, "root", INT32_MIN, INT32_MAX, &root);
    text[0] = '\0';
    if (reduces)
        snprintf(text, size, ", %s", op);
    if (rooted)
        snprintf(text + strlen(text), size - strlen(text), ", root %" PRId64, root);
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
    read_kind(json, name, kind, sizeof(kind));
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

static const char *read_root(const json_t *root, struct flight_group **groups)
{
    const json_t *list = json_object_get(root, "groups");
    const char *format = json_string_value(json_object_get(root, "format"));
    const char *wrong = NULL;

    if (!format || strcmp(format, "dist-flight") != 0)
        return "it is no file of a flight recorder";
    if (json_integer_value(json_object_get(root, "version")) != 1)
        return "another version of libdist has written it: read it with the dist_info of that one";
    if (!json_is_array(list))
        return "it has no groups";
    for (size_t i = 0; i < json_array_size(list) && !wrong; i++)
        wrong = read_group(root, json_array_get(list, i), groups);
    return wrong;
}

bool flight_read(const char *path, struct flight_group **groups, char failure[FLIGHT_FAILURE])
{
    json_error_t error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    const char *wrong = root ? read_root(root, groups) : error.text;

    if (wrong)
        snprintf(failure, FLIGHT_FAILURE, "%s: %s", path, wrong);
    json_decref(root);
    return !wrong;
}
#else
bool flight_read(const char *path, struct flight_group **groups, char failure[FLIGHT_FAILURE])
{
    (void)path;
    (void)groups;
    snprintf(failure, FLIGHT_FAILURE,
             "this dist_info was built without jansson: install libjansson-dev and build it again");
    return false;
}
#endif
