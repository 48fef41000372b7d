/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank's run of the battery: joining, all its parts one after the other, and leaving. */
#include "../common/gpu.h"
#include "battery.h"
#include "selftest.h"
#include "tools/common/progress.h"

#include <signal.h>
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
