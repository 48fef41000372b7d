/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_sim's command line. */
#include "base/log.h"
#include "base/settings/config.h"
#include "tools/common/args.h"
#include "tools/common/output.h"
#include "tools/sim/job.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* What is kept until everything has been read. */
struct options {
    int64_t ranks, segments, root;
    const char *topology, *bytes, *algorithm, *format, *draw;
    const char *links[ARGS_TEXTS_ROOM];
    bool no_verify;
    int action;
};

#define AT(member) offsetof(struct options, member)
static const struct args_row options_rows[] = {
    {"", 0, ARGS_WORDS, 0, 0, 0,
     "all_reduce|broadcast|barrier|all_gather|reduce|reduce_scatter|gather|scatter|all_to_all",
     NULL},
    {"ranks", 0, ARGS_INT, AT(ranks), 1, 1 << 20, "N",
     "so many ranks, on one node if no topology is given (8)"},
    {"topology", 0, ARGS_TEXT, AT(topology), 0, 0, "TEXT",
     "where they are: 'rack:2 node:4 package:2 numa:2 core:8'"},
    {"bytes", 0, ARGS_TEXT, AT(bytes), 0, 0, "SIZE,...",
     "of a block: 64K, 1M; one size alone: smaller ones too (64M)"},
    {"algorithm", 0, ARGS_TEXT, AT(algorithm), 0, 0, "NAME", "that one only"},
    {"segments", 0, ARGS_INT, AT(segments), 1, 1024, "N",
     "cut the data into so many (what the library would take)"},
    {"root", 0, ARGS_INT, AT(root), 0, 1 << 20, "R", "of collectives that have one (0)"},
    {"links", 0, ARGS_TEXTS, AT(links), 0, 0, "PRICE,...",
     "other_node=20us/10gbit/5us, memory=25GB, cpus=8, ...; or a tuning file"},
    {"format", 0, ARGS_CHOICE, AT(format), 0, 0, "text|csv|json", "of the answer"},
    {"draw", 0, ARGS_TEXT, AT(draw), 0, 0, "FILE.svg", "draw the ring and the trees"},
    {"no-verify", 0, ARGS_FLAG, AT(no_verify), 0, 0, NULL, "do not prove that the plans are right"},
    ARGS_HELP_ROWS(struct options, 0),
};
static const struct args options_args = {
    .rows = options_rows,
    .count = sizeof(options_rows) / sizeof(options_rows[0]),
    .program = "dist_sim",
    .usage = "COLLECTIVE [OPTION]...\n--help | --version",
    .about = "Predicts the time of each algorithm of a collective on a machine that need not "
             "exist. COLLECTIVE is one of\n"
             "  all_reduce broadcast barrier all_gather reduce reduce_scatter gather scatter "
             "all_to_all\n"};

#define OPTIONS_RATIO 16
#define OPTIONS_LEAST 1024

/* One size alone: those before it that are a 16th of the next one each. */
static void options_ladder(struct job *job, size_t most)
{
    size_t size = most;
    job->size_count = 1;
    while (size / OPTIONS_RATIO >= OPTIONS_LEAST && job->size_count < JOB_SIZES_MAX) {
        size /= OPTIONS_RATIO;
        job->size_count++;
    }
    for (int i = job->size_count - 1; i >= 0; i--, most /= OPTIONS_RATIO)
        job->sizes[i] = most;
}

static dist_status options_sizes(struct job *job, const char *text)
{
    char item[32];
    job->size_count = 0;
    while (disti_list_item(text, ',', job->size_count, item, sizeof(item))) {
        if (job->size_count == JOB_SIZES_MAX)
            return disti_fail(DIST_ERR_INVALID_ARGUMENT, "--bytes: more than %d sizes",
                              JOB_SIZES_MAX);
        size_t *size = &job->sizes[job->size_count];
        dist_status status = disti_parse_bytes("--bytes", item, size);
        if (status != DIST_OK)
            return status;
        if (job->size_count > 0 && *size <= size[-1])
            return disti_fail(DIST_ERR_INVALID_ARGUMENT, "--bytes: give the smaller sizes first");
        job->size_count++;
    }
    if (job->size_count == 0)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "--bytes: there is no size in \"%s\"; give for example 64K,1M", text);
    if (job->size_count == 1)
        options_ladder(job, job->sizes[0]);
    return DIST_OK;
}

/* csv for "csv". args_read lets none but the choices pass. */
static enum job_format options_format(const char *text)
{
    if (!text || strcmp(text, "text") == 0)
        return JOB_TEXT;
    return strcmp(text, "csv") == 0 ? JOB_CSV : JOB_JSON;
}

static dist_status options_collective(const char *name, struct job *job)
{
    for (int c = 0; c < DIST_COLL_COUNT; c++) {
        job->collective = (dist_collective)c;
        if (!disti_collective_pair(job->collective) && !disti_collective_uneven(job->collective) &&
            strcmp(dist_collective_string(job->collective), name) == 0)
            return DIST_OK;
    }
    return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                      "\"%s\" is none of the collectives that can be simulated: all_reduce, "
                      "broadcast, barrier, all_gather, reduce, reduce_scatter, gather, scatter, "
                      "all_to_all",
                      name);
}

static dist_status options_topology(struct job *job, const struct options *options)
{
    int ranks = options->ranks ? (int)options->ranks : 8;
    if (!options->topology)
        return disti_topology_flat(ranks, &job->topology);
    dist_status status = disti_topology_synthetic(options->topology, &job->topology);
    if (status == DIST_OK && options->ranks && options->ranks != job->topology->ranks)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "--ranks %d, but the topology \"%s\" has room for %d: leave --ranks out",
                          (int)options->ranks, options->topology, job->topology->ranks);
    return status;
}

static dist_status options_complete(struct job *job, const struct options *options)
{
    dist_status status = options_topology(job, options);
    if (status == DIST_OK && options->bytes)
        status = options_sizes(job, options->bytes);
    for (int i = 0; status == DIST_OK && options->links[i]; i++)
        status = job_links(options->links[i], &job->cost);
    if (status != DIST_OK)
        return status;
    job->root = (int)options->root;
    job->format = options_format(options->format);
    job->draw = options->draw;
    job->verify = !options->no_verify;
    if (job->root >= job->topology->ranks)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "--root %d: there are %d ranks only",
                          job->root, job->topology->ranks);
    job->segments = (uint32_t)options->segments;
    if (job->collective == DIST_COLL_BARRIER) {
        job->sizes[0] = 0; /* it moves nothing */
        job->size_count = 1;
    }
    if (!options->algorithm)
        return DIST_OK;
    job->only = disti_algorithm_find(job->collective, options->algorithm);
    if (!job->only)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "--algorithm: %s has no \"%s\"; leave it out to see all that it has",
                          dist_collective_string(job->collective), options->algorithm);
    return DIST_OK;
}

/*
 * Reads the command line. Returns -1 if there is something to do, else the exit status: what was
 * asked for, or what is wrong, has been printed.
 */
static int job_parse(int argc, char **argv, struct job *job)
{
    struct options options = {0};
    dist_status status;
    int rest, code;
    job->cost = disti_cost_usual;
    options_ladder(job, (size_t)64 << 20);
    code = args_begin(&options_args, argc, argv, &options, 1, &rest);
    if (code >= 0)
        return code;
    if (rest == argc)
        return args_wrong(&options_args, "name a collective, such as all_reduce");
    status = options_collective(argv[rest], job);
    if (status == DIST_OK)
        status = options_complete(job, &options);
    return status == DIST_OK ? -1 : args_wrong(&options_args, "%s", dist_last_error());
}

/* dist_sim: verifies and simulates algorithms on machines that need not be there. */

static int sim_result(const struct job *job, const struct job_result *result)
{
    int code = 0;
    for (int r = 0; r < result->count; r++)
        if (job->verify && result->rows[r].status == DIST_OK && !result->rows[r].verdict.ok)
            code = 1; /* a plan is wrong */
    for (int i = 0; i < job->size_count; i++)
        if (result->best[i] < 0)
            code = 1; /* nothing could be predicted */
    return code;
}

int main(int argc, char **argv)
{
    struct job job = {0};
    struct job_result *result = NULL;
    int code;
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit on files fails, and is reported */
    code = job_parse(argc, argv, &job);
    if (code >= 0)
        goto out;
    code = 1;
    if (job.draw && job_draw(job.topology, job.root, job.draw) != DIST_OK) {
        fprintf(stderr, "dist_sim: %s\n", dist_last_error());
        goto out;
    }
    result = malloc(sizeof(*result));
    if (!result) {
        fprintf(stderr, "dist_sim: no memory\n");
        goto out;
    }
    job_run(&job, result);
    job_print(&job, result, stdout);
    code = sim_result(&job, result);
out:
    free(result);
    disti_topology_free(job.topology);
    return output_exit("dist_sim", code);
}
