/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info selftest: runs the battery in worlds of several sizes and prints the results. */
#include "selftest.h"

#include "tools/common/args.h"
#include "tools/common/launched.h"
#include "tools/common/output.h"

#include <dist/dist.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Default sizes of the world: large enough to find errors, small enough for any machine. */
static const int command_sizes[] = {1, 2, 4};

/* Default and maximum of --timeout. */
#define COMMAND_TIMEOUT_S 60
#define COMMAND_TIMEOUT_MOST_S 86400
/* Maximum number of ranks whose last case is printed after a failure. */
#define COMMAND_SHOWN 8

struct command {
    struct selftest selftest;
    const char *transport;
    int ranks; /* 0: the launcher's ranks, or the sizes of command_sizes */
    struct selftest_count *counts;
};

/* ---- output ---- */

static void command_row(const struct selftest_count *sum)
{
    printf("%5d  %8ld  %8ld  %8ld  %6ld\n", sum->ranks, sum->cases, sum->checks, sum->refusals,
           sum->faults);
    output_flush();
}

static void command_head(const struct command *command)
{
    printf("libdist %s, backend %s%s%s\n", dist_version(), command->selftest.backend,
           command->transport ? ", transport " : "", command->transport ? command->transport : "");
    printf("%5s  %8s  %8s  %8s  %6s\n", "ranks", "cases", "checks", "refusals", "faults");
    output_flush();
}

static int command_verdict(const struct command *command, bool passed)
{
    const char *what = command->transport ? "transport" : "backend";
    const char *name = command->transport ? command->transport : command->selftest.backend;

    if (passed)
        printf("passed: %s %s conforms%s\n", what, name,
               command->selftest.only ? " in the tests of --only" : "");
    else
        printf("failed: %s %s\n", what, name);
    output_flush();
    return passed ? 0 : 1;
}

/* ---- starting ranks ---- */

static int command_child(int rank, void *arg)
{
    const struct command *command = arg;

    return selftest_rank(&command->selftest, rank, &command->counts[rank]);
}

static bool command_report(const struct command *command, int ranks, int code)
{
    const char *refused = NULL; /* why the group could not be created, from the lowest rank */
    struct selftest_count sum;

    for (int r = 0; r < ranks && !refused; r++)
        refused = *command->counts[r].refused ? command->counts[r].refused : NULL;
    if (refused) {
        fprintf(stderr, "dist_info: no group of %d rank%s: %s\n", ranks, ranks == 1 ? "" : "s",
                refused);
        return false;
    }
    sum = (struct selftest_count){.ranks = ranks};
    for (int r = 0; r < ranks; r++) {
        const struct selftest_count *count = &command->counts[r];

        sum.cases = count->cases > sum.cases ? count->cases : sum.cases;
        sum.checks += count->checks;
        sum.refusals += count->refusals;
        sum.faults += count->faults;
    }
    command_row(&sum);
    if (code && (!sum.faults || code > 128)) {
        /* Some ranks have crashed or hung: print the first of them, and the last case of each. */
        fprintf(stderr, "dist_info: %s\n", dist_last_error());
        for (int r = 0; r < ranks && r < COMMAND_SHOWN; r++) {
            if (*command->counts[r].now)
                fprintf(stderr, "  rank %d was running: %s\n", r, command->counts[r].now);
        }
    }
    return code == 0;
}

/*
 * Runs the battery with `ranks` ranks. This process does not load the module, since a GPU driver
 * that is initialized before a fork does not work in the child.
 */
static bool command_world(struct command *command, int ranks)
{
    size_t bytes = (size_t)ranks * sizeof(*command->counts);
    bool passed = false;
    int code = 1;

    command->counts = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (command->counts == MAP_FAILED)
        fprintf(stderr, "dist_info: out of memory for %d ranks\n", ranks);
    else if (dist_spawn(ranks, command_child, command, &code) != DIST_OK)
        fprintf(stderr, "dist_info: %s\n", dist_last_error());
    else
        passed = command_report(command, ranks, code);
    if (command->counts != MAP_FAILED)
        munmap(command->counts, bytes);
    return passed;
}

/* ---- options ---- */

/* The options. */
struct command_words {
    const char *backend, *transport, *mode, *memory, *only;
    int64_t ranks, timeout; /* 0: not given */
    bool brief;
    int action;
};

#define AT(member) offsetof(struct command_words, member)
static const struct args_row command_rows[] = {
    {"backend", 0, ARGS_TEXT, AT(backend), 0, 0, "NAME",
     "the backend to test (default with --transport: gloo)"},
    {"transport", 0, ARGS_TEXT, AT(transport), 0, 0, "NAME", "use this transport only"},
    {"ranks", 0, ARGS_INT, AT(ranks), 1, 65536, "N", "test with N ranks on this machine only"},
    {"mode", 0, ARGS_TEXT, AT(mode), 0, 0, "MODE",
     "blocking, async, flood (many in flight), group or all"},
    {"memory", 0, ARGS_TEXT, AT(memory), 0, 0, "KIND",
     "memory of the buffers: ordinary, shared (dist_alloc), device, or any"},
    {"only", 0, ARGS_TEXT, AT(only), 0, 0, "NAME",
     "test one collective only: all_reduce, send, recv, ..."},
    {"timeout", 0, ARGS_INT, AT(timeout), 1, COMMAND_TIMEOUT_MOST_S, "SECONDS",
     "timeout of a call (default: DIST_TIMEOUT, or 60)"},
    {"brief", 0, ARGS_FLAG, AT(brief), 0, 0, NULL, "fewer counts"},
    ARGS_HELP_ROWS(struct command_words, 0),
};
static const struct args command_args = {
    .rows = command_rows,
    .count = sizeof(command_rows) / sizeof(command_rows[0]),
    .program = "dist_info selftest",
    .usage = "[--backend NAME] [--transport NAME] [--ranks N] [--mode MODE] [--memory KIND] "
             "[--only NAME] [--timeout SECONDS] [--brief]",
    .about = "Tests all collectives with all dtypes and ops, counts, roots and layouts: each "
             "result must be right, and unsupported calls must be refused. Without a launcher it "
             "starts its ranks itself: 1, then 2, then 4.\n",
    .after = "Exit codes: 0 passed, 1 failed or not usable, 2 wrong usage.\n"};

/* Copies the options to *command. Returns -1, or the exit code 2 for a wrong command line. */
static int command_apply(const struct command_words *words, struct command *command)
{
    struct selftest *selftest = &command->selftest;
    const char *option = NULL, *word = NULL;

    selftest->backend = words->backend;
    selftest->only = words->only;
    selftest->brief = words->brief;
    command->transport = words->transport;
    command->ranks = (int)words->ranks;
    selftest->timeout_ms = (int)words->timeout * 1000;
    if (!selftest_mode(words->mode, &selftest->mode))
        option = "mode", word = words->mode;
    else if (words->memory && !selftest_memory(words->memory, &selftest->memory))
        option = "memory", word = words->memory;
    else if (words->only && !selftest_case(words->only))
        option = "only", word = words->only;
    if (option)
        return args_wrong(&command_args, "--%s: unknown value '%s'", option, word);
    if (!selftest->backend && !command->transport)
        return args_wrong(&command_args, "name a backend or a transport");
    return -1;
}

/* Returns the default of --timeout in seconds. */
static int64_t command_timeout(void)
{
    const char *text = getenv("DIST_TIMEOUT");
    const long seconds = text ? strtol(text, NULL, 10) : 0;

    if (seconds < 1)
        return COMMAND_TIMEOUT_S;
    return seconds <= COMMAND_TIMEOUT_MOST_S ? seconds : COMMAND_TIMEOUT_MOST_S;
}

int selftest_main(int argc, char **argv)
{
    struct command command = {0};

    struct command_words words = {.mode = "all", .timeout = command_timeout()};
    int rest, result = args_begin(&command_args, argc, argv, &words, 0, &rest);

    int code = result < 0 ? command_apply(&words, &command) : result;

    if (code >= 0)
        return code;
    command.selftest.stuck_s = command.selftest.timeout_ms / 1000 * 3 / 2 + 2;
    if (!command.selftest.backend)
        command.selftest.backend = "gloo";
    if (command.transport) {
        setenv("DIST_TRANSPORT", command.transport, 1);
        setenv("DIST_NODE_MEMORY", "0", 1); /* send all data through the transport */
    }
    if (!command.ranks && launched_in_job()) {
        /* Rank 0 prints its own counters; the other ranks print only faults. */
        struct selftest_count count = {0};
        bool passed = selftest_rank(&command.selftest, 0, &count) == 0;

        if (*count.refused)
            fprintf(stderr, "dist_info: %s\n", count.refused);
        else if (count.rank == 0)
            command_head(&command), command_row(&count);
        else if (!passed)
            fprintf(stderr, "dist_info: rank %d: %ld faults\n", count.rank, count.faults);
        return count.rank == 0 || !passed ? command_verdict(&command, passed) : 0;
    }
    bool passed = true;

    command_head(&command);
    if (command.ranks)
        return command_verdict(&command, command_world(&command, command.ranks));
    for (size_t i = 0; i < sizeof(command_sizes) / sizeof(command_sizes[0]) && passed; i++)
        passed = command_world(&command, command_sizes[i]);
    return command_verdict(&command, passed);
}
