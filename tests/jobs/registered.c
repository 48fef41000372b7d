/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * registered BACKEND RANKS PAIRS SEED: random collectives, two at a time, on adjacent areas of one
 * allocation, at any address; each rank registers some of the areas, independently of the other
 * ranks. Exit 0: results are right, and no byte outside a result has changed.
 */
#include <dist/dist.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AREAS 5
#define AREA_BYTES ((size_t)600 << 10)
#define SLAB_BYTES (AREAS * AREA_BYTES)
#define RANKS_MAX 8

static int ranks, pairs;
static const char *backend;
static uint64_t seed;

/* The state of this rank. */
static struct {
    dist_group *group;
    int rank;
    unsigned char *slab, *expected;
    size_t starts[AREAS + 1]; /* offsets of the areas in the slab */
    bool registered[AREAS];
    uint64_t common, own; /* random states: the same on all ranks, and this rank's own */
    int registrations;
} me;

static uint64_t chance(uint64_t *state, uint64_t below)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (x ^ x >> 31) % below;
}

static void check(dist_status status, const char *what)
{
    if (status == DIST_OK)
        return;
    fprintf(stderr, "rank %d: %s: %s\n", me.rank, what, dist_last_error());
    exit(1);
}

/* ---- areas ---- */

static void area_toggle(int area)
{
    unsigned char *memory = me.slab + me.starts[area];

    if (me.registered[area])
        check(dist_unregister(me.group, memory), "unregister");
    else
        check(dist_register(me.group, memory, me.starts[area + 1] - me.starts[area]), "register");
    me.registered[area] = !me.registered[area];
    me.registrations += me.registered[area];
}

/* Registers most areas most of the time, so that many calls use registered memory only. */
static void areas_change(void)
{
    int area = (int)chance(&me.own, AREAS);

    if (!me.registered[area] || chance(&me.own, 5) == 0)
        area_toggle(area);
}

static void areas_open(void)
{
    me.slab = malloc(SLAB_BYTES);
    me.expected = malloc(SLAB_BYTES);
    if (!me.slab || !me.expected)
        exit(99);
    for (int i = 1; i < AREAS; i++)
        me.starts[i] = (size_t)i * AREA_BYTES + chance(&me.own, 9000);
    me.starts[AREAS] = SLAB_BYTES;
    for (size_t i = 0; i < SLAB_BYTES; i++)
        me.slab[i] = me.expected[i] = (unsigned char)chance(&me.own, 256);
}

/* Returns a random place for `bytes` bytes in the area, often at one of its ends. */
static size_t area_place(int area, size_t bytes)
{
    size_t room = me.starts[area + 1] - me.starts[area] - bytes, at = chance(&me.own, room);

    switch (chance(&me.own, 3)) {
    case 0:
        at = 0;
        break;
    case 1:
        at = room;
        break;
    }
    return me.starts[area] + at;
}

/* ---- a call ---- */

enum what {
    ALL_REDUCE,
    REDUCE,
    REDUCE_SCATTER,
    BROADCAST,
    SCATTER,
    GATHER,
    ALL_GATHER,
    ALL_TO_ALL,
    WHATS
};

struct call {
    enum what what;
    int number, root;
    size_t count; /* bytes of a block */
    bool in_place;
    int area;       /* the area used, with the next one */
    size_t in, out; /* offsets in the slab */
};

/* Two calls are in progress at a time; `call` is the current one. */
static struct call both[2], *call;

/* Returns byte i of rank `from`'s block for rank `to`. */
static unsigned char value(int from, int to, size_t i)
{
    return (unsigned char)(i * 7 + i / 251 + (size_t)(from * 31 + to * 17 + call->number * 5));
}

static bool is_root(void)
{
    return me.rank == call->root;
}

static int in_blocks(void)
{
    switch (call->what) {
    case BROADCAST:
        return is_root();
    case SCATTER:
        return is_root() ? ranks : 0;
    case REDUCE_SCATTER:
    case ALL_TO_ALL:
        return ranks;
    default:
        return 1;
    }
}

static int out_blocks(void)
{
    switch (call->what) {
    case REDUCE:
        return is_root();
    case GATHER:
        return is_root() ? ranks : 0;
    case ALL_GATHER:
    case ALL_TO_ALL:
        return ranks;
    default:
        return 1;
    }
}

/* The offset of the shared block, in the longer operand, of an in-place call. */
static size_t in_place_offset(void)
{
    bool blocks = in_blocks() != out_blocks();

    return blocks ? (size_t)me.rank * call->count : 0;
}

static void call_place(void)
{
    size_t in = (size_t)in_blocks() * call->count, out = (size_t)out_blocks() * call->count;

    call->in = area_place(call->area, in > out ? in : out);
    call->out = call->in;
    if (call->what == BROADCAST)
        return;
    if (!call->in_place || !in || !out)
        call->out = area_place((call->area + 1) % AREAS, out);
    else if (in < out)
        call->in += in_place_offset();
    else
        call->out += in_place_offset();
}

static void call_choose(int number, int area)
{
    call->area = area % AREAS;
    call->number = number;
    call->what = (enum what)chance(&me.common, WHATS);
    call->root = (int)chance(&me.common, (uint64_t)ranks);
    call->count = 1 + chance(&me.common, chance(&me.common, 4) ? 60000 : 3000);
    if (call->what == ALL_REDUCE || call->what == REDUCE || call->what == BROADCAST)
        call->count *= 1 + chance(&me.common, 8);
    call->in_place = call->what != ALL_TO_ALL && chance(&me.common, 2);
    call_place();
}

static unsigned char result(int block, size_t i)
{
    int from = call->what == BROADCAST || call->what == SCATTER ? call->root : block;
    int to = call->what == SCATTER || call->what == ALL_TO_ALL || call->what == REDUCE_SCATTER
                 ? me.rank
                 : 0;
    unsigned sum = 0;

    if (call->what != ALL_REDUCE && call->what != REDUCE && call->what != REDUCE_SCATTER)
        return value(from, to, i);
    for (int r = 0; r < ranks; r++)
        sum += value(r, to, i);
    return (unsigned char)sum;
}

static void call_fill(void)
{
    bool blocks = in_blocks() == ranks;

    for (int b = 0; b < in_blocks(); b++) {
        for (size_t i = 0; i < call->count; i++)
            me.slab[call->in + (size_t)b * call->count + i] = value(me.rank, blocks ? b : 0, i);
    }
    memcpy(me.expected + call->in, me.slab + call->in, (size_t)in_blocks() * call->count);
    for (int b = 0; b < out_blocks(); b++) {
        for (size_t i = 0; i < call->count; i++)
            me.expected[call->out + (size_t)b * call->count + i] = result(b, i);
    }
}

static dist_status call_start(dist_work **work_p)
{
    void *in = in_blocks() ? me.slab + call->in : NULL;
    void *out = out_blocks() ? me.slab + call->out : NULL;

    switch (call->what) {
    case ALL_REDUCE:
        return dist_all_reduce_async(me.group, in, out, call->count, DIST_UINT8, DIST_SUM, work_p);
    case REDUCE:
        return dist_reduce_async(me.group, in, out, call->count, DIST_UINT8, DIST_SUM, call->root,
                                 work_p);
    case REDUCE_SCATTER:
        return dist_reduce_scatter_async(me.group, in, out, call->count, DIST_UINT8, DIST_SUM,
                                         work_p);
    case BROADCAST:
        return dist_broadcast_async(me.group, out, call->count, DIST_UINT8, call->root, work_p);
    case SCATTER:
        return dist_scatter_async(me.group, in, out, call->count, DIST_UINT8, call->root, work_p);
    case GATHER:
        return dist_gather_async(me.group, in, out, call->count, DIST_UINT8, call->root, work_p);
    case ALL_GATHER:
        return dist_all_gather_async(me.group, in, out, call->count, DIST_UINT8, work_p);
    default:
        return dist_all_to_all_async(me.group, in, out, call->count, DIST_UINT8, work_p);
    }
}

static void call_check(void)
{
    size_t at = 0;

    if (memcmp(me.slab, me.expected, SLAB_BYTES) == 0)
        return;
    while (me.slab[at] == me.expected[at])
        at++;
    fprintf(stderr, "rank %d: byte %zu is %d, not %d\n", me.rank, at, me.slab[at], me.expected[at]);
    for (int i = 0; i < 2; i++)
        fprintf(stderr, "  call %d: what %d, count %zu, root %d, in place %d, in %zu, out %zu\n",
                both[i].number, (int)both[i].what, both[i].count, both[i].root, both[i].in_place,
                both[i].in, both[i].out);
    exit(1);
}

static void two_calls(int number)
{
    int area = (int)chance(&me.own, AREAS);
    dist_work *works[2];

    for (int i = 0; i < 2; i++) {
        call = &both[i];
        call_choose(2 * number + i, area + 2 * i);
        call_fill();
    }
    for (int i = 0; i < 2; i++) {
        call = &both[i];
        check(call_start(&works[i]), "start");
    }
    for (int i = 0; i < 2; i++)
        check(dist_wait(works[i]), "call");
    call_check();
}

static int run(int rank, void *arg)
{
    struct dist_options options = DIST_OPTIONS_INIT;

    (void)arg;
    me.rank = rank;
    me.common = seed;
    me.own = seed * 1000 + (uint64_t)rank;
    options.backend = backend;
    check(dist_init_process_group(&options, &me.group), "init");
    areas_open();
    for (int number = 0; number < pairs; number++) {
        areas_change();
        two_calls(number);
    }
    for (int i = 0; i < AREAS; i++) {
        if (me.registered[i])
            area_toggle(i);
    }
    call_check();
    free(me.slab);
    free(me.expected);
    check(dist_destroy_process_group(me.group), "destroy");
    return me.registrations == 0;
}

int main(int argc, char **argv)
{
    int code = 1;

    if (argc != 5 || atoi(argv[2]) > RANKS_MAX)
        return 2;
    backend = argv[1];
    ranks = atoi(argv[2]);
    pairs = atoi(argv[3]);
    seed = strtoull(argv[4], NULL, 10);
    if (dist_spawn(ranks, run, NULL, &code) != DIST_OK)
        fprintf(stderr, "%s\n", dist_last_error());
    return code;
}
