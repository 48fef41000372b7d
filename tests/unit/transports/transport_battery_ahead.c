/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases of the battery about a rank that is ahead: the memory that the other rank uses for its
 * messages is bounded. */
#include "transport_battery_rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define AHEAD_KEPT ((size_t)96 << 20) /* default of options.kept */
#define AHEAD_LINGER_MS 200

/* Returns the bytes of this process that are resident. */
static size_t ahead_resident(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    size_t pages = 0, resident = 0;

    if (!file || fscanf(file, "%zu %zu", &pages, &resident) != 2)
        abort();
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* False under sanitizers and checkers, whose own memory exceeds the measured memory by far. */
static bool ahead_is_measured(void)
{
#ifdef __SANITIZE_ADDRESS__
    return false;
#else
    return !getenv("CHECK_WATCHED");
#endif
}

static bool ahead_bounded(struct battery_rank *rank, size_t before)
{
    size_t most = rank->options->kept ? rank->options->kept : AHEAD_KEPT;
    size_t after = ahead_resident();
    size_t kept = after > before ? after - before : 0;

    return battery_expect(rank, kept <= most || !ahead_is_measured(),
                          "buffers %zu KiB of early messages, more than %zu", kept >> 10,
                          most >> 10);
}

/* A permutation of 0 to count - 1 that looks random; count is a power of 2. */
static int ahead_permuted(int i, int count)
{
    return (i * 77 + 13) % count;
}

static bool ahead_sender(struct battery_rank *rank, const unsigned char *data, size_t bytes,
                         int count)
{
    struct dist_request *sends = battery_alloc(sizeof(*sends) * (size_t)count);
    bool ok;

    for (int i = 0; i < count; i++)
        battery_send(rank, &sends[i], 1, (uint64_t)i, data, bytes);
    ok = battery_wait_ok(rank, sends, count);
    free(sends);
    return ok;
}

static bool ahead_receiver(struct battery_rank *rank, unsigned char *data, size_t bytes, int count)
{
    size_t before = ahead_resident();
    bool ok;

    battery_progress_ms(rank, AHEAD_LINGER_MS);
    ok = ahead_bounded(rank, before);
    for (int i = 0; i < count && ok; i++) {
        struct dist_request receive;

        battery_recv(rank, &receive, 0, (uint64_t)ahead_permuted(i, count), data, bytes);
        ok = battery_wait_ok(rank, &receive, 1);
        if (i % (count / 16) == 0)
            ok = ok && ahead_bounded(rank, before) && battery_check(rank, data, bytes, 0, 1, 1);
    }
    return ok;
}

/* Sends far more than a rank may buffer, before the receives and in another order. Brief: without
 * the longest messages. */
static bool ahead_sizes(struct battery_rank *rank)
{
    static const struct {
        size_t bytes;
        int count;
    } sizes[] = {{(size_t)8 << 20, 16}, {(size_t)1 << 20, 32}, {70000, 512}, {4000, 8192}};
    bool ok = true;

    for (size_t i = battery_brief(rank) ? 1 : 0; i < sizeof(sizes) / sizeof(sizes[0]) && ok; i++) {
        unsigned char *data = battery_alloc(sizes[i].bytes);

        battery_fill(data, sizes[i].bytes, 0, 1, 1);
        ok = rank->rank == 0 ? ahead_sender(rank, data, sizes[i].bytes, sizes[i].count)
                             : ahead_receiver(rank, data, sizes[i].bytes, sizes[i].count);
        ok = ok && battery_meet(rank);
        free(data);
    }
    return ok;
}

#define AHEAD_EACH 40

/* Each rank is ahead of every other rank, and all receive the last message first. */
static bool ahead_both(struct battery_rank *rank)
{
    size_t bytes = 300000;
    unsigned char *out = battery_alloc(bytes), *in = battery_alloc(bytes);
    struct dist_request *sends =
        battery_alloc(sizeof(*sends) * AHEAD_EACH * TRANSPORT_BATTERY_RANKS_MAX);
    bool ok = true;
    int count = 0;

    battery_fill(out, bytes, 7, 7, 7);
    for (int i = 0; i < AHEAD_EACH; i++) {
        for (int peer = 0; peer < rank->ranks; peer++) {
            if (peer != rank->rank)
                battery_send(rank, &sends[count++], peer, (uint64_t)i, out, bytes);
        }
    }
    for (int i = AHEAD_EACH; i-- > 0 && ok;) {
        for (int peer = 0; peer < rank->ranks && ok; peer++) {
            struct dist_request receive;

            if (peer == rank->rank)
                continue;
            battery_recv(rank, &receive, peer, (uint64_t)i, in, bytes);
            ok = battery_wait_ok(rank, &receive, 1) && battery_check(rank, in, bytes, 7, 7, 7);
        }
    }
    ok = ok && battery_wait_ok(rank, sends, count);
    free(out);
    free(in);
    free(sends);
    return ok;
}

const struct battery_case battery_ahead_cases[] = {
    {.name = "ahead", .run = ahead_sizes, .ranks = 2, .opened = true, .processes = true},
    {.name = "ahead_both", .run = ahead_both, .opened = true},
    {.name = NULL},
};
