/* SPDX-License-Identifier: BSD-3-Clause */
/* conformance BACKEND: runs the battery as one rank, or as many; see main_usage. */
#include "battery.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct settings {
    const char *backend;
    const char *table, *only;
    int spawn;
    int mode; /* MODE_COUNT: all */
    int memory;
    bool brief, native, complete, mixed, reversed;
};

static const char *const main_modes[] = {
#define MAIN_MODE(name, text) text,
    BATTERY_MODES(MAIN_MODE)
#undef MAIN_MODE
        "all",
};

static const char *const main_memories[] = {
#define MAIN_MEMORY(name, text) text,
    BATTERY_MEMORIES(MAIN_MEMORY)
#undef MAIN_MEMORY
};

static const char main_usage[] =
    "usage: conformance BACKEND [OPTION]...\n"
    "  --spawn N      as N ranks; else the launcher says\n"
    "  --mode MODE    blocking, async, flood (many in flight), group or all\n"
    "  --memory KIND  where data are: ordinary, shared (dist_alloc) or any of these\n"
    "  --only NAME    the cases of one collective: all_reduce_coalesced, send, recv, ...\n"
    "  --brief        fewer counts\n"
    "  --native       numbers that are none are MPI's business\n"
    "  --complete     what makes sense must be supported\n"
    "  --table FILE   what dist_info says of the backend, as csv, must be the same\n"
    "  --mixed        the last rank has transport tcp only\n"
    "  --reversed     in a group of all ranks, the last of them first\n";

/* ---- operations of our own ---- */

static void main_make_ops(struct battery *b)
{
    for (int op = 0; op < DIST_OP_COUNT; op++)
        b->ops[op] = (dist_op)op;
    battery_ok(b, dist_op_create_premul_sum(data_factor(b->rank), &b->ops[DIST_PREMUL_SUM]),
               "op_create_premul_sum");
    battery_ok(b, dist_op_create(data_user, NULL, &b->ops[DIST_USER]), "op_create");
}

static void main_free_ops(struct battery *b)
{
    battery_ok(b, dist_op_free(b->ops[DIST_PREMUL_SUM]), "op_free");
    battery_ok(b, dist_op_free(b->ops[DIST_USER]), "op_free");
}

/* ---- the run ---- */

static void main_cases(struct battery *b, const struct settings *settings)
{
    for (int mode = 0; mode < MODE_COUNT; mode++) {
        if (settings->mode != MODE_COUNT && settings->mode != mode)
            continue;
        b->mode = (enum battery_mode)mode;
        sweep_support(b, settings->table);
        sweep_counts(b);
    }
    if (settings->only)
        return;
    cases_works(b);
    cases_barrier(b);
    if (!settings->native)
        cases_special_values(b);
}

static void main_in_group(struct battery *b, const struct settings *settings)
{
    b->rank = dist_get_rank(b->group);
    b->ranks = dist_get_world_size(b->group);
    main_make_ops(b);
    main_cases(b, settings);
    main_free_ops(b);
}

/* In a group whose ranks are not the world's; the world goes on behind it. */
static void main_reversed(struct battery *b, const struct settings *settings)
{
    dist_group *world = b->group;
    int count = dist_get_world_size(world), *ranks = battery_alloc((size_t)count, sizeof(*ranks));

    for (int r = 0; r < count; r++)
        ranks[r] = count - 1 - r;
    if (battery_ok(b, dist_new_group(world, ranks, count, NULL, &b->group), "new_group")) {
        main_in_group(b, settings);
        battery_ok(b, dist_destroy_process_group(b->group), "destroy of the group");
    }
    b->group = world;
    b->rank = dist_get_rank(world);
    free(ranks);
    battery_ok(b, dist_barrier(world), "barrier of the world");
}

static int run(int rank, void *arg)
{
    const struct settings *settings = arg;
    struct dist_options options = DIST_OPTIONS_INIT;
    struct battery b = {.seed = 1,
                        .backend = settings->backend,
                        .only = settings->only,
                        .memory = (enum battery_memory)settings->memory,
                        .brief = settings->brief,
                        .native = settings->native,
                        .complete = settings->complete};
    dist_status status;

    if (settings->mixed && rank == settings->spawn - 1)
        setenv("DIST_TRANSPORT", "tcp", 1);
    options.backend = settings->backend;
    if (!getenv("DIST_TIMEOUT"))
        options.timeout_ms = 60 * 1000;
    status = dist_init_process_group(&options, &b.group);
    if (status != DIST_OK) {
        fprintf(stderr, "init: %s: %s\n", dist_status_string(status), dist_last_error());
        return 1;
    }
    (settings->reversed ? main_reversed : main_in_group)(&b, settings);
    battery_ok(&b, dist_destroy_process_group(b.group), "destroy");
    if (b.rank == 0 && b.faults == 0)
        printf("conformance: backend %s, %d ranks, %ld cases, %ld refusals, %ld checks, no fault\n",
               settings->backend, b.ranks, b.cases, b.refusals, b.checks);
    return b.faults || !b.checks ? 1 : 0;
}

/* ---- options ---- */

/* Which of the names it is. */
static bool main_choice(const char *name, const char *const *names, int count, int *choice)
{
    for (*choice = 0; *choice < count; ++*choice) {
        if (strcmp(name, names[*choice]) == 0)
            return true;
    }
    return false;
}

/* False: it is not understood. */
static bool main_option(struct settings *settings, char **argv, int argc, int *i)
{
    const char *name = argv[*i], *value = *i + 1 < argc ? argv[*i + 1] : NULL;
    const struct {
        const char *name;
        bool *flag;
    } flags[] = {{"--brief", &settings->brief},
                 {"--native", &settings->native},
                 {"--complete", &settings->complete},
                 {"--mixed", &settings->mixed},
                 {"--reversed", &settings->reversed}};

    for (size_t f = 0; f < sizeof(flags) / sizeof(flags[0]); f++) {
        if (strcmp(name, flags[f].name) == 0)
            return *flags[f].flag = true;
    }
    if (!value)
        return false;
    ++*i;
    if (strcmp(name, "--spawn") == 0)
        return (settings->spawn = atoi(value)) > 0;
    if (strcmp(name, "--mode") == 0)
        return main_choice(value, main_modes, MODE_COUNT + 1, &settings->mode);
    if (strcmp(name, "--memory") == 0)
        return main_choice(value, main_memories, MEMORY_COUNT, &settings->memory);
    if (strcmp(name, "--only") == 0)
        settings->only = value;
    else if (strcmp(name, "--table") == 0)
        settings->table = value;
    else
        return false;
    return true;
}

int main(int argc, char **argv)
{
    struct settings settings = {.backend = argc > 1 ? argv[1] : "gloo", .mode = MODE_COUNT};
    int code = 1;

    for (int i = 2; i < argc; i++) {
        if (!main_option(&settings, argv, argc, &i)) {
            fputs(main_usage, stderr);
            return 2;
        }
    }
    if (!settings.spawn)
        return run(0, &settings);
    if (dist_spawn(settings.spawn, run, &settings, &code) != DIST_OK) {
        fprintf(stderr, "spawn: %s\n", dist_last_error());
        return 1;
    }
    return code;
}
