/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs the battery: selects cases and modes, and tests requests, barriers and special values. */
#include "battery.h"
#include "selftest.h"
#include "tools/common/gpu.h"
#include "tools/common/number.h"
#include "tools/common/output.h"

#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Maximum memory of the cases in flight on each rank. */
#define RUN_FLIGHT_BYTES ((size_t)8 << 20)

/* ---- capabilities that a backend declares as missing ---- */

static void lacks_refused(struct battery *b, dist_status status, const dist_work *work,
                          const char *what)
{
    b->checks++;
    b->refusals++;
    if (status != DIST_ERR_UNSUPPORTED)
        battery_fault(b, "%s: the backend declares it as missing, but did not refuse it: %s", what,
                      dist_status_string(status));
    else if (!strstr(dist_last_error(), b->backend))
        battery_fault(b, "%s: the refusal does not name the backend: %s", what, dist_last_error());
    if (work)
        battery_fault(b, "%s: was refused, but returned a request", what);
}

/* Unsupported calls must be refused locally, without communication with the other ranks. */
static void cases_lacks(struct battery *b)
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
        battery_fault(b, "a refused receive has written to its buffer");
    battery_ok(b, dist_barrier(b->group), "barrier after refusals");
}

/* Barriers: tests that they wait for all ranks. */

static double barrier_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static dist_status barrier_monitored(dist_group *group)
{
    return dist_monitored_barrier(group, 0);
}

static dist_status barrier_async(dist_group *group)
{
    dist_work *work;
    dist_status status = dist_barrier_async(group, &work);

    return status == DIST_OK ? dist_wait(work) : status;
}

/*
 * Tests that no rank leaves a barrier before all ranks have entered it. Each rank in turn enters
 * last; the entry times are gathered and compared. Requires ranks with a common clock.
 */
static void barrier_check(struct battery *b, dist_status (*barrier)(dist_group *), const char *name)
{
    double *arrived = battery_alloc((size_t)b->ranks, sizeof(*arrived)), mine, left;

    for (int late = 0; late < b->ranks; late++) {
        if (b->rank == late) {
            const struct timespec nap = {2 / 1000, 2 % 1000 * 1000000L};

            nanosleep(&nap, NULL);
        }
        mine = barrier_now();
        battery_ok(b, barrier(b->group), name);
        left = barrier_now();
        battery_ok(b, dist_all_gather(b->group, &mine, arrived, 1, DIST_FLOAT64),
                   "barrier's times");
        for (int r = 0; r < b->ranks; r++) {
            if (arrived[r] > left)
                battery_fault(b, "left a %s before rank %d had entered it", name, r);
        }
    }
    free(arrived);
}

static void cases_barrier(struct battery *b)
{
    barrier_check(b, dist_barrier, "barrier");
    barrier_check(b, barrier_async, "barrier_async");
    barrier_check(b, barrier_monitored, "monitored barrier");
    /*
     * The last rank first waits in a plain barrier, which the other ranks enter only after their
     * monitored barrier has timed out. So it enters the monitored barrier late. The errors of the
     * other ranks must name it, and the group must stay usable.
     */
    int last = b->ranks - 1;
    dist_status status = DIST_OK;
    char name[32];

    if (b->ranks == 1)
        return;
    snprintf(name, sizeof(name), "rank %d", last);
    if (b->rank == last)
        battery_ok(b, dist_barrier(b->group), "barrier before a monitored one");
    status = dist_monitored_barrier(b->group, b->rank == last ? 0 : 150);
    b->checks++;
    if (b->rank == last)
        battery_ok(b, status, "a monitored barrier that this rank enters late");
    else if (status != DIST_ERR_TIMEOUT)
        battery_fault(b, "a monitored barrier without %s returned: %s", name,
                      dist_status_string(status));
    else if (!strstr(dist_last_error(), name))
        battery_fault(b, "the error of a monitored barrier does not name %s: %s", name,
                      dist_last_error());
    if (b->rank != last)
        battery_ok(b, dist_barrier(b->group), "barrier after a monitored one that failed");
    battery_ok(b, dist_monitored_barrier(b->group, 0), "the next monitored barrier");
}

/* Reductions of special values: NaNs, infinities, signed zeros. */

/*
 * Elements of a block: more than fit in a vector register of the CPU, and not a multiple of that.
 */
#define SPECIAL_COUNT 83
/* Elements after the result, so that a backend which writes too much does not crash the battery. */
#define SPECIAL_SPARE 8

/* The kind of element i is i % SPECIAL_KINDS. */
enum {
    SPECIAL_NAN,        /* NaN on special_rank, 1 on the other ranks */
    SPECIAL_INFINITY,   /* infinity on special_rank, 1 on the other ranks */
    SPECIAL_INFINITIES, /* infinity on special_rank, -infinity on the next rank, 1 elsewhere */
    SPECIAL_NANS,       /* NaN on every rank, with different bits on each */
    SPECIAL_ZEROS,      /* 0 on even ranks, -0 on odd ranks */
    SPECIAL_KINDS
};

struct special {
    struct battery *b;
    dist_collective collective;
    dist_dtype dtype;
    dist_op op;
    int special_rank; /* also the root */
};

/* ---- the values ---- */

/* Returns the bits of the rank's element i. */
static uint64_t special_bits(const struct special *s, int rank, size_t i)
{
    unsigned bits = 8 * (unsigned)dist_dtype_size(s->dtype),
             mantissa = (unsigned)number_mantissa(s->dtype);
    uint64_t minus = UINT64_C(1) << (bits - 1);
    uint64_t infinity = minus - (UINT64_C(1) << mantissa);
    uint64_t one = (minus >> 1) - (UINT64_C(1) << mantissa);
    uint64_t nan = infinity | UINT64_C(1) << (mantissa - 1);

    switch (i % SPECIAL_KINDS) {
    case SPECIAL_NAN:
        return rank == s->special_rank ? nan : one;
    case SPECIAL_INFINITY:
        return rank == s->special_rank ? infinity : one;
    case SPECIAL_INFINITIES:
        if (rank == s->special_rank)
            return infinity;
        return rank == (s->special_rank + 1) % s->b->ranks ? infinity | minus : one;
    case SPECIAL_NANS:
        return nan | (uint64_t)(rank + 1) % 32 | (rank % 2 ? minus : 0);
    default:
        return rank % 2 ? minus : 0;
    }
}

/* True if a < b, where -0 is less than 0. */
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
    double result = number_of(s->dtype, special_bits(s, 0, i));

    for (int r = 1; r < s->b->ranks; r++)
        result = special_step(s->op, result, number_of(s->dtype, special_bits(s, r, i)));
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
        return dist_reduce(s->b->group, in, out, SPECIAL_COUNT, s->dtype, s->op, s->special_rank);
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

/* True if the result is right. A backend that declares DIST_LACKS_NAN may lose NaNs and signs of
 * zeros in MIN and MAX. */
static bool special_right(const struct special *s, double expected, double found)
{
    bool loses = (s->b->lacks & DIST_LACKS_NAN) && (s->op == DIST_MIN || s->op == DIST_MAX);

    if (isnan(expected))
        return isnan(found) || loses;
    return found == expected && (loses || !signbit(found) == !signbit(expected));
}

/* Starts a case: publishes its name and the counters, and restarts its timeout. */
static void battery_begin(struct battery *b, const char *what)
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

static void special_run(const struct special *s)
{
    size_t size = dist_dtype_size(s->dtype);
    size_t count = SPECIAL_COUNT * (special_blocks(s) ? (size_t)s->b->ranks : 1);
    unsigned char *in = battery_alloc(count, size);
    unsigned char *out = battery_alloc(SPECIAL_COUNT + SPECIAL_SPARE, size);
    size_t first = special_blocks(s) ? (size_t)s->b->rank * SPECIAL_COUNT : 0;
    bool good = s->collective != DIST_COLL_REDUCE || s->b->rank == s->special_rank;

    s->b->cases++;
    battery_begin(s->b, special_name(s));
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = special_bits(s, s->b->rank, i);

        memcpy(in + i * size, &bits, size);
    }
    battery_ok(s->b, special_call(s, in, out), special_name(s));
    s->b->checks += good;
    for (size_t i = 0; i < SPECIAL_COUNT && good; i++) {
        double expected = special_expected(s, first + i), is;
        uint64_t bits = 0;

        memcpy(&bits, out + i * size, size);
        is = number_of(s->dtype, bits);
        good = special_right(s, expected, is);
        if (!good)
            battery_fault(s->b, "%s on rank %d: element %zu is %g, should be %g", special_name(s),
                          s->special_rank, first + i, is, expected);
    }
    free(in);
    free(out);
}

/* Requests: polling, waits with a timeout, completion callbacks, persistent requests. */

#define WORKS_COUNT 5003

/* Data of an all-reduce of int32 in place. */
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
               "starting a request");
    return work;
}

static void works_waited_for_in_part(struct battery *b)
{
    struct works_data d = {.numbers = NULL};
    dist_work *work = works_start(b, &d);
    dist_status status = DIST_IN_PROGRESS;

    while (work && status == DIST_IN_PROGRESS)
        status = dist_wait_for(work, 1);
    if (work && battery_ok(b, status, "wait_for"))
        works_check(b, &d, "a request with repeated wait_for");
    free(d.numbers);
}

/* Tests that a receive stays in progress until its message is sent, and then completes. */
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
        battery_fault(b, "a receive completed before its message was sent");
    else
        battery_ok(b, dist_send(b->group, &mine, 1, DIST_INT32, b->rank, tag), "send to oneself");
    if (work && battery_ok(b, dist_wait(work), "wait") && number != mine)
        battery_fault(b, "a receive returned %d, not %d", number, mine);
}

struct works_completion {
    int times;
    dist_status status;
};

static void works_completed(void *arg, dist_status status)
{
    struct works_completion *completion = arg;

    completion->status = status;
    __atomic_add_fetch(&completion->times, 1, __ATOMIC_RELEASE);
}

static void works_with_callback(struct battery *b)
{
    struct works_completion completion = {.status = DIST_IN_PROGRESS};
    struct works_data d = {.numbers = NULL};
    dist_work *work = works_start(b, &d);

    if (work)
        battery_ok(b, dist_on_complete(work, works_completed, &completion), "on_complete");
    if (work && battery_ok(b, dist_wait(work), "wait")) {
        works_check(b, &d, "a request with on_complete");
        b->checks++;
        if (__atomic_load_n(&completion.times, __ATOMIC_ACQUIRE) != 1 ||
            completion.status != DIST_OK)
            battery_fault(b, "on_complete: called %d times, with %s", completion.times,
                          dist_status_string(completion.status));
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
        if (battery_ok(b, dist_wait(work), "wait for a persistent request"))
            works_check(b, &d, "a persistent request");
    }
    battery_ok(b, dist_work_free(work), "work_free");
    free(d.numbers);
}

/* The run of one rank. */

#define RANK_TIMEOUT_MS (60 * 1000)

/* ---- hangs ---- */

static struct selftest_count *rank_watched;

/* Handler of SIGALRM: reports the running case and exits. The library's own deadlines do not work
 * if a backend's function blocks forever. */
static void rank_stuck(int signal_number)
{
    static const char text[] = "FAULT the backend hangs in: ";
    ssize_t written = write(STDERR_FILENO, text, sizeof(text) - 1);

    (void)signal_number;
    written = write(STDERR_FILENO, rank_watched->now, strlen(rank_watched->now));
    written = write(STDERR_FILENO, "\n", 1);
    (void)written;
    rank_watched->faults++;
    _exit(1);
}

/* ---- words ---- */

/* Finds the index of `word` in `words`. Returns false if it is not found. */
static bool rank_choice(const char *word, const char *const *words, int count, int *choice_p)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(word, words[i]) != 0)
            continue;
        *choice_p = i;
        return true;
    }
    return false;
}

bool selftest_mode(const char *word, int *mode_p)
{
    return rank_choice(word, battery_modes, MODE_COUNT + 1, mode_p);
}

bool selftest_memory(const char *word, int *memory_p)
{
    static const char *const memories[] = {"ordinary", "shared", "device", "any"};

    return rank_choice(word, memories, MEMORY_COUNT, memory_p);
}

/* Selection of cases: each collective with every dtype and op, and with many counts. */

bool selftest_case(const char *word)
{
    return battery_operation(word) != NULL;
}

static bool sweep_skips(const struct battery *b, const struct operation *operation)
{
    return b->only && strcmp(b->only, operation->name) != 0;
}

/* ---- every dtype and op ---- */

/* True if the file, output of `dist_info backends --format csv`, lists the combination as
 * supported. */
static bool sweep_listed(const char *table, const char *backend, dist_collective collective,
                         dist_dtype dtype, dist_op op)
{
    char line[160], wanted[160];
    FILE *file = fopen(table, "r");
    bool found = false;

    snprintf(wanted, sizeof(wanted), "%s,%s,%s,%s,yes\n", backend,
             dist_collective_string(collective), dist_dtype_string(dtype),
             dist_collective_reduces(collective) ? dist_op_string(op) : "-");
    while (file && !found && fgets(line, sizeof(line), file))
        found = strcmp(line, wanted) == 0;
    if (file)
        fclose(file);
    return found;
}

/* Returns whether the backend declares support, and checks that against the table and against what
 * is sensible. */
static bool sweep_supported(struct battery *b, const char *table, const struct operation *operation,
                            dist_dtype dtype, dist_op op)
{
    bool declared = dist_backend_query(b->backend, operation->collective, dtype, op) == DIST_OK;
    bool sensible = !dist_collective_reduces((operation->collective)) || data_fits(dtype, op);

    b->checks++;
    if (table && declared != sweep_listed(table, b->backend, operation->collective, dtype, op))
        battery_fault(b, "%s and the backend differ in the support of %s %s %s", table,
                      operation->name, dist_dtype_string(dtype), dist_op_string(op));
    if (b->complete && sensible && !declared)
        battery_fault(b, "%s %s %s should be supported, but is not", operation->name,
                      dist_dtype_string(dtype), dist_op_string(op));
    if (!sensible && declared)
        battery_fault(b, "%s %s %s is declared as supported, but is undefined", operation->name,
                      dist_dtype_string(dtype), dist_op_string(op));
    return declared;
}

/* Compares the hashes of the results between the ranks. All ranks must call it together, with no
 * cases in flight. */
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

static uint64_t run_hash(uint64_t hash, const unsigned char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ data[i]) * 0x100000001b3u;
    return hash;
}

static void run_finish(struct test_case *c, dist_status status)
{
    struct battery *b = c->b;

    if (battery_ok(b, status, case_name(c)))
        case_check(c);
    if (c->operation->flags & AGREES) {
        uint64_t hash = 0xcbf29ce484222325u;

        for (int i = 0; i < c->block_count; i++)
            hash = run_hash(hash, case_image(c, &c->out, c->blocks[i].at),
                            c->blocks[i].count * dist_dtype_size(c->data.dtype));
        b->hashes[b->hash_count] = hash;
        snprintf(b->hashed[b->hash_count++], sizeof(b->hashed[0]), "%s", case_name(c));
    }
    case_free(c);
    if (b->hash_count == BATTERY_HASHES)
        run_compare_bits(b);
}

/* Waits for all requests that a case has started. Returns `status` or the first failure. */
static dist_status run_wait(struct test_case *c, dist_status status)
{
    for (int w = 0; w < c->works_needed; w++) {
        dist_status ended = c->works[w] ? dist_wait(c->works[w]) : DIST_OK;

        if (status == DIST_OK)
            status = ended;
    }
    return status;
}

/* Waits for all cases in flight, checks them, and compares the results between the ranks. */
static void battery_drain(struct battery *b)
{
    if (b->in_flight && b->mode == MODE_FLOOD) {
        /*
         * Each rank waits in a different order, and not in the order in which the cases were
         * started.
         */
        for (int i = 0; i < b->in_flight; i++) {
            struct test_case *c =
                b->flight[(2 * b->in_flight - 1 - i - b->rank % b->in_flight) % b->in_flight];

            battery_ok(b, run_wait(c, DIST_OK), case_name(c));
        }
    }
    if (b->in_flight && b->mode == MODE_GROUP)
        battery_ok(b, dist_group_end(), "group_end");
    for (int i = 0; i < b->in_flight; i++)
        run_finish(b->flight[i], DIST_OK);
    b->in_flight = 0;
    b->flight_bytes = 0;
    if (b->hash_count)
        run_compare_bits(b);
}

static void battery_run(struct battery *b, const struct operation *operation,
                        const struct variant *variant)
{
    struct test_case *c = case_new(b, operation, variant);

    b->cases++;
    battery_begin(b, case_name(c));
    if (b->mode == MODE_FLOOD || b->mode == MODE_GROUP) {
        size_t blocks = operation->flags & BLOCKS ? (size_t)b->ranks : 1;
        dist_status status;

        if (b->mode == MODE_GROUP && b->in_flight == 0)
            battery_ok(b, dist_group_start(), "group_start");
        status = c->operation->call(c, b->mode == MODE_FLOOD ? c->works : NULL);
        battery_ok(b, status, case_name(c));
        b->flight[b->in_flight++] = c;
        b->flight_bytes += c->count * blocks * dist_dtype_size(c->data.dtype);
        if (b->in_flight == BATTERY_FLIGHT || b->flight_bytes > RUN_FLIGHT_BYTES)
            battery_drain(b);
        return;
    }
    run_finish(c, run_wait(c, operation->call(c, b->mode == MODE_ASYNC ? c->works : NULL)));
}

static void run_expect_refusal(struct test_case *c, dist_status status)
{
    struct battery *b = c->b;

    b->checks++;
    if (status != DIST_ERR_UNSUPPORTED && status != DIST_ERR_INVALID_ARGUMENT)
        battery_fault(b, "%s: is unsupported, but was not refused: %s", case_name(c),
                      dist_status_string(status));
    else if (!*dist_last_error())
        battery_fault(b, "%s: was refused without an error message", case_name(c));
    case_check_unchanged(c);
}

/* Tests that the call is refused locally and changes nothing, and that the next call succeeds. */
static void sweep_refused(struct battery *b, const struct operation *operation,
                          const struct variant *variant)
{
    const struct variant sound = {.dtype = DIST_INT32, .op = DIST_SUM, .count = 3};
    struct test_case *c = case_new(b, operation, variant);

    battery_drain(b);
    b->refusals++;
    battery_begin(b, case_name(c));
    run_expect_refusal(c, operation->call(c, NULL));
    run_expect_refusal(c, operation->call(c, c->works));
    if (c->works[0])
        battery_fault(b, "%s: was refused, but returned a request", case_name(c));
    run_wait(c, DIST_OK);
    case_free(c);
    battery_run(b, battery_operation("all_reduce"), &sound);
}

static int sweep_places(const struct operation *operation)
{
    return operation->flags & IN_PLACE ? PLACE_COUNT : 1;
}

/*
 * Runs an operation out of place and, if possible, in place. Layout and root change with every
 * case, so the cases of all dtypes and ops together cover the layouts and roots.
 */
static void sweep_one(struct battery *b, const struct operation *operation, dist_dtype dtype,
                      dist_op op)
{
    struct variant variant = {.dtype = dtype, .op = op};
    int variants = operation->flags & IN_PLACE ? 2 : 1;

    for (int i = 0; i < variants; i++) {
        variant.place = i == 0 ? PLACE_APART : b->seed % 4 < 2 ? PLACE_IN : PLACE_IN_ON_ODD_RANKS;
        variant.root = (int)(b->seed % (uint64_t)b->ranks);
        variant.layout = operation->flags & LAYOUTS ? (int)(b->seed % LAYOUT_COUNT) : LAYOUT_EVEN;
        variant.count = i == 0 ? 37 : 1031;
        battery_run(b, operation, &variant);
    }
}

/* Tests every dtype and op: supported combinations must work, unsupported ones must be refused.
 * `table` may be NULL. */
static void sweep_support(struct battery *b, const char *table)
{
    for (const struct operation *operation = battery_operations; operation->name; operation++) {
        int ops = dist_collective_reduces(operation->collective) ? DIST_OP_COUNT : 1;

        for (int i = 0; i < DIST_DTYPE_COUNT * ops && !sweep_skips(b, operation); i++) {
            const struct variant variant = {
                .dtype = (dist_dtype)(i / ops), .op = (dist_op)(i % ops), .count = 5};

            if (sweep_supported(b, table, operation, variant.dtype, variant.op))
                sweep_one(b, operation, variant.dtype, variant.op);
            else
                sweep_refused(b, operation, &variant);
        }
        battery_drain(b);
    }
}

/* ---- counts ---- */

/* Counts around all boundaries: 0, 1, odd, inline limits, chunks, segments, and larger. */
static const size_t counts[] = {0,    1,    3,     17,    1023,   1024,   2048,
                                2049, 4099, 16385, 65537, 131073, 262147, 1048583};
static const size_t counts_brief[] = {0, 1, 17, 1024, 2048, 4099, 65537};
/*
 * Counts (elements of all blocks together) from this one on are large: --brief runs fewer variants
 * of them.
 */
#define SWEEP_LARGE 16385

/* Runs all layouts and places, with some of the roots. */
static void sweep_variants(struct battery *b, const struct operation *operation,
                           struct variant variant)
{
    /* The first, the middle and the last rank, since all roots would take too long. */
    const int roots[] = {b->ranks - 1, 0, b->ranks / 2}, few = b->ranks < 3 ? b->ranks : 3;
    const int root_count = operation->flags & ROOTED ? few : 1;
    int layouts = operation->flags & LAYOUTS ? LAYOUT_COUNT : 1;
    int places = sweep_places(operation), all = layouts * places * root_count;

    for (int i = 0; i < all; i++) {
        variant.layout = (enum layout)(i % layouts);
        variant.place = (enum place)(i / layouts % places);
        variant.root = roots[i / layouts / places];
        battery_run(b, operation, &variant);
    }
}

/* Runs one variant: another layout, place and root for every case. */
static void sweep_some(struct battery *b, const struct operation *operation, struct variant variant)
{
    uint64_t turn = b->seed;

    variant.layout = operation->flags & LAYOUTS ? (enum layout)(turn % LAYOUT_COUNT) : LAYOUT_EVEN;
    variant.place = (enum place)(turn / LAYOUT_COUNT % (uint64_t)sweep_places(operation));
    variant.root = operation->flags & ROOTED ? (int)(turn % (uint64_t)b->ranks) : 0;
    battery_run(b, operation, &variant);
}

static void sweep_counts(struct battery *b)
{
    static const dist_dtype dtypes[] = {DIST_FLOAT32, DIST_INT64, DIST_BFLOAT16, DIST_UINT8,
                                        DIST_FLOAT64};
    static const dist_op ops[] = {DIST_SUM, DIST_AVG, DIST_SUM, DIST_BXOR, DIST_USER};
    const size_t *list = b->brief ? counts_brief : counts;
    size_t n = b->brief ? sizeof(counts_brief) / sizeof(counts_brief[0])
                        : sizeof(counts) / sizeof(counts[0]);

    for (size_t i = 0; i < n; i++) {
        for (int k = 0; battery_operations[k].name; k++) {
            const struct operation *operation = &battery_operations[k];
            size_t blocks = operation->flags & BLOCKS ? (size_t)b->ranks : 1;
            size_t turn = (i + (size_t)k) % (sizeof(dtypes) / sizeof(dtypes[0]));
            struct variant variant = {
                .dtype = dtypes[turn], .op = ops[turn], .count = (list[i] + blocks - 1) / blocks};
            bool few = b->brief && list[i] >= SWEEP_LARGE;

            if (sweep_skips(b, operation) ||
                dist_backend_query(b->backend, operation->collective, variant.dtype, variant.op) !=
                    DIST_OK)
                continue;
            (few ? sweep_some : sweep_variants)(b, operation, variant);
        }
        battery_drain(b);
    }
    /* Test a large count that is in place on odd ranks only: MPI libraries select their algorithm
     * by size and by whether a call is in place, which must not make ranks disagree. */
    const struct variant variant = {
        .dtype = DIST_FLOAT32, .op = DIST_SUM, .count = 65537, .place = PLACE_IN_ON_ODD_RANKS};

    static const char *const names[] = {"all_reduce", "all_gather"};

    for (int i = 0; i < 2; i++) {
        const struct operation *operation = battery_operation(names[i]);

        if (!sweep_skips(b, operation))
            battery_run(b, operation, &variant);
    }
    battery_drain(b);
}

/* Maximum number of faults that a rank prints. */
#define RUN_FAULTS_SHOWN 5

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

/* ---- the run ---- */

static void rank_cases(struct battery *b, const struct selftest *selftest)
{
    for (int mode = 0; mode < MODE_COUNT; mode++) {
        if (selftest->mode != MODE_COUNT && selftest->mode != mode)
            continue;
        b->mode = (enum battery_mode)mode;
        sweep_support(b, selftest->table);
        sweep_counts(b);
    }
    if (selftest->only)
        return;
    battery_begin(b, "requests");
    struct works_data d = {.numbers = NULL};
    dist_work *work = works_start(b, &d);
    bool done = false;

    while (work && !done && battery_ok(b, dist_test(work, &done), "test"))
        sched_yield();
    if (work && battery_ok(b, dist_wait(work), "wait after test"))
        works_check(b, &d, "a request that was polled");
    free(d.numbers);
    works_waited_for_in_part(b);
    works_in_progress(b);
    works_with_callback(b);
    works_persistent(b);
    battery_begin(b, "barriers");
    cases_barrier(b);
    battery_begin(b, "missing capabilities");
    cases_lacks(b);
    static const dist_collective collectives[] = {DIST_COLL_ALL_REDUCE, DIST_COLL_REDUCE,
                                                  DIST_COLL_REDUCE_SCATTER};
    struct special s = {.b = b};
    const int ranks = b->ranks;

    for (int i = 0; i < 3 * DIST_DTYPE_COUNT * DIST_OP_COUNT; i++) {
        s.collective = collectives[i % 3];
        s.op = (dist_op)(i / 3 % DIST_OP_COUNT);
        s.dtype = (dist_dtype)(i / 3 / DIST_OP_COUNT);
        if (!number_is_float(s.dtype) || s.op > DIST_MAX ||
            dist_backend_query(b->backend, s.collective, s.dtype, s.op) != DIST_OK)
            continue;
        for (s.special_rank = 0; s.special_rank<ranks; s.special_rank += ranks> 3 ? 2 : 1)
            special_run(&s);
    }
}

static void rank_in_group(struct battery *b, const struct selftest *selftest)
{
    b->rank = dist_get_rank(b->group);
    b->ranks = dist_get_world_size(b->group);
    if (gpu_stream())
        battery_ok(b, dist_set_stream(b->group, gpu_stream()), "set_stream");
    battery_ok(b, dist_backend_lacks(b->backend, &b->lacks), "backend_lacks");
    for (int op = 0; op < DIST_OP_COUNT; op++)
        b->ops[op] = (dist_op)op;
    battery_ok(b, dist_op_create_premul_sum(data_factor(b->rank), &b->ops[DIST_PREMUL_SUM]),
               "op_create_premul_sum");
    battery_ok(b, dist_op_create(data_user, NULL, &b->ops[DIST_USER]), "op_create");
    rank_cases(b, selftest);
    battery_ok(b, dist_op_free(b->ops[DIST_PREMUL_SUM]), "op_free");
    battery_ok(b, dist_op_free(b->ops[DIST_USER]), "op_free");
}

/* Runs in a subgroup with the ranks in reverse order, then checks that the world still works. */
static void rank_reversed(struct battery *b, const struct selftest *selftest)
{
    dist_group *world = b->group;
    int count = dist_get_world_size(world), *ranks = battery_alloc((size_t)count, sizeof(*ranks));

    for (int r = 0; r < count; r++)
        ranks[r] = count - 1 - r;
    if (battery_ok(b, dist_new_group(world, ranks, count, NULL, &b->group), "new_group")) {
        rank_in_group(b, selftest);
        battery_ok(b, dist_destroy_process_group(b->group), "destroy of the group");
    }
    b->group = world;
    b->rank = dist_get_rank(world);
    free(ranks);
    battery_ok(b, dist_barrier(world), "barrier of the world");
}

static bool rank_join(const struct selftest *selftest, int rank, struct battery *b)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    dist_status status;

    battery_begin(b, "joining");
    if (selftest->mixed && rank == selftest->mixed - 1)
        setenv("DIST_TRANSPORT", "tcp", 1);
    options.backend = selftest->backend;
    options.timeout_ms = selftest->timeout_ms;
    if (!options.timeout_ms && !getenv("DIST_TIMEOUT"))
        options.timeout_ms = RANK_TIMEOUT_MS;
    status = dist_init_process_group(&options, &b->group);
    if (status == DIST_OK) {
        /* Open the GPU unless all data are in ordinary memory: dist_alloc may also return device
         * memory. */
        const char *wrong =
            b->memory == MEMORY_ORDINARY ? NULL : gpu_open(dist_get_local_rank(b->group));

        if (!wrong || b->memory != MEMORY_DEVICE)
            return true; /* only MEMORY_DEVICE requires a GPU */
        snprintf(b->count->refused, sizeof(b->count->refused), "%s", wrong);
        return false;
    }
    snprintf(b->count->refused, sizeof(b->count->refused), "%s: %s", dist_status_string(status),
             dist_last_error());
    return false;
}

int selftest_rank(const struct selftest *selftest, int rank, struct selftest_count *count_p)
{
    struct battery b = {.seed = 1,
                        .backend = selftest->backend,
                        .only = selftest->only,
                        .memory = (enum battery_memory)selftest->memory,
                        .brief = selftest->brief,
                        .apart = selftest->apart,
                        .complete = selftest->complete,
                        .count = count_p,
                        .stuck_s = selftest->stuck_s};

    if (b.stuck_s) {
        const struct sigaction action = {.sa_handler = rank_stuck};

        rank_watched = count_p;
        sigaction(SIGALRM, &action, NULL);
    }
    if (!rank_join(selftest, rank, &b))
        return 1;
    count_p->rank = dist_get_rank(b.group);
    count_p->ranks = dist_get_world_size(b.group);
    (selftest->reversed ? rank_reversed : rank_in_group)(&b, selftest);
    battery_begin(&b, "leaving");
    battery_ok(&b, dist_destroy_process_group(b.group), "destroy");
    battery_begin(&b, "");
    progress_clear();
    alarm(0);
    return b.faults || !b.checks ? 1 : 0;
}
