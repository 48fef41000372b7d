/* SPDX-License-Identifier: BSD-3-Clause */
/* Measuring several libraries in one run. */
#include "compare.h"

#include "bench/jobs/job.h"
#include "bench/jobs/libraries.h"
#include "bench/rounds/measurement.h"
#include "bench/rounds/run.h"
#include "single.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
