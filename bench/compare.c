/* SPDX-License-Identifier: BSD-3-Clause */
/* Measuring several contestants in one run. */
#include "compare.h"

#include "alone.h"
#include "contest.h"
#include "job.h"
#include "point.h"
#include "run.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct compare {
    const struct options *options;
    struct contest contest;
    struct job **jobs; /* by contestant; NULL: it was not started */
    struct runner **runners;
    struct runner absent; /* of those that were not started */
    struct result *result;
    char folder[256];
};

static volatile sig_atomic_t compare_signal;

static void compare_note(int number)
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
    struct sigaction note = {.sa_handler = compare_note};

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

/* What is known of contestant c goes into the result; what is news is said. */
static void compare_know(struct compare *compare, int c)
{
    struct result_contestant *known = &compare->result->contestants[c];
    const struct job *job = compare->jobs[c];
    const char *reason =
        job ? (job->runner.gone ? job->reason : NULL) : compare->contest.contestants[c].reason;

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

static void compare_look(void *arg)
{
    struct compare *compare = arg;

    for (int c = 0; c < compare->contest.count; c++)
        compare_know(compare, c);
}

/* All are started, then all are waited for. */
static void compare_start(struct compare *compare)
{
    const struct contest *contest = &compare->contest;

    compare->absent.gone = true;
    for (int c = 0; c < contest->count; c++) {
        struct contestant *one = &contest->contestants[c];

        if (one->word_count > 0)
            compare->jobs[c] = job_start(compare->folder, one->name, (int)compare->options->ranks,
                                         one->words, (double)compare->options->timeout * 1e9);
        compare->runners[c] = compare->jobs[c] ? &compare->jobs[c]->runner : &compare->absent;
    }
    for (int c = 0; c < contest->count; c++) {
        if (compare->jobs[c])
            job_meet(compare->jobs[c], compare_stopped);
        compare_know(compare, c);
    }
}

static void compare_end(struct compare *compare)
{
    for (int c = 0; compare->jobs && c < compare->contest.count; c++) {
        if (compare->jobs[c])
            job_quit(compare->jobs[c]);
    }
    for (int c = 0; compare->jobs && c < compare->contest.count; c++)
        job_end(compare->jobs[c]);
    if (*compare->folder)
        rmdir(compare->folder);
    contest_free(&compare->contest);
    result_free(compare->result);
    free(compare->jobs);
    free(compare->runners);
}

/* ---- the run ---- */

static int compare_prepare(struct compare *compare, int argc, char **argv)
{
    size_t count = (size_t)compare->contest.count;
    const char *place = getenv("TMPDIR");

    compare->jobs = calloc(count, sizeof(*compare->jobs));
    compare->runners = calloc(count, sizeof(*compare->runners));
    compare->result = result_new((int)compare->options->ranks, argc, argv);
    if (!compare->jobs || !compare->runners || !compare->result)
        return -1;
    for (size_t c = 0; c < count; c++) {
        if (result_add_contestant(compare->result, compare->contest.contestants[c].name,
                                  compare->contest.contestants[c].limit) != 0)
            return -1;
    }
    snprintf(compare->folder, sizeof(compare->folder), "%s/dist-bench.XXXXXX",
             place && *place && strlen(place) < 60 ? place : "/tmp");
    if (mkdtemp(compare->folder))
        return 0;
    *compare->folder = '\0';
    return -1;
}

/* Someone who was asked for by name and left is a failure. */
static int compare_code(const struct compare *compare, int code)
{
    for (int c = 0; c < compare->contest.count; c++) {
        if (code == RUN_OK && compare->contest.contestants[c].asked &&
            compare->result->contestants[c].reason)
            code = RUN_FAILED;
    }
    return compare_stopped() ? 128 + (int)compare_signal : code;
}

static int compare_run(struct compare *compare, int argc, char **argv)
{
    struct run run = {.options = compare->options,
                      .stopped = compare_stopped,
                      .look = compare_look,
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
    compare_end(compare);
    return code;
}

int compare_main(const struct options *options, int argc, char **argv)
{
    struct options own = *options;
    struct compare compare = {.options = &own};
    const char *failure = "";
    size_t largest = 0;

    own.check = !own.no_check;
    if (alone_launcher()) {
        fprintf(stderr,
                "dist_bench: %s is set, so a launcher has started this process: run it once, "
                "without the launcher, with -n RANKS\n",
                alone_launcher());
        return RUN_USAGE;
    }
    point_each(&own, (int)own.ranks, compare_largest, &largest);
    if (contest_make(&own, largest, &compare.contest, &failure) != 0) {
        fprintf(stderr, "dist_bench: %s\n", failure);
        return RUN_USAGE;
    }
    return compare_run(&compare, argc, argv);
}
