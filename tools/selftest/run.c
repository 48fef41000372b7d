/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank's run of the battery: joining, all its parts one after the other, and leaving. */
#include "battery.h"
#include "selftest.h"
#include "tools/common/gpu.h"
#include "tools/common/output.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RANK_TIMEOUT_MS (60 * 1000)

/* ---- operations of our own ---- */

static void rank_make_ops(struct battery *b)
{
    for (int op = 0; op < DIST_OP_COUNT; op++)
        b->ops[op] = (dist_op)op;
    battery_ok(b, dist_op_create_premul_sum(data_factor(b->rank), &b->ops[DIST_PREMUL_SUM]),
               "op_create_premul_sum");
    battery_ok(b, dist_op_create(data_user, NULL, &b->ops[DIST_USER]), "op_create");
}

static void rank_free_ops(struct battery *b)
{
    battery_ok(b, dist_op_free(b->ops[DIST_PREMUL_SUM]), "op_free");
    battery_ok(b, dist_op_free(b->ops[DIST_USER]), "op_free");
}

/* ---- the run ---- */

static void sweep_support(struct battery *b, const char *table);
static void sweep_counts(struct battery *b);

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
    battery_begin(b, "works");
    cases_works(b);
    battery_begin(b, "barriers");
    cases_barrier(b);
    battery_begin(b, "what the backend lacks");
    cases_lacks(b);
    cases_special(b);
}

static void rank_in_group(struct battery *b, const struct selftest *selftest)
{
    b->rank = dist_get_rank(b->group);
    b->ranks = dist_get_world_size(b->group);
    if (gpu_stream())
        battery_ok(b, dist_set_stream(b->group, gpu_stream()), "set_stream");
    battery_ok(b, dist_backend_lacks(b->backend, &b->lacks), "backend_lacks");
    rank_make_ops(b);
    rank_cases(b, selftest);
    rank_free_ops(b);
}

/* In a group whose ranks are not the world's; the world goes on behind it. */
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

/* A device, if data may be there; what dist_alloc gives may be a device's too. */
static bool rank_find_device(struct battery *b)
{
    const char *wrong =
        b->memory == MEMORY_ORDINARY ? NULL : gpu_open(dist_get_local_rank(b->group));

    if (!wrong || b->memory != MEMORY_DEVICE)
        return true; /* it goes without */
    snprintf(b->count->refused, sizeof(b->count->refused), "%s", wrong);
    return false;
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
    if (status == DIST_OK)
        return rank_find_device(b);
    snprintf(b->count->refused, sizeof(b->count->refused), "%s: %s", dist_status_string(status),
             dist_last_error());
    return false;
}

/* ---- a rank that does not come back ---- */

static struct selftest_count *rank_watched;

/* A slot that blocks for ever keeps the library from its deadlines. */
static void rank_stuck(int signal_number)
{
    static const char text[] = "FAULT the backend does not come back: ";
    ssize_t written = write(STDERR_FILENO, text, sizeof(text) - 1);

    (void)signal_number;
    written = write(STDERR_FILENO, rank_watched->now, strlen(rank_watched->now));
    written = write(STDERR_FILENO, "\n", 1);
    (void)written;
    rank_watched->faults++;
    _exit(1);
}

static void rank_watch(struct selftest_count *count)
{
    const struct sigaction action = {.sa_handler = rank_stuck};

    rank_watched = count;
    sigaction(SIGALRM, &action, NULL);
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

    if (b.stuck_s)
        rank_watch(count_p);
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

/* ---- words ---- */

/* Which of the words it is. */
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
    static const char *const modes[] = {
#define RANK_MODE(name, text) text,
        BATTERY_MODES(RANK_MODE)
#undef RANK_MODE
            "all",
    };

    return rank_choice(word, modes, MODE_COUNT + 1, mode_p);
}

bool selftest_memory(const char *word, int *memory_p)
{
    static const char *const memories[] = {
#define RANK_MEMORY(name, text) text,
        BATTERY_MEMORIES(RANK_MEMORY)
#undef RANK_MEMORY
    };

    return rank_choice(word, memories, MEMORY_COUNT, memory_p);
}

/* Which cases there are: every collective with every dtype and op, and with counts of all sizes. */

static const struct operation *const sweep_kinds[] = {
    &operation_all_reduce, &operation_all_reduce_coalesced,
    &operation_reduce,     &operation_reduce_scatter,
    &operation_broadcast,  &operation_reduce_scatter_v,
    &operation_all_gather, &operation_all_gather_v,
    &operation_gather,     &operation_gather_v,
    &operation_scatter,    &operation_scatter_v,
    &operation_all_to_all, &operation_all_to_all_v,
    &operation_exchange,   &operation_any_source,
    &operation_barrier,    NULL,
};

bool selftest_case(const char *word)
{
    for (int k = 0; sweep_kinds[k]; k++) {
        if (strcmp(word, sweep_kinds[k]->name) == 0)
            return true;
    }
    return false;
}

static bool sweep_skips(const struct battery *b, const struct operation *operation)
{
    return b->only && strcmp(b->only, operation->name) != 0;
}

/* ---- what the backend says that it supports ---- */

/* A line of `dist_info backends --format csv` that says yes. */
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

static bool sweep_supported(struct battery *b, const char *table, const struct operation *operation,
                            dist_dtype dtype, dist_op op)
{
    bool asked = dist_backend_query(b->backend, operation->collective, dtype, op) == DIST_OK;
    bool sensible = !(operation->flags & OPERATION_REDUCES) || data_fits(dtype, op);

    b->checks++;
    if (table && asked != sweep_listed(table, b->backend, operation->collective, dtype, op))
        battery_fault(b, "%s says something else of %s %s %s than the backend", table,
                      operation->name, dist_dtype_string(dtype), dist_op_string(op));
    if (b->complete && sensible && !asked)
        battery_fault(b, "%s %s %s makes sense and is not supported", operation->name,
                      dist_dtype_string(dtype), dist_op_string(op));
    if (!sensible && asked)
        battery_fault(b, "%s %s %s is said to be supported and makes no sense", operation->name,
                      dist_dtype_string(dtype), dist_op_string(op));
    return asked;
}

static void battery_refused(struct battery *b, const struct operation *operation,
                            const struct variant *variant);

/* After a refusal the next call works as if nothing had been. */
static void sweep_refused(struct battery *b, const struct operation *operation,
                          const struct variant *variant)
{
    const struct variant sound = {.dtype = DIST_INT32, .op = DIST_SUM, .count = 3};

    battery_refused(b, operation, variant);
    battery_run(b, &operation_all_reduce, &sound);
}

static int sweep_places(const struct operation *operation)
{
    return operation->flags & OPERATION_IN_PLACE ? PLACE_COUNT : 1;
}

/* In place, apart, each layout, each root in turn: over all dtypes and ops each meets each. */
static void sweep_one(struct battery *b, const struct operation *operation, dist_dtype dtype,
                      dist_op op)
{
    struct variant variant = {.dtype = dtype, .op = op};
    int variants = operation->flags & OPERATION_IN_PLACE ? 2 : 1;

    for (int i = 0; i < variants; i++) {
        variant.place = i == 0 ? PLACE_APART : b->seed % 4 < 2 ? PLACE_IN : PLACE_IN_ON_ODD_RANKS;
        variant.root = (int)(b->seed % (uint64_t)b->ranks);
        variant.layout =
            operation->flags & OPERATION_LAYOUTS ? (int)(b->seed % LAYOUT_COUNT) : LAYOUT_EVEN;
        variant.count = i == 0 ? 37 : 1031;
        battery_run(b, operation, &variant);
    }
}

static void battery_land(struct battery *b);

/* Every dtype and op, by the table; NULL: asks the library. */
static void sweep_support(struct battery *b, const char *table)
{
    for (int k = 0; sweep_kinds[k]; k++) {
        const struct operation *operation = sweep_kinds[k];
        int ops = operation->flags & OPERATION_REDUCES ? DIST_OP_COUNT : 1;

        for (int i = 0; i < DIST_DTYPE_COUNT * ops && !sweep_skips(b, operation); i++) {
            const struct variant variant = {
                .dtype = (dist_dtype)(i / ops), .op = (dist_op)(i % ops), .count = 5};

            if (sweep_supported(b, table, operation, variant.dtype, variant.op))
                sweep_one(b, operation, variant.dtype, variant.op);
            else
                sweep_refused(b, operation, &variant);
        }
        battery_land(b);
    }
}

/* ---- counts ---- */

/* Around every boundary: nothing, one, odd, inline limits, pieces, segments, and beyond. */
static const size_t counts[] = {0,    1,    3,     17,    1023,   1024,   2048,
                                2049, 4099, 16385, 65537, 131073, 262147, 1048583};
static const size_t counts_brief[] = {0, 1, 17, 1024, 2048, 4099, 65537};
/* From here on, in elements of all blocks together, a count is large. */
#define SWEEP_LARGE 16385

/* All roots are too many: the ends and the middle. */
static int sweep_roots(const struct battery *b, const struct operation *operation, int roots[3])
{
    roots[0] = b->ranks - 1;
    roots[1] = 0;
    roots[2] = b->ranks / 2;
    if (!(operation->flags & OPERATION_ROOTED))
        return 1;
    return b->ranks < 3 ? b->ranks : 3;
}

static void sweep_variants(struct battery *b, const struct operation *operation,
                           struct variant variant)
{
    int roots[3], root_count = sweep_roots(b, operation, roots);
    int layouts = operation->flags & OPERATION_LAYOUTS ? LAYOUT_COUNT : 1;
    int places = sweep_places(operation), all = layouts * places * root_count;

    for (int i = 0; i < all; i++) {
        variant.layout = (enum layout)(i % layouts);
        variant.place = (enum place)(i / layouts % places);
        variant.root = roots[i / layouts / places];
        battery_run(b, operation, &variant);
    }
}

/* One of the variants, another one each time. */
static void sweep_some(struct battery *b, const struct operation *operation, struct variant variant)
{
    uint64_t turn = b->seed;

    variant.layout =
        operation->flags & OPERATION_LAYOUTS ? (enum layout)(turn % LAYOUT_COUNT) : LAYOUT_EVEN;
    variant.place = (enum place)(turn / LAYOUT_COUNT % (uint64_t)sweep_places(operation));
    variant.root = operation->flags & OPERATION_ROOTED ? (int)(turn % (uint64_t)b->ranks) : 0;
    battery_run(b, operation, &variant);
}

/* Long, and in place on some ranks only: MPIs choose their algorithms by both. */
static void sweep_long_in_some(struct battery *b)
{
    const struct variant variant = {
        .dtype = DIST_FLOAT32, .op = DIST_SUM, .count = 65537, .place = PLACE_IN_ON_ODD_RANKS};

    static const struct operation *const operations[] = {&operation_all_reduce,
                                                         &operation_all_gather};

    for (int i = 0; i < 2; i++) {
        if (!sweep_skips(b, operations[i]))
            battery_run(b, operations[i], &variant);
    }
    battery_land(b);
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
        for (int k = 0; sweep_kinds[k]; k++) {
            size_t blocks = sweep_kinds[k]->flags & OPERATION_BLOCKS ? (size_t)b->ranks : 1;
            size_t turn = (i + (size_t)k) % (sizeof(dtypes) / sizeof(dtypes[0]));
            struct variant variant = {
                .dtype = dtypes[turn], .op = ops[turn], .count = (list[i] + blocks - 1) / blocks};
            bool few = b->brief && list[i] >= SWEEP_LARGE;

            if (sweep_skips(b, sweep_kinds[k]) ||
                dist_backend_query(b->backend, sweep_kinds[k]->collective, variant.dtype,
                                   variant.op) != DIST_OK)
                continue;
            (few ? sweep_some : sweep_variants)(b, sweep_kinds[k], variant);
        }
        battery_land(b);
    }
    sweep_long_in_some(b);
}

/* Running cases: one after the other, or many in flight; and comparing bits between ranks. */

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

/* Waits for what is in flight, and checks it; the ranks compare their bits. */
static void battery_land(struct battery *b)
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

/* The call must be refused, by this rank alone, and change nothing. */
static void battery_refused(struct battery *b, const struct operation *operation,
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
