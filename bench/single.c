/* SPDX-License-Identifier: BSD-3-Clause */
/* Measuring libdist by itself. */
#include "single.h"

#include "bench/jobs/group_runner.h"
#include "bench/rounds/run.h"
#include "tools/common/launched.h"

#include <stdlib.h>
#include <string.h>

struct single {
    const struct options *options;
    int argc;
    char **argv;
};

const char *single_launcher(void)
{
    static const char *const variables[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_ID",
                                            "TORCHELASTIC_RUN_ID", "WORLD_SIZE"};

    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        if (getenv(variables[i]))
            return variables[i];
    }
    return NULL;
}

/* "gloo", "gloo/dist": as --compare would have it. */
static int single_name(struct result *result, dist_group *group, const char *memory)
{
    char name[64], *library = NULL;
    int length = snprintf(name, sizeof(name), "%s", dist_get_backend(group));

    if (strcmp(memory, "malloc") != 0)
        snprintf(name + length, sizeof(name) - (size_t)length, "/%s", memory);
    if (result_add_library(result, name, false) != 0 ||
        asprintf(&library, "libdist %s", dist_version()) < 0)
        return -1;
    free(result->libraries[0].release);
    result->libraries[0].release = library;
    return 0;
}

/* Rank 0. */
static int single_lead(const struct single *single, dist_group *group)
{
    const struct options *options = single->options;
    struct result *result = result_new(dist_get_world_size(group), single->argc, single->argv);
    struct runner *runner = NULL;
    struct run run = {.options = options, .runners = &runner};
    int code = RUN_FAILED;

    run.result = result;
    if (result && options->root < result->ranks &&
        single_name(result, group, options->memory) == 0 &&
        group_runner_new(group, options->memory, &runner) == DIST_OK)
        code = run_all(&run);
    else if (result && options->root >= result->ranks)
        fprintf(stderr, "dist_bench: --root %d: there are ranks 0 to %d\n", (int)options->root,
                result->ranks - 1);
    else
        fprintf(stderr, "dist_bench: %s\n", dist_last_error());
    group_runner_free(runner);
    result_free(result);
    return code;
}

static int single_rank(int rank, void *arg)
{
    const struct single *single = arg;
    struct dist_options init = DIST_OPTIONS_INIT;
    dist_group *group;
    int code = RUN_OK;

    (void)rank;
    init.backend = single->options->backend;
    if (dist_init_process_group(&init, &group) != DIST_OK) {
        fprintf(stderr, "dist_bench: %s\n", dist_last_error());
        return RUN_FAILED;
    }
    if (single->options->root >= dist_get_world_size(group) && dist_get_rank(group) != 0)
        code = RUN_FAILED; /* rank 0 says it */
    else if (dist_get_rank(group) == 0)
        code = single_lead(single, group);
    else if (group_runner_serve(group, single->options->memory) != DIST_OK)
        code = RUN_FAILED;
    if (dist_destroy_process_group(group) != DIST_OK && code == RUN_OK) {
        fprintf(stderr, "dist_bench: %s\n", dist_last_error());
        code = RUN_FAILED;
    }
    return code;
}

/* With -i every call is a sample, in one round, as OSU has it. */
int single_main(const struct options *options, int argc, char **argv)
{
    struct options own = *options;
    struct single single = {.options = &own, .argc = argc, .argv = argv};
    int code = RUN_FAILED;

    if (own.iterations > 0)
        own.rounds = 1;
    if (own.ranks < 0)
        return single_rank(-1, &single);
    if (single_launcher()) {
        fprintf(stderr, "dist_bench: %s is set, so a launcher has started this process: omit -n\n",
                single_launcher());
        return RUN_USAGE;
    }
    if (dist_spawn((int)own.ranks, single_rank, &single, &code) != DIST_OK) {
        fprintf(stderr, "dist_bench: %s\n", dist_last_error());
        return RUN_FAILED;
    }
    /* These two codes are results, which rank 0 has explained. */
    if (code != RUN_OK && code != RUN_USAGE && code != RUN_SLOWER)
        launched_tell_end("dist_bench", code);
    return code;
}
