/* SPDX-License-Identifier: BSD-3-Clause */
/* Point to point: pairs that exchange, everybody to one from any source, and to oneself. */
#include "battery.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * What a pair exchanges each way: the first and the last have one tag and must stay in order, the
 * one between has another, and is asked for first where nobody waits for anything. Without tags all
 * stay in order.
 */
#define EXCHANGE_MESSAGES 3

/*
 * Who exchanges with whom: rank and partner add up to the root, round the world. So every rank has
 * one partner, which has it, and where it is the rank itself it sends to itself.
 */
static int exchange_partner(const struct test_case *c, int rank)
{
    int ranks = c->b->ranks;

    return (c->root - rank + ranks) % ranks;
}

/* The messages are these parts of the row, one after the other. */
static size_t exchange_count(const struct test_case *c, int message)
{
    return message == 1 ? c->count / 3 : c->count;
}

static size_t exchange_offset(const struct test_case *c, int message)
{
    size_t offset = 0;

    for (int m = 0; m < message; m++)
        offset += exchange_count(c, m);
    return offset;
}

static void exchange_shape(struct test_case *c)
{
    size_t total = exchange_offset(c, EXCHANGE_MESSAGES);

    case_in(c, total);
    case_give(c, &c->in, 0, 0, total);
    case_out(c, total);
    for (int m = 0; m < EXCHANGE_MESSAGES; m++)
        case_expect(c, exchange_offset(c, m), exchange_count(c, m), exchange_partner(c, c->b->rank),
                    exchange_offset(c, m));
    c->works_needed = 2 * EXCHANGE_MESSAGES;
    c->sources = battery_alloc(EXCHANGE_MESSAGES, sizeof(*c->sources));
    for (int m = 0; m < EXCHANGE_MESSAGES; m++)
        c->sources[m] = -2;
}

static bool exchange_has_tags(const struct test_case *c)
{
    return !(c->b->lacks & DIST_LACKS_TAGS);
}

static int exchange_tag(const struct test_case *c, int message)
{
    return message == 1 && exchange_has_tags(c) ? c->tag + 1000 : c->tag;
}

static dist_status exchange_send(struct test_case *c, int m, dist_work **work_p)
{
    const void *from = case_at(c, &c->in, exchange_offset(c, m));
    int partner = exchange_partner(c, c->b->rank);

    if (!work_p)
        return dist_send(c->b->group, from, exchange_count(c, m), c->data.dtype, partner,
                         exchange_tag(c, m));
    return dist_isend(c->b->group, from, exchange_count(c, m), c->data.dtype, partner,
                      exchange_tag(c, m), work_p);
}

static dist_status exchange_recv(struct test_case *c, int m, dist_work **work_p)
{
    void *to = case_at(c, &c->out, exchange_offset(c, m));
    int partner = exchange_partner(c, c->b->rank);

    if (!work_p)
        return dist_recv(c->b->group, to, exchange_count(c, m), c->data.dtype, partner,
                         exchange_tag(c, m), &c->sources[m]);
    return dist_irecv(c->b->group, to, exchange_count(c, m), c->data.dtype, partner,
                      exchange_tag(c, m), &c->sources[m], work_p);
}

static dist_status exchange_half(struct test_case *c, bool send, bool waits, dist_work **works)
{
    dist_status status = DIST_OK;

    for (int i = 0; i < EXCHANGE_MESSAGES && status == DIST_OK; i++) {
        int m = waits || send || i == 2 || !exchange_has_tags(c) ? i : 1 - i;
        dist_work **work_p = works ? &works[i] : NULL;

        status = send ? exchange_send(c, m, work_p) : exchange_recv(c, m, work_p);
    }
    return status;
}

/*
 * A plain send may block until it is received: the lower rank of a pair sends first, and a rank
 * starts the sends to itself without waiting. In works, and between group_start and group_end, the
 * order does not matter.
 */
static dist_status exchange_call(struct test_case *c, dist_work **works)
{
    int partner = exchange_partner(c, c->b->rank);
    bool first = partner > c->b->rank || c->data.seed % 2;
    bool plain = !works && c->b->mode == MODE_BLOCKING;
    dist_status status;

    if (plain)
        first = partner > c->b->rank;
    if (plain && partner == c->b->rank) {
        status = exchange_half(c, true, true, c->works);
        return status == DIST_OK ? exchange_half(c, false, true, NULL) : status;
    }
    status = exchange_half(c, first, plain, works);
    if (status != DIST_OK)
        return status;
    return exchange_half(c, !first, plain, works ? works + EXCHANGE_MESSAGES : NULL);
}

static void exchange_check(struct test_case *c)
{
    int partner = exchange_partner(c, c->b->rank);

    for (int m = 0; m < EXCHANGE_MESSAGES; m++) {
        c->b->checks++;
        if (c->sources[m] != partner)
            battery_fault(c->b, "%s: message %d came from rank %d, says recv; it should be %d",
                          case_name(c), m, c->sources[m], partner);
    }
}

const struct operation operation_exchange = {
    .name = "send",
    .collective = DIST_COLL_SEND,
    .flags = OPERATION_ROOTED,
    .shape = exchange_shape,
    .call = exchange_call,
    .check = exchange_check,
};

/* ---- everybody to one, from any source ---- */

/*
 * The root does not know who comes first: a message's sender is told with it. It names them where
 * the backend wants that.
 */
static void any_shape(struct test_case *c)
{
    int ranks = c->b->ranks;

    case_in(c, c->count);
    case_give(c, &c->in, 0, 0, c->count);
    c->works_needed = 1;
    if (c->root != c->b->rank)
        return;
    case_out(c, (size_t)ranks * c->count);
    c->works_needed = ranks + 1;
    c->sources = battery_alloc((size_t)ranks, sizeof(*c->sources));
    for (int r = 0; r < ranks; r++)
        c->sources[r] = -2;
}

/* The root's own message to itself is started first, since it cannot wait for it. */
static dist_status any_call(struct test_case *c, dist_work **works)
{
    bool root = c->root == c->b->rank, plain = !works && c->b->mode == MODE_BLOCKING;
    dist_work **own = root && plain ? c->works : works;
    dist_status status;

    if (own)
        status = dist_isend(c->b->group, c->give, c->count, c->data.dtype, c->root, c->tag, own);
    else
        status = dist_send(c->b->group, c->give, c->count, c->data.dtype, c->root, c->tag);
    for (int r = 0; r < c->b->ranks && root && status == DIST_OK; r++) {
        void *to = case_at(c, &c->out, (size_t)r * c->count);
        int from = c->b->lacks & DIST_LACKS_ANY_SOURCE ? r : DIST_ANY_SOURCE;

        if (works)
            status = dist_irecv(c->b->group, to, c->count, c->data.dtype, from, c->tag,
                                &c->sources[r], &works[r + 1]);
        else
            status =
                dist_recv(c->b->group, to, c->count, c->data.dtype, from, c->tag, &c->sources[r]);
    }
    return status;
}

/* Each rank came once, with what is its own. */
static void any_check(struct test_case *c)
{
    for (int r = 0; r < c->b->ranks && c->sources; r++) {
        int source = c->sources[r], times = 0;

        for (int other = 0; other < c->b->ranks; other++)
            times += c->sources[other] == r;
        c->b->checks++;
        if (times != 1)
            battery_fault(c->b, "%s: rank %d came %d times", case_name(c), r, times);
        if (source >= 0 && source < c->b->ranks)
            case_expect(c, (size_t)r * c->count, c->count, source, 0);
    }
}

const struct operation operation_any_source = {
    .name = "recv",
    .collective = DIST_COLL_RECV,
    .flags = OPERATION_ROOTED | OPERATION_BLOCKS,
    .shape = any_shape,
    .call = any_call,
    .check = any_check,
};

/* ---- what a backend says that it lacks ---- */

static void lacks_refused(struct battery *b, dist_status status, const dist_work *work,
                          const char *what)
{
    b->checks++;
    b->refusals++;
    if (status != DIST_ERR_UNSUPPORTED)
        battery_fault(b, "%s: the backend lacks it, but it was not refused: %s", what,
                      dist_status_string(status));
    else if (!strstr(dist_last_error(), b->backend))
        battery_fault(b, "%s: the refusal does not name the backend: %s", what, dist_last_error());
    if (work)
        battery_fault(b, "%s: was refused, but a work came of it", what);
}

/* Refused before anybody is told: the other ranks do nothing about it. */
void cases_lacks(struct battery *b)
{
    dist_work *work = NULL;
    int32_t number = b->rank;

    if (b->lacks & DIST_LACKS_ANY_SOURCE)
        lacks_refused(b,
                      dist_irecv(b->group, &number, 1, DIST_INT32, DIST_ANY_SOURCE, 0, NULL, &work),
                      work, "a receive from any source");
    if (b->lacks & DIST_LACKS_TAGS) {
        lacks_refused(b, dist_send(b->group, &number, 1, DIST_INT32, b->rank, 1), NULL,
                      "a send with tag 1");
        lacks_refused(b, dist_irecv(b->group, &number, 1, DIST_INT32, b->rank, 1, NULL, &work),
                      work, "a receive with tag 1");
    }
    b->checks++;
    if (number != b->rank)
        battery_fault(b, "a receive that was refused wrote");
    battery_ok(b, dist_barrier(b->group), "barrier after refusals");
}

/* ---- barrier: nothing to see but that it ends ---- */

static void barrier_shape(struct test_case *c)
{
    (void)c;
}

static dist_status barrier_call(struct test_case *c, dist_work **works)
{
    return works ? dist_barrier_async(c->b->group, works) : dist_barrier(c->b->group);
}

const struct operation operation_barrier = {
    .name = "barrier",
    .collective = DIST_COLL_BARRIER,
    .shape = barrier_shape,
    .call = barrier_call,
};

/* Reductions of special values: NaNs, infinities, signed zeros. */

/* Elements of a block: longer than a vector of the CPU, and not a whole number of them. */
#define SPECIAL_COUNT 83
/* Elements behind the result, for a backend that writes too much: the battery reports it. */
#define SPECIAL_SPARE 8

/* What element i holds is i % SPECIAL_KINDS. */
enum {
    SPECIAL_NAN,        /* NaN on rank `who`, 1 on all others */
    SPECIAL_INFINITY,   /* infinity there, 1 on all others */
    SPECIAL_INFINITIES, /* infinity there, -infinity on the next rank, 1 on all others */
    SPECIAL_NANS,       /* NaN on every rank, with other bits on each */
    SPECIAL_ZEROS,      /* 0 on even ranks, -0 on odd ranks */
    SPECIAL_KINDS
};

struct special {
    struct battery *b;
    dist_collective collective;
    dist_dtype dtype;
    dist_op op;
    int who; /* also the root */
};

/* ---- the values ---- */

static unsigned special_mantissa(dist_dtype dtype)
{
    switch (dtype) {
    case DIST_FLOAT32:
        return 23;
    case DIST_FLOAT64:
        return 52;
    case DIST_FLOAT16:
        return 10;
    default:
        return 7;
    }
}

/* The bits of rank's element i. */
static uint64_t special_bits(const struct special *s, int rank, size_t i)
{
    unsigned bits = 8 * (unsigned)dist_dtype_size(s->dtype), mantissa = special_mantissa(s->dtype);
    uint64_t minus = UINT64_C(1) << (bits - 1);
    uint64_t infinity = minus - (UINT64_C(1) << mantissa);
    uint64_t one = (minus >> 1) - (UINT64_C(1) << mantissa);
    uint64_t nan = infinity | UINT64_C(1) << (mantissa - 1);

    switch (i % SPECIAL_KINDS) {
    case SPECIAL_NAN:
        return rank == s->who ? nan : one;
    case SPECIAL_INFINITY:
        return rank == s->who ? infinity : one;
    case SPECIAL_INFINITIES:
        if (rank == s->who)
            return infinity;
        return rank == (s->who + 1) % s->b->ranks ? infinity | minus : one;
    case SPECIAL_NANS:
        return nan | (uint64_t)(rank + 1) % 32 | (rank % 2 ? minus : 0);
    default:
        return rank % 2 ? minus : 0;
    }
}

/* -0 is less than 0. */
static bool special_less(double a, double b)
{
    return a < b || (a == b && signbit(a) && !signbit(b));
}

static double special_step(dist_op op, double a, double b)
{
    if (isnan(a) || isnan(b))
        return (double)NAN;
    switch (op) {
    case DIST_PROD:
        return a * b;
    case DIST_MIN:
        return special_less(b, a) ? b : a;
    case DIST_MAX:
        return special_less(a, b) ? b : a;
    default:
        return a + b;
    }
}

static double special_expected(const struct special *s, size_t i)
{
    double result = data_float(s->dtype, special_bits(s, 0, i));

    for (int r = 1; r < s->b->ranks; r++)
        result = special_step(s->op, result, data_float(s->dtype, special_bits(s, r, i)));
    return s->op == DIST_AVG ? result / s->b->ranks : result;
}

/* ---- the calls ---- */

static bool special_blocks(const struct special *s)
{
    return s->collective == DIST_COLL_REDUCE_SCATTER;
}

static dist_status special_call(const struct special *s, const void *in, void *out)
{
    switch (s->collective) {
    case DIST_COLL_ALL_REDUCE:
        return dist_all_reduce(s->b->group, in, out, SPECIAL_COUNT, s->dtype, s->op);
    case DIST_COLL_REDUCE:
        return dist_reduce(s->b->group, in, out, SPECIAL_COUNT, s->dtype, s->op, s->who);
    default:
        return dist_reduce_scatter(s->b->group, in, out, SPECIAL_COUNT, s->dtype, s->op);
    }
}

static const char *special_name(const struct special *s)
{
    static char name[80];

    snprintf(name, sizeof(name), "%s %s %s of special values",
             dist_collective_string(s->collective), dist_dtype_string(s->dtype),
             dist_op_string(s->op));
    return name;
}

/* A backend that says so may lose NaNs, and signs of zeros, in minima and maxima. */
static bool special_right(const struct special *s, double expected, double is)
{
    bool loses = (s->b->lacks & DIST_LACKS_NAN) && (s->op == DIST_MIN || s->op == DIST_MAX);

    if (isnan(expected))
        return isnan(is) || loses;
    return is == expected && (loses || !signbit(is) == !signbit(expected));
}

static void special_check(const struct special *s, const unsigned char *out)
{
    size_t first = special_blocks(s) ? (size_t)s->b->rank * SPECIAL_COUNT : 0;
    size_t size = dist_dtype_size(s->dtype);

    s->b->checks++;
    for (size_t i = 0; i < SPECIAL_COUNT; i++) {
        double expected = special_expected(s, first + i), is;
        uint64_t bits = 0;

        memcpy(&bits, out + i * size, size);
        is = data_float(s->dtype, bits);
        if (special_right(s, expected, is))
            continue;
        battery_fault(s->b, "%s, those of rank %d: element %zu is %g, should be %g",
                      special_name(s), s->who, first + i, is, expected);
        return;
    }
}

static void special_run(const struct special *s)
{
    size_t size = dist_dtype_size(s->dtype);
    size_t count = SPECIAL_COUNT * (special_blocks(s) ? (size_t)s->b->ranks : 1);
    unsigned char *in = battery_alloc(count, size);
    unsigned char *out = battery_alloc(SPECIAL_COUNT + SPECIAL_SPARE, size);

    s->b->cases++;
    battery_begin(s->b, special_name(s));
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = special_bits(s, s->b->rank, i);

        memcpy(in + i * size, &bits, size);
    }
    battery_ok(s->b, special_call(s, in, out), special_name(s));
    if (s->collective != DIST_COLL_REDUCE || s->b->rank == s->who)
        special_check(s, out);
    free(in);
    free(out);
}

/* ---- all of them ---- */

void cases_special(struct battery *b)
{
    static const dist_collective collectives[] = {DIST_COLL_ALL_REDUCE, DIST_COLL_REDUCE,
                                                  DIST_COLL_REDUCE_SCATTER};
    struct special s = {.b = b};

    for (int i = 0; i < 3 * DIST_DTYPE_COUNT * DIST_OP_COUNT; i++) {
        s.collective = collectives[i % 3];
        s.op = (dist_op)(i / 3 % DIST_OP_COUNT);
        s.dtype = (dist_dtype)(i / 3 / DIST_OP_COUNT);
        if (!data_is_float(s.dtype) || s.op > DIST_MAX ||
            dist_backend_query(b->backend, s.collective, s.dtype, s.op) != DIST_OK)
            continue;
        for (s.who = 0; s.who<b->ranks; s.who += b->ranks> 3 ? 2 : 1)
            special_run(&s);
    }
}

/* Works: polled, waited for in part, told of their end, and started again and again. */

#define WORKS_COUNT 5003

/* An all-reduce of int32 in place, with its result checked at the end. */
struct works_data {
    struct data data;
    int32_t *numbers;
};

static void works_fill(struct battery *b, struct works_data *d)
{
    if (!d->numbers)
        d->numbers = battery_alloc(WORKS_COUNT, sizeof(*d->numbers));
    d->data = (struct data){.seed = ++b->seed, .dtype = DIST_INT32, .op = DIST_SUM};
    data_fill(&d->data, b->rank, 0, WORKS_COUNT, d->numbers);
}

static void works_check(struct battery *b, const struct works_data *d, const char *what)
{
    double expected, found;

    b->checks++;
    for (size_t i = 0; i < WORKS_COUNT; i++) {
        if (data_reduced(&d->data, b->ranks, i, &d->numbers[i], &expected, &found))
            continue;
        battery_fault(b, "%s: element %zu is %.9g, should be %.9g", what, i, found, expected);
        return;
    }
}

static dist_work *works_start(struct battery *b, struct works_data *d)
{
    dist_work *work = NULL;

    works_fill(b, d);
    battery_ok(b,
               dist_all_reduce_async(b->group, d->numbers, d->numbers, WORKS_COUNT, DIST_INT32,
                                     DIST_SUM, &work),
               "starting a work");
    return work;
}

static void works_polled(struct battery *b)
{
    struct works_data d = {.numbers = NULL};
    dist_work *work = works_start(b, &d);
    bool done = false;

    while (work && !done && battery_ok(b, dist_test(work, &done), "test"))
        sched_yield();
    if (work && battery_ok(b, dist_wait(work), "wait after test"))
        works_check(b, &d, "a work that was polled");
    free(d.numbers);
}

static void works_waited_for_in_part(struct battery *b)
{
    struct works_data d = {.numbers = NULL};
    dist_work *work = works_start(b, &d);
    dist_status status = DIST_IN_PROGRESS;

    while (work && status == DIST_IN_PROGRESS)
        status = dist_wait_for(work, 1);
    if (work && battery_ok(b, status, "wait_for"))
        works_check(b, &d, "a work that was waited for in part");
    free(d.numbers);
}

/* A work that cannot end stays as it was; after its counterpart has come it ends. */
static void works_in_progress(struct battery *b)
{
    int32_t number = -1, mine = b->rank;
    int tag = b->lacks & DIST_LACKS_TAGS ? 0 : 7;
    dist_work *work = NULL;

    if (dist_backend_query(b->backend, DIST_COLL_RECV, DIST_INT32, DIST_SUM) != DIST_OK)
        return;
    battery_ok(b, dist_irecv(b->group, &number, 1, DIST_INT32, b->rank, tag, NULL, &work), "irecv");
    b->checks++;
    if (work && dist_wait_for(work, 0) != DIST_IN_PROGRESS)
        battery_fault(b, "a receive ended before its message was sent");
    else
        battery_ok(b, dist_send(b->group, &mine, 1, DIST_INT32, b->rank, tag), "send to oneself");
    if (work && battery_ok(b, dist_wait(work), "wait") && number != mine)
        battery_fault(b, "a receive gave %d, not %d", number, mine);
}

struct works_told {
    int times;
    dist_status status;
};

static void works_tell(void *arg, dist_status status)
{
    struct works_told *told = arg;

    told->status = status;
    __atomic_add_fetch(&told->times, 1, __ATOMIC_RELEASE);
}

static void works_told_of_their_end(struct battery *b)
{
    struct works_told told = {.status = DIST_IN_PROGRESS};
    struct works_data d = {.numbers = NULL};
    dist_work *work = works_start(b, &d);

    if (work)
        battery_ok(b, dist_on_complete(work, works_tell, &told), "on_complete");
    if (work && battery_ok(b, dist_wait(work), "wait")) {
        works_check(b, &d, "a work that tells its end");
        b->checks++;
        if (__atomic_load_n(&told.times, __ATOMIC_ACQUIRE) != 1 || told.status != DIST_OK)
            battery_fault(b, "on_complete: called %d times, with %s", told.times,
                          dist_status_string(told.status));
    }
    free(d.numbers);
}

static void works_persistent(struct battery *b)
{
    struct works_data d = {.numbers = NULL};
    dist_work *work = NULL;

    works_fill(b, &d);
    if (!battery_ok(b,
                    dist_all_reduce_init(b->group, d.numbers, d.numbers, WORKS_COUNT, DIST_INT32,
                                         DIST_SUM, &work),
                    "all_reduce_init"))
        return;
    for (int round = 0; round < 4; round++) {
        works_fill(b, &d);
        if (!battery_ok(b, dist_start(work), "start"))
            break;
        if (battery_ok(b, dist_wait(work), "wait for a persistent work"))
            works_check(b, &d, "a persistent work");
    }
    battery_ok(b, dist_work_free(work), "work_free");
    free(d.numbers);
}

void cases_works(struct battery *b)
{
    works_polled(b);
    works_waited_for_in_part(b);
    works_in_progress(b);
    works_told_of_their_end(b);
    works_persistent(b);
}
