/* SPDX-License-Identifier: BSD-3-Clause */
/* Running cases: one after the other, or many in flight; and comparing bits between ranks. */
#include "battery.h"
#include "tools/common/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Faults that a rank prints. */
#define RUN_FAULTS_SHOWN 5
/* Cases in flight hold no more memory than this, on each rank. */
#define RUN_FLIGHT_BYTES ((size_t)8 << 20)

void battery_begin(struct battery *b, const char *what)
{
    struct selftest_count *count = b->count;

    count->cases = b->cases;
    count->refusals = b->refusals;
    count->checks = b->checks;
    count->faults = b->faults;
    snprintf(count->now, sizeof(count->now), "%s", what);
    if (b->rank == 0 && b->ranks > 0)
        progress_show("%d rank%s, %ld cases: %s", b->ranks, b->ranks == 1 ? "" : "s", b->cases,
                      what);
    if (b->stuck_s)
        alarm((unsigned)b->stuck_s);
}

void battery_fault(struct battery *b, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    progress_clear();
    if (b->faults++ < RUN_FAULTS_SHOWN)
        fprintf(stderr, "rank %d: FAULT %s\n", b->rank, text);
}

bool battery_ok(struct battery *b, dist_status status, const char *what)
{
    b->checks++;
    if (status == DIST_OK)
        return true;
    battery_fault(b, "%s: %s: %s", what, dist_status_string(status), dist_last_error());
    return false;
}

/* ---- the same bits on every rank ---- */

static uint64_t run_hash(uint64_t hash, const unsigned char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ data[i]) * 0x100000001b3u;
    return hash;
}

static void run_note_bits(struct test_case *c)
{
    struct battery *b = c->b;
    uint64_t hash = 0xcbf29ce484222325u;

    if (!(c->operation->flags & OPERATION_AGREES))
        return;
    for (int i = 0; i < c->block_count; i++)
        hash = run_hash(hash, case_image(c, &c->out, c->blocks[i].at),
                        c->blocks[i].count * dist_dtype_size(c->data.dtype));
    b->hashes[b->hash_count] = hash;
    snprintf(b->hashed[b->hash_count++], sizeof(b->hashed[0]), "%s", case_name(c));
}

/* With nothing in flight, and at the same place on every rank. */
static void run_compare_bits(struct battery *b)
{
    uint64_t *all = battery_alloc((size_t)b->ranks * BATTERY_HASHES, sizeof(*all));

    if (battery_ok(b, dist_all_gather(b->group, b->hashes, all, BATTERY_HASHES, DIST_UINT64),
                   "comparing bits")) {
        for (int i = 0; i < b->ranks * BATTERY_HASHES; i++) {
            int at = i % BATTERY_HASHES;

            if (at < b->hash_count && all[i] != b->hashes[at])
                battery_fault(b, "%s: ranks %d and %d have different bits", b->hashed[at], b->rank,
                              i / BATTERY_HASHES);
        }
    }
    b->hash_count = 0;
    free(all);
}

/* ---- one case ---- */

static void run_finish(struct test_case *c, dist_status status)
{
    struct battery *b = c->b;

    if (battery_ok(b, status, case_name(c)))
        case_check(c);
    run_note_bits(c);
    case_free(c);
}

/* Waits for all works of a case that were started. Returns the first failure. */
static dist_status run_wait(struct test_case *c, dist_status status)
{
    for (int w = 0; w < c->works_needed; w++) {
        dist_status ended = c->works[w] ? dist_wait(c->works[w]) : DIST_OK;

        if (status == DIST_OK)
            status = ended;
    }
    return status;
}

static size_t run_bytes(const struct test_case *c)
{
    size_t blocks = c->operation->flags & OPERATION_BLOCKS ? (size_t)c->b->ranks : 1;

    return c->count * blocks * dist_dtype_size(c->data.dtype);
}

static void run_take_off(struct battery *b, struct test_case *c)
{
    dist_status status;

    if (b->mode == MODE_GROUP && b->flying == 0)
        battery_ok(b, dist_group_start(), "group_start");
    status = c->operation->call(c, b->mode == MODE_FLOOD ? c->works : NULL);
    battery_ok(b, status, case_name(c));
    b->flight[b->flying++] = c;
    b->flight_bytes += run_bytes(c);
    if (b->flying == BATTERY_FLIGHT || b->flight_bytes > RUN_FLIGHT_BYTES)
        battery_land(b);
}

void battery_run(struct battery *b, const struct operation *operation,
                 const struct variant *variant)
{
    struct test_case *c = case_new(b, operation, variant);

    b->cases++;
    battery_begin(b, case_name(c));
    if (b->mode == MODE_FLOOD || b->mode == MODE_GROUP) {
        run_take_off(b, c);
        return;
    }
    run_finish(c, run_wait(c, operation->call(c, b->mode == MODE_ASYNC ? c->works : NULL)));
    if (b->hash_count == BATTERY_HASHES)
        run_compare_bits(b);
}

/* Ranks wait in different orders, each in another than it started. */
static void run_wait_all(struct battery *b)
{
    for (int i = 0; i < b->flying; i++) {
        struct test_case *c = b->flight[(2 * b->flying - 1 - i - b->rank % b->flying) % b->flying];

        battery_ok(b, run_wait(c, DIST_OK), case_name(c));
    }
}

void battery_land(struct battery *b)
{
    if (b->flying && b->mode == MODE_FLOOD)
        run_wait_all(b);
    if (b->flying && b->mode == MODE_GROUP)
        battery_ok(b, dist_group_end(), "group_end");
    for (int i = 0; i < b->flying; i++) {
        run_finish(b->flight[i], DIST_OK);
        if (b->hash_count == BATTERY_HASHES)
            run_compare_bits(b);
    }
    b->flying = 0;
    b->flight_bytes = 0;
    if (b->hash_count)
        run_compare_bits(b);
}

/* ---- refusals ---- */

static void run_expect_refusal(struct test_case *c, dist_status status)
{
    struct battery *b = c->b;

    b->checks++;
    if (status != DIST_ERR_UNSUPPORTED && status != DIST_ERR_INVALID_ARGUMENT)
        battery_fault(b, "%s: is not supported, but was not refused: %s", case_name(c),
                      dist_status_string(status));
    else if (!*dist_last_error())
        battery_fault(b, "%s: was refused without a word", case_name(c));
    case_check_unchanged(c);
}

void battery_refused(struct battery *b, const struct operation *operation,
                     const struct variant *variant)
{
    struct test_case *c = case_new(b, operation, variant);

    battery_land(b);
    b->refusals++;
    battery_begin(b, case_name(c));
    run_expect_refusal(c, operation->call(c, NULL));
    run_expect_refusal(c, operation->call(c, c->works));
    if (c->works[0])
        battery_fault(b, "%s: was refused, but a work came of it", case_name(c));
    run_wait(c, DIST_OK);
    case_free(c);
}
