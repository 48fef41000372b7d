/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One rank runs ahead of the other ranks, which make the same calls later and block in them. The
 * transports are those in DIST_TRANSPORT. Exit 0 if all data are right.
 *
 *   ahead BACKEND reduces CALLS BYTES GROWTH     rank 0 has posted all CALLS all-reduces
 *   ahead BACKEND tags SENDS BYTES GROWTH        rank 0 has sent SENDS messages of one tag before
 *                                                the message that the other ranks receive first
 *   ahead BACKEND mixed CALLS BYTES GROWTH SENDS rank 0 has posted collectives of 1 to BYTES bytes
 *                                                and SENDS messages to each other rank, which
 *                                                receives in random order between collectives
 *   ahead BACKEND all CALLS BYTES GROWTH SENDS   as mixed, but every rank runs ahead
 *
 * GROWTH: maximum growth in MiB of the resident size of a late rank; 0 for no limit.
 */
#include <dist/dist.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RANKS_MAX 8
/* The values of data bytes are below PERIOD, so that a sum over all ranks fits a byte. PERIOD is
 * also the length of the pattern. */
#define PERIOD 31
#define TAGS 7
/* Messages have 1 to SEND_MOST bytes. */
#define SEND_MOST ((size_t)2 << 20)
#define LATE_MS 300

static dist_group *group;
static int rank, ranks, failures;
static bool everyone;
static int calls, sends;
static size_t largest;
static unsigned char *pattern; /* byte i is i * 7 % PERIOD; largest + PERIOD bytes */
static unsigned char *place;   /* the result of one call */
static unsigned char **places; /* the results of all calls, if every rank runs ahead */
static uint64_t seed;

static void check(dist_status status, const char *what)
{
    if (status == DIST_OK)
        return;
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, dist_last_error());
    exit(1);
}

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a + 1) * UINT64_C(0x9e3779b97f4a7c15) + b;

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static uint64_t chance(uint64_t below)
{
    seed = mix(seed, (uint64_t)rank);
    return seed % below;
}

/* Returns a random size from 1 to most, with a uniform number of bits. */
static size_t some_bytes(uint64_t number, size_t most)
{
    int bits = 0;
    size_t bytes;

    while (most >> bits)
        bits++;
    bytes = (size_t)1 << mix(number, 1) % (uint64_t)bits;
    bytes += mix(number, 2) % bytes;
    return bytes < most ? bytes : most;
}

/* ---- collectives */

enum kind { ALL_REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, KINDS };

struct call {
    enum kind kind;
    size_t count, out_bytes;
    unsigned char *out;
    dist_work *work;
};

static struct call call_of(int number, bool mixed)
{
    struct call call = {.kind = ALL_REDUCE, .count = largest};

    if (mixed) {
        call.kind = (enum kind)(mix((uint64_t)number, 3) % KINDS);
        call.count = some_bytes((uint64_t)number, largest);
        if (call.kind >= ALL_GATHER)
            call.count = call.count / (size_t)ranks + 1;
    }
    call.out_bytes = call.count;
    if (call.kind == ALL_GATHER || call.kind == ALL_TO_ALL)
        call.out_bytes *= (size_t)ranks;
    return call;
}

/* Returns the position in the pattern at which a rank's contribution begins. */
static size_t shift(int number, int of)
{
    return (size_t)(number * 13 + of * 5) % PERIOD;
}

static void call_post(struct call *call, int number, unsigned char *out)
{
    const unsigned char *in = pattern + shift(number, rank);
    size_t n = call->count;
    dist_status status = DIST_OK;

    call->out = out;
    if (call->kind == ALL_REDUCE)
        status = dist_all_reduce_async(group, in, out, n, DIST_UINT8, DIST_SUM, &call->work);
    if (call->kind == BROADCAST && rank == 0)
        memcpy(out, in, n);
    if (call->kind == BROADCAST)
        status = dist_broadcast_async(group, out, n, DIST_UINT8, 0, &call->work);
    if (call->kind == ALL_GATHER)
        status = dist_all_gather_async(group, in, out, n, DIST_UINT8, &call->work);
    if (call->kind == REDUCE_SCATTER)
        status = dist_reduce_scatter_async(group, in, out, n, DIST_UINT8, DIST_SUM, &call->work);
    if (call->kind == ALL_TO_ALL)
        status = dist_all_to_all_async(group, in, out, n, DIST_UINT8, &call->work);
    check(status, "a collective");
}

/* Returns byte i of block `block` of the expected result. */
static unsigned char call_expects(const struct call *call, int number, int block, size_t i)
{
    size_t from = i, sum = 0;

    if (call->kind == BROADCAST)
        return pattern[(shift(number, 0) + i) % PERIOD];
    if (call->kind == ALL_GATHER)
        return pattern[(shift(number, block) + i) % PERIOD];
    if (call->kind == ALL_TO_ALL)
        return pattern[(shift(number, block) + (size_t)rank * call->count + i) % PERIOD];
    if (call->kind == REDUCE_SCATTER)
        from += (size_t)rank * call->count;
    for (int r = 0; r < ranks; r++)
        sum += pattern[(shift(number, r) + from) % PERIOD];
    return (unsigned char)sum;
}

static void compare(const unsigned char *got, const unsigned char expected[PERIOD], size_t bytes,
                    const char *what, int number)
{
    unsigned char many[PERIOD * 512];
    size_t right = 0;

    for (size_t i = 0; i < sizeof(many); i++)
        many[i] = expected[i % PERIOD];
    while (bytes - right >= sizeof(many) && memcmp(got + right, many, sizeof(many)) == 0)
        right += sizeof(many);
    for (size_t i = right; i < bytes; i++) {
        if (got[i] == expected[i % PERIOD])
            continue;
        fprintf(stderr, "rank %d: %s %d has %d at byte %zu of %zu, not %d\n", rank, what, number,
                got[i], i, bytes, expected[i % PERIOD]);
        failures++;
        return;
    }
}

static void call_finish(struct call *call, int number)
{
    unsigned char expected[PERIOD];
    int blocks = (int)(call->out_bytes / call->count);

    check(dist_wait(call->work), "a collective");
    for (int b = 0; b < blocks; b++) {
        for (size_t i = 0; i < PERIOD; i++)
            expected[i] = call_expects(call, number, b, i);
        compare(call->out + (size_t)b * call->count, expected, call->count, "collective", number);
    }
}

/* ---- messages; number j is from one rank to another */

static uint64_t message_key(int j, int from, int to)
{
    return (uint64_t)j << 16 | (uint64_t)from << 8 | (uint64_t)to;
}

static int message_tag(int j, int from, int to)
{
    return (int)(mix(message_key(j, from, to), 4) % TAGS) + from * TAGS;
}

static size_t message_bytes(int j, int from, int to)
{
    return some_bytes(message_key(j, from, to), SEND_MOST);
}

static void messages_send(dist_work **works)
{
    for (int j = 0; j < sends; j++) {
        for (int to = 0; to < ranks; to++) {
            size_t bytes = message_bytes(j, rank, to);

            if (to != rank)
                check(dist_isend(group, pattern + shift(j, rank), bytes, DIST_UINT8, to,
                                 message_tag(j, rank, to), works++),
                      "a send");
        }
    }
}

/* Receives the next message of this tag from a rank. *next: number of the first message that may be
 * the next one of this tag; updated. */
static void message_receive(int from, int tag, int *next)
{
    unsigned char expected[PERIOD];
    int source = -1, j = *next;

    while (j < sends && message_tag(j, from, rank) != tag)
        j++;
    *next = j + 1;
    if (j >= sends)
        return;
    for (size_t i = 0; i < PERIOD; i++)
        expected[i] = pattern[(shift(j, from) + i) % PERIOD];
    check(dist_recv(group, place, message_bytes(j, from, rank), DIST_UINT8,
                    chance(4) ? from : DIST_ANY_SOURCE, tag, &source),
          "a receive");
    if (source != from)
        failures++;
    compare(place, expected, message_bytes(j, from, rank), "message", j);
}

/* ---- the cases */

/* Returns the peak resident size in MiB and resets it. */
static long resident_peak(void)
{
    FILE *status = fopen("/proc/self/status", "re"), *reset;
    char line[200];
    long peak = 0;

    while (status && fgets(line, sizeof(line), status))
        (void)!sscanf(line, "VmHWM: %ld", &peak);
    if (status)
        fclose(status);
    reset = fopen("/proc/self/clear_refs", "we");
    if (reset) {
        fputs("5", reset);
        fclose(reset);
    }
    return peak >> 10;
}

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

/* The rank that runs ahead posts all calls before it waits for one of them. */
static struct call *post_all(bool mixed)
{
    struct call *posted = calloc((size_t)calls + 1, sizeof(*posted));

    for (int i = 0; posted && i < calls; i++) {
        unsigned char *out;

        posted[i] = call_of(i, mixed);
        out = places ? places[i] : malloc(posted[i].out_bytes);
        if (!out)
            exit(1);
        call_post(&posted[i], i, out);
    }
    return posted ? posted : (exit(1), posted);
}

static void finish_all(struct call *posted)
{
    for (int i = 0; i < calls; i++) {
        call_finish(&posted[i], i);
        free(posted[i].out);
    }
    free(posted);
}

static void follow(int number, bool mixed)
{
    struct call call = call_of(number, mixed);

    call_post(&call, number, place);
    call_finish(&call, number);
}

static void run_reduces(void)
{
    if (rank == 0)
        finish_all(post_all(false));
    for (int i = 0; rank && i < calls; i++)
        follow(i, false);
}

static void run_tags(void)
{
    dist_work **works = calloc((size_t)calls * RANKS_MAX + RANKS_MAX, sizeof(*works));
    unsigned char expected[PERIOD];
    int count = 0;

    if (!works)
        exit(1);
    for (size_t i = 0; i < PERIOD; i++)
        expected[i] = pattern[i];
    for (int to = 1; rank == 0 && to < ranks; to++) {
        for (int i = 0; i <= calls; i++)
            check(dist_isend(group, pattern, i < calls ? largest : 1, DIST_UINT8, to, i < calls,
                             &works[count++]),
                  "a send");
    }
    while (count)
        check(dist_wait(works[--count]), "a send");
    for (int i = 0; rank && i <= calls; i++) {
        size_t bytes = i ? largest : 1;

        check(dist_recv(group, place, bytes, DIST_UINT8, 0, i > 0, NULL), "a receive");
        compare(place, expected, bytes, "message", i);
    }
    free(works);
}

/* Receives all messages and, if `collectives`, makes the collectives, in random order. */
static void run_late(bool collectives)
{
    int next[RANKS_MAX * TAGS] = {0}, call = 0, left;

    do {
        int lane = (int)chance((uint64_t)ranks * TAGS), from = lane / TAGS;

        if (collectives && call < calls && chance(16) == 0)
            follow(call++, true);
        else if (from != rank && (from == 0 || everyone) && next[lane] < sends)
            message_receive(from, lane, &next[lane]);
        left = collectives && call < calls;
        for (int i = 0; i < ranks * TAGS; i++)
            left += i / TAGS != rank && (i < TAGS || everyone) && next[i] < sends;
    } while (left);
}

static void run_mixed(void)
{
    dist_work **works = calloc((size_t)sends * RANKS_MAX + 1, sizeof(*works));
    struct call *posted = NULL;

    if (!works)
        exit(1);
    if (rank == 0 || everyone) {
        posted = post_all(true);
        messages_send(works);
    }
    if (rank || everyone)
        run_late(!posted);
    if (posted)
        finish_all(posted);
    for (int i = 0; works[i]; i++)
        check(dist_wait(works[i]), "a send");
    free(works);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"reduces", run_reduces}, {"tags", run_tags}, {"mixed", run_mixed}, {"all", run_mixed}};

static void (*case_of(const char *name))(void)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (strcmp(cases[i].name, name) == 0)
            return cases[i].run;
    }
    return NULL;
}

/* Allocates and touches all memory of the test before the resident size is measured. */
static void open_memory(void)
{
    size_t bytes = (largest > SEND_MOST ? largest : SEND_MOST) + (size_t)RANKS_MAX + PERIOD;

    bytes *= 2; /* blocks are rounded up */
    pattern = malloc(bytes);
    place = malloc(bytes);
    if (!pattern || !place)
        exit(1);
    for (size_t i = 0; i < bytes; i++)
        pattern[i] = (unsigned char)(i * 7 % PERIOD);
    memset(place, 0xff, bytes);
    places = everyone ? calloc((size_t)calls + 1, sizeof(*places)) : NULL;
    for (int i = 0; places && i < calls; i++) {
        bytes = call_of(i, true).out_bytes;
        places[i] = malloc(bytes);
        if (!places[i])
            exit(1);
        memset(places[i], 0xff, bytes);
    }
}

int main(int argc, char **argv)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    void (*run)(void) = argc >= 6 ? case_of(argv[2]) : NULL;
    long before, grown;

    if (!run)
        return 2;
    calls = atoi(argv[3]);
    largest = (size_t)atoll(argv[4]);
    sends = argc > 6 ? atoi(argv[6]) : 0;
    everyone = strcmp(argv[2], "all") == 0;
    options.backend = argv[1];
    check(dist_init_process_group(&options, &group), "init");
    rank = dist_get_rank(group);
    ranks = dist_get_world_size(group);
    if (ranks > RANKS_MAX)
        return 2;
    open_memory();
    check(dist_barrier(group), "a barrier");
    resident_peak();
    before = resident_peak();
    if (rank)
        pause_ms(LATE_MS);
    run();
    grown = resident_peak() - before;
    printf("rank %d grew by %ld MiB\n", rank, grown);
    if (rank && atol(argv[5]) && grown > atol(argv[5])) {
        fprintf(stderr, "rank %d grew by %ld MiB, more than %s\n", rank, grown, argv[5]);
        failures++;
    }
    check(dist_destroy_process_group(group), "destroy");
    free(pattern);
    free(place);
    free(places);
    return failures ? 1 : 0;
}
