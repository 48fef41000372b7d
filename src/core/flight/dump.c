/* SPDX-License-Identifier: BSD-3-Clause */
/* A dump of the flight recorder: JSON, made with calls that a signal handler may make. */
#include "base/clock.h"
#include "base/collective.h"
#include "base/hash.h"
#include "base/process/pages.h"
#include "core/group/group.h"

#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define DUMP_ROOM (1u << 16) /* bytes at first */

struct dump {
    struct disti_flight_text *out;
    int64_t wall_ns; /* the time of day when the clock was 0 */
};

/* ---- text, without stdio and malloc ---- */

static bool dump_grow(struct disti_flight_text *out)
{
    const size_t room = out->room ? 2 * out->room : DUMP_ROOM;
    void *bytes = out->room ? disti_pages_grow(out->bytes, out->room, room)
                            : disti_pages_map(NULL, room, PROT_READ | PROT_WRITE,
                                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (bytes == MAP_FAILED)
        return false;
    out->bytes = bytes;
    out->room = room;
    return true;
}

static void dump_byte(struct dump *dump, char byte)
{
    struct disti_flight_text *out = dump->out;

    if (out->cut)
        return;
    if (out->used == out->room && !dump_grow(out))
        out->cut = true;
    else
        out->bytes[out->used++] = byte;
}

void disti_flight_text_free(struct disti_flight_text *text)
{
    if (text->room)
        disti_pages_unmap(text->bytes, text->room);
    *text = (struct disti_flight_text){0};
}

static void dump_text(struct dump *dump, const char *text)
{
    while (*text)
        dump_byte(dump, *text++);
}

static void dump_digits(struct dump *dump, uint64_t number, unsigned base, int least)
{
    char digits[24];
    int count = 0;

    for (; number || count < least; number /= base)
        digits[count++] = "0123456789abcdef"[number % base];
    while (count > 0)
        dump_byte(dump, digits[--count]);
}

static void dump_number(struct dump *dump, int64_t number)
{
    if (number < 0)
        dump_byte(dump, '-');
    dump_digits(dump, number < 0 ? 0 - (uint64_t)number : (uint64_t)number, 10, 1);
}

/* In quotes. What another thread is writing at this moment may lack its end: hence `most`. */
static void dump_string(struct dump *dump, const char *text, size_t most)
{
    dump_byte(dump, '"');
    for (; most > 0 && *text; most--, text++) {
        if (*text == '"' || *text == '\\')
            dump_byte(dump, '\\');
        dump_byte(dump, *text >= ' ' && *text <= '~' ? *text : '?');
    }
    dump_byte(dump, '"');
}

/* ,"name": */
static void dump_name(struct dump *dump, const char *name)
{
    dump_text(dump, ",\"");
    dump_text(dump, name);
    dump_text(dump, "\":");
}

static void dump_member(struct dump *dump, const char *name, int64_t number)
{
    dump_name(dump, name);
    dump_number(dump, number);
}

static void dump_words(struct dump *dump, const char *name, const char *text, size_t most)
{
    dump_name(dump, name);
    dump_string(dump, text, most);
}

/* Seconds since 1970. */
static void dump_time(struct dump *dump, const char *name, int64_t ns)
{
    const uint64_t us = (uint64_t)(dump->wall_ns + ns) / 1000;

    dump_name(dump, name);
    dump_digits(dump, us / 1000000, 10, 1);
    dump_byte(dump, '.');
    dump_digits(dump, us % 1000000, 10, 6);
}

/* ---- calls ---- */

static const char *const dump_states[] = {
    [DISTI_FLIGHT_BEGUN] = "begun",   [DISTI_FLIGHT_WAITING] = "waiting",
    [DISTI_FLIGHT_DONE] = "done",     [DISTI_FLIGHT_ENDED] = "done",
    [DISTI_FLIGHT_FAILED] = "failed", [DISTI_FLIGHT_REFUSED] = "refused"};

static void dump_times(struct dump *dump, const struct disti_flight_entry *entry)
{
    const int64_t begun = atomic_load(&entry->begun_ns), ended = atomic_load(&entry->ended_ns);

    if (begun)
        dump_time(dump, "begun", begun);
    if (ended)
        dump_time(dump, "ended", ended);
}

/* what: as it was when it was found to be that call's; the entry may be another's since. */
static void dump_entry(struct dump *dump, const struct disti_flight_entry *entry, uint64_t sequence,
                       uint64_t what)
{
    const unsigned state = (unsigned)(what >> 56), op = (unsigned)(what >> 48) & 0xff;
    const char *name = atomic_load(&entry->name);
    const char *collective = dist_collective_string((dist_collective)(what >> 32 & 0xff));

    dump_text(dump, "\n    {\"sequence\":");
    dump_number(dump, (int64_t)sequence);
    if (state == DISTI_FLIGHT_ENDED || !name)
        name = collective;
    dump_words(dump, "call", name, SIZE_MAX);
    dump_member(dump, "count", (int64_t)atomic_load(&entry->count));
    dump_words(dump, "dtype", dist_dtype_string((dist_dtype)(what >> 40 & 0xff)), SIZE_MAX);
    dump_words(dump, "op", op == DISTI_FLIGHT_OP_CREATED ? "created" : dist_op_string((dist_op)op),
               SIZE_MAX);
    dump_member(dump, "root", (int32_t)(uint32_t)what);
    dump_words(dump, "state", dump_states[state], SIZE_MAX);
    if (disti_collective_pair((dist_collective)(what >> 32 & 0xff)))
        dump_member(dump, "tag", atomic_load(&entry->tag));
    if (state == DISTI_FLIGHT_FAILED)
        dump_words(dump, "status", dist_status_string((dist_status)atomic_load(&entry->status)),
                   SIZE_MAX);
    if (state != DISTI_FLIGHT_ENDED)
        dump_times(dump, entry);
    dump_byte(dump, '}');
}

static bool dump_has(const struct disti_flight_entry *entry)
{
    return atomic_load(&entry->what) >> 56 != DISTI_FLIGHT_NONE;
}

/* Does the entry hold the call of that number? Not while it is written over. */
static bool dump_holds(const struct disti_flight_entry *entry, uint64_t sequence, uint64_t *what_p)
{
    *what_p = atomic_load(&entry->what);
    return *what_p >> 56 != DISTI_FLIGHT_NONE && atomic_load(&entry->sequence) == sequence &&
           atomic_load(&entry->what) == *what_p;
}

/* The newest sequence; false: there was no call. */
static bool dump_newest(const struct disti_flight_entry *entries, uint64_t mask, uint64_t *newest_p)
{
    bool any = false;

    *newest_p = 0;
    for (uint64_t i = 0; i <= mask; i++) {
        const uint64_t sequence = atomic_load(&entries[i].sequence);

        if (dump_has(&entries[i]) && sequence >= *newest_p)
            *newest_p = sequence;
        any = any || dump_has(&entries[i]);
    }
    return any;
}

/* Of so many entries the oldest is left out: calls that begin meanwhile write over those. */
#define DUMP_MARGIN 64

/* Oldest first. What is being written over at this moment is left out. */
static void dump_entries(struct dump *dump, const struct disti_flight_entry *entries, uint64_t mask)
{
    bool first = true;
    uint64_t newest, what, kept = mask - mask / DUMP_MARGIN;

    if (!dump_newest(entries, mask, &newest))
        return;
    for (uint64_t sequence = newest > kept ? newest - kept : 0; sequence <= newest; sequence++) {
        const struct disti_flight_entry *entry = &entries[sequence & mask];

        if (!dump_holds(entry, sequence, &what))
            continue;
        if (!first)
            dump_byte(dump, ',');
        dump_entry(dump, entry, sequence, what);
        first = false;
    }
}

static void dump_ring(struct dump *dump, const char *name, const struct disti_flight_ring *ring,
                      const struct disti_flight_entry *none)
{
    const struct disti_flight_entry *entries = atomic_load(&ring->entries);

    dump_name(dump, name);
    dump_byte(dump, '[');
    if (entries != none)
        dump_entries(dump, entries, ring->mask);
    dump_byte(dump, ']');
}

/* ---- groups ---- */

static void dump_members(struct dump *dump, const struct dist_group *group)
{
    dump_name(dump, "members");
    for (int r = 0; r < group->world_size; r++) {
        dump_byte(dump, r ? ',' : '[');
        dump_number(dump, group->members[r]);
    }
    dump_byte(dump, ']');
}

/* The job's name lets its owner into the store: its hash names the job as well. */
static uint64_t dump_job(const struct dist_group *group)
{
    const char *job = group->world->bootstrap.job;

    return disti_hash_text(DISTI_HASH_START, job);
}

static void dump_group(struct dump *dump, const struct dist_group *group)
{
    const struct disti_flight *flight = &group->flight;
    const char *waits_for = atomic_load(&flight->waits_for);

    dump_text(dump, "\n  {\"group\":");
    dump_number(dump, group->number);
    dump_text(dump, ",\"job\":\"");
    dump_digits(dump, dump_job(group), 16, 16);
    dump_byte(dump, '"');
    dump_member(dump, "rank", group->rank);
    dump_member(dump, "world_rank", group->world->rank);
    dump_members(dump, group);
    dump_words(dump, "backend", group->backend ? group->backend->name : "", SIZE_MAX);
    dump_member(dump, "timeout_ms", group->timeout_ms);
    if (waits_for && waits_for[0])
        dump_words(dump, "waits_for", waits_for, DISTI_FLIGHT_WAITS);
    if (atomic_load(&flight->failed))
        dump_words(dump, "error", group->cause, GROUP_TEXT);
    dump_ring(dump, "calls", &flight->calls, &flight->none);
    dump_ring(dump, "messages", &flight->messages, &flight->none);
    dump_byte(dump, '}');
}

static void dump_head(struct dump *dump, const struct disti_flight_head *head)
{
    dump_text(dump, "{\"format\":\"dist-flight\",\"version\":1");
    dump_words(dump, "libdist", DIST_VERSION_STRING, SIZE_MAX);
    dump_words(dump, "host", head->host, sizeof(head->host));
    dump_member(dump, "pid", getpid());
    dump_words(dump, "reason", head->reason, SIZE_MAX);
    dump_time(dump, "time", disti_now_ns());
}

static int64_t dump_wall(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec - disti_now_ns();
}

void disti_flight_compose(struct disti_flight_text *text, const struct disti_flight_head *head,
                          const struct dist_group *groups)
{
    struct dump dump = {.out = text, .wall_ns = dump_wall()};

    dump_head(&dump, head);
    dump_name(&dump, "groups");
    dump_byte(&dump, '[');
    for (const struct dist_group *group = groups; group; group = group->flight.next) {
        dump_group(&dump, group);
        if (group->flight.next)
            dump_byte(&dump, ',');
    }
    dump_text(&dump, "]}\n");
}
