/* SPDX-License-Identifier: BSD-3-Clause */
/* conformance BACKEND: runs the conformance tests as one rank, or as several; see main_usage. */
#include "selftest/selftest.h"

#include <dist/dist.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct settings {
    struct selftest selftest;
    int spawn;
    bool mixed;
};

static const char main_usage[] =
    "usage: conformance BACKEND [OPTION]...\n"
    "  --spawn N      spawns N ranks; by default the launcher sets the number\n"
    "  --mode MODE    blocking, async, flood (many pending requests), group or all\n"
    "  --memory KIND  memory of the data: ordinary, shared (dist_alloc), device, or any\n"
    "  --only NAME    the cases of one collective: all_reduce_coalesced, send, recv, ...\n"
    "  --brief        fewer counts\n"
    "  --apart        no calls in place\n"
    "  --complete     everything that makes sense must be supported\n"
    "  --table FILE   the backend's support must agree with this csv of dist_info\n"
    "  --mixed        the last rank has only transport tcp\n"
    "  --reversed     in a group of all ranks, in reverse order\n";

static int run(int rank, void *arg)
{
    const struct settings *settings = arg;
    struct selftest_count count = {0};
    int code = selftest_rank(&settings->selftest, rank, &count);

    if (*count.refused)
        fprintf(stderr, "init: %s\n", count.refused);
    if (count.rank == 0 && count.ranks && !count.faults)
        printf("conformance: backend %s, %d ranks, %ld cases, %ld refusals, %ld checks, no fault\n",
               settings->selftest.backend, count.ranks, count.cases, count.refusals, count.checks);
    return code;
}

/* Returns false if the option is invalid. */
static bool main_option(struct settings *settings, char **argv, int argc, int *i)
{
    const char *name = argv[*i], *value = *i + 1 < argc ? argv[*i + 1] : NULL;
    struct selftest *selftest = &settings->selftest;
    const struct {
        const char *name;
        bool *flag;
    } flags[] = {{"--brief", &selftest->brief},
                 {"--apart", &selftest->apart},
                 {"--complete", &selftest->complete},
                 {"--mixed", &settings->mixed},
                 {"--reversed", &selftest->reversed}};

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
        return selftest_mode(value, &selftest->mode);
    if (strcmp(name, "--memory") == 0)
        return selftest_memory(value, &selftest->memory);
    if (strcmp(name, "--only") == 0)
        selftest->only = value;
    else if (strcmp(name, "--table") == 0)
        selftest->table = value;
    else
        return false;
    return true;
}

int main(int argc, char **argv)
{
    struct settings settings = {.selftest.backend = argc > 1 ? argv[1] : "gloo"};
    int code = 1;

    selftest_mode("all", &settings.selftest.mode);
    for (int i = 2; i < argc; i++) {
        if (!main_option(&settings, argv, argc, &i)) {
            fputs(main_usage, stderr);
            return 2;
        }
    }
    settings.selftest.mixed = settings.mixed ? settings.spawn : 0;
    if (!settings.spawn)
        return run(0, &settings);
    if (dist_spawn(settings.spawn, run, &settings, &code) != DIST_OK) {
        fprintf(stderr, "spawn: %s\n", dist_last_error());
        return 1;
    }
    return code;
}
