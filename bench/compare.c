/* SPDX-License-Identifier: BSD-3-Clause */
/* Our side of the protocol: dist_bench --worker SPEC, as a job of processes. */
#include "bench/jobs.h"
#include "bench/measure.h"
#include "bench/options.h"
#include "bench/rounds.h"
#include "tools/common/launched.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct worker {
    const struct options *options;
    struct spec spec;
    struct limit_map *map; /* of a limit, made before the ranks */
};

static int worker_fail(const char *text)
{
    fprintf(stderr, "dist_bench: %s\n", text);
    return -1;
}

/* ---- one rank ---- */

static int worker_limit(const struct worker *worker, int rank)
{
    struct driver *driver;
    int status;

    if (limit_new(worker->map, rank, &driver) != DIST_OK)
        return worker_fail("no memory");
    status = serve(driver, worker->options->worker, "a bare loop over shared memory");
    limit_free(driver);
    return status;
}

static int worker_dist(const struct worker *worker)
{
    struct dist_options init = DIST_OPTIONS_INIT;
    struct driver *driver = NULL;
    dist_group *group;
    char release[64];
    int status = -1;

    init.backend = worker->spec.backend;
    if (dist_init_process_group(&init, &group) != DIST_OK)
        return worker_fail(dist_last_error());
    snprintf(release, sizeof(release), "libdist %s", dist_version());
    if (libdist_new(group, worker->spec.memory, &driver) != DIST_OK)
        worker_fail(dist_last_error());
    else
        status = serve(driver, worker->options->worker, release);
    libdist_free(driver);
    /* The others may have been ended already: then this is no news. */
    dist_destroy_process_group(group);
    return status;
}

static int worker_rank(int rank, void *arg)
{
    const struct worker *worker = arg;

    return (worker->map ? worker_limit(worker, rank) : worker_dist(worker)) == 0 ? 0 : 1;
}

int worker_main(const struct options *options)
{
    struct worker worker = {.options = options};
    const char *failure;
    int code = 1;

    if (spec_read(options->worker, &worker.spec, &failure) != 0)
        return worker_fail(failure), 2;
    if (spec_apply(&worker.spec) != 0)
        return worker_fail("no memory"), 1;
    if (worker.spec.limit)
        worker.map = limit_map_new((int)options->ranks, (size_t)options->most);
    if (worker.spec.limit && !worker.map)
        worker_fail(strerror(errno));
    else if (options->ranks < 0)
        code = worker_rank(-1, &worker);
    else if (dist_spawn((int)options->ranks, worker_rank, &worker, &code) != DIST_OK)
        worker_fail(dist_last_error());
    else if (code != 0)
        launched_tell_end("dist_bench", code);
    limit_map_free(worker.map);
    spec_free(&worker.spec);
    return code;
}

/* Measuring libdist by itself. */

struct single {
    const struct options *options;
    int argc;
    char **argv;
};

/* Did a launcher start this process? Its variable, or NULL. */
static const char *single_launcher(void)
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

/* Measuring several libraries in one run. */

struct compare {
    const struct options *options;
    struct libraries libraries;
    struct job **jobs; /* by library; NULL: it was not started */
    struct runner **runners;
    struct runner absent; /* of those that were not started */
    struct result *result;
    char folder[256];
};

static volatile sig_atomic_t compare_signal;

static void compare_note_signal(int number)
{
    compare_signal = number;
}

static bool compare_stopped(void)
{
    return compare_signal != 0;
}

/* No SA_RESTART: who waits in poll shall see it. */
static void compare_catch(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction note = {.sa_handler = compare_note_signal};

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        sigaction(numbers[i], &note, NULL);
}

static int compare_largest(void *arg, struct order *order, bool first)
{
    size_t *largest = arg;

    (void)first;
    *largest = order->bytes > *largest ? order->bytes : *largest;
    return 0;
}

/* ---- who is there ---- */

/* What is known of library c goes into the result; what is news is said. */
static void compare_note_library(struct compare *compare, int c)
{
    struct result_library *known = &compare->result->libraries[c];
    const struct job *job = compare->jobs[c];
    const char *reason =
        job ? (job->runner.gone ? job->reason : NULL) : compare->libraries.entries[c].reason;

    if (job && job->release && !*known->release) {
        free(known->release);
        known->release = strdup(job->release);
    }
    if (!reason && !job)
        reason = "it could not be started";
    if (reason && !known->reason) {
        known->reason = strdup(reason);
        fprintf(stderr, "dist_bench: %s is left out: %s\n", known->name, reason);
    }
}

static void compare_note_all(void *arg)
{
    struct compare *compare = arg;

    for (int c = 0; c < compare->libraries.count; c++)
        compare_note_library(compare, c);
}

/* All are started, then all are waited for. */
static void compare_start(struct compare *compare)
{
    const struct libraries *libraries = &compare->libraries;

    compare->absent.gone = true;
    for (int c = 0; c < libraries->count; c++) {
        struct library *one = &libraries->entries[c];

        if (one->word_count > 0)
            compare->jobs[c] = job_start(compare->folder, one->name, (int)compare->options->ranks,
                                         one->words, (double)compare->options->timeout * 1e9);
        compare->runners[c] = compare->jobs[c] ? &compare->jobs[c]->runner : &compare->absent;
    }
    for (int c = 0; c < libraries->count; c++) {
        if (compare->jobs[c])
            job_wait_for_ranks(compare->jobs[c], compare_stopped);
        compare_note_library(compare, c);
    }
}

static void compare_close(struct compare *compare)
{
    for (int c = 0; compare->jobs && c < compare->libraries.count; c++) {
        if (compare->jobs[c])
            job_quit(compare->jobs[c]);
    }
    for (int c = 0; compare->jobs && c < compare->libraries.count; c++)
        job_end(compare->jobs[c]);
    if (*compare->folder)
        rmdir(compare->folder);
    libraries_free(&compare->libraries);
    result_free(compare->result);
    free(compare->jobs);
    free(compare->runners);
}

/* ---- the run ---- */

static int compare_prepare(struct compare *compare, int argc, char **argv)
{
    size_t count = (size_t)compare->libraries.count;
    const char *temporary = getenv("TMPDIR");

    compare->jobs = calloc(count, sizeof(*compare->jobs));
    compare->runners = calloc(count, sizeof(*compare->runners));
    compare->result = result_new((int)compare->options->ranks, argc, argv);
    if (!compare->jobs || !compare->runners || !compare->result)
        return -1;
    for (size_t c = 0; c < count; c++) {
        if (result_add_library(compare->result, compare->libraries.entries[c].name,
                               compare->libraries.entries[c].limit) != 0)
            return -1;
    }
    snprintf(compare->folder, sizeof(compare->folder), "%s/dist-bench.XXXXXX",
             temporary && *temporary && strlen(temporary) < 60 ? temporary : "/tmp");
    if (mkdtemp(compare->folder))
        return 0;
    *compare->folder = '\0';
    return -1;
}

/* Someone who was asked for by name and left is a failure. */
static int compare_code(const struct compare *compare, int code)
{
    for (int c = 0; c < compare->libraries.count; c++) {
        if (code == RUN_OK && compare->libraries.entries[c].asked &&
            compare->result->libraries[c].reason)
            code = RUN_FAILED;
    }
    return compare_stopped() ? 128 + (int)compare_signal : code;
}

static int compare_run(struct compare *compare, int argc, char **argv)
{
    struct run run = {.options = compare->options,
                      .stopped = compare_stopped,
                      .measured = compare_note_all,
                      .arg = compare};
    int code = RUN_FAILED;

    compare_catch();
    if (compare_prepare(compare, argc, argv) != 0) {
        fprintf(stderr, "dist_bench: cannot start: %s\n", strerror(errno));
    } else {
        compare_start(compare);
        run.result = compare->result;
        run.runners = compare->runners;
        if (!compare_stopped())
            code = run_all(&run);
        code = compare_code(compare, code);
    }
    compare_close(compare);
    return code;
}

int compare_main(const struct options *options, int argc, char **argv)
{
    struct options own = *options;
    struct compare compare = {.options = &own};
    const char *failure = "";
    size_t largest = 0;

    own.check = !own.no_check;
    if (single_launcher()) {
        fprintf(stderr,
                "dist_bench: %s is set, so a launcher has started this process: run it once, "
                "without the launcher, with -n RANKS\n",
                single_launcher());
        return RUN_USAGE;
    }
    measurement_each(&own, (int)own.ranks, compare_largest, &largest);
    if (libraries_make(&own, largest, &compare.libraries, &failure) != 0) {
        fprintf(stderr, "dist_bench: %s\n", failure);
        return RUN_USAGE;
    }
    return compare_run(&compare, argc, argv);
}
