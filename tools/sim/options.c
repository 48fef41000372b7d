/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_sim's command line. */
#include "base/log.h"
#include "base/settings/config.h"
#include "tools/sim/job.h"

#include <getopt.h>
#include <string.h>

static int options_usage(FILE *to, int code)
{
    fprintf(to,
            "usage: dist_sim COLLECTIVE [OPTION]...\n       dist_sim --help | --version\nPredicts "
            "the time of each algorithm of a collective on a machine that need not exist.\n  "
            "--ranks N           N ranks, on one node if no topology is given (8)\n  --topology "
            "TEXT     where they are: 'rack:2 node:4 package:2 numa:2 core:8'\n  --bytes SIZE,...  "
            "  of a block: 64K, 1M; one size alone: smaller ones too (64M)\n  --algorithm NAME    "
            "that one only\n  --segments N        cut the data into so many (what the library "
            "would take)\n  --root R            of collectives that have one (0)\n  --links "
            "PRICE,...   other_node=20us/10gbit/5us, memory=25GB, cpus=8, ...\n  --links FILE      "
            "  what a tuning file says\n  --format text|csv|json\n  --draw FILE.svg     draw the "
            "ring and the trees\n  --no-verify         do not prove that the plans are right\n");
    return code;
}

static const struct option options_long[] = {
    {"ranks", required_argument, NULL, 'n'},
    {"topology", required_argument, NULL, 't'},
    {"bytes", required_argument, NULL, 'b'},
    {"algorithm", required_argument, NULL, 'a'},
    {"segments", required_argument, NULL, 's'},
    {"root", required_argument, NULL, 'r'},
    {"links", required_argument, NULL, 'l'},
    {"format", required_argument, NULL, 'f'},
    {"draw", required_argument, NULL, 'd'},
    {"no-verify", no_argument, NULL, 'q'},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'v'},
    {NULL, 0, NULL, 0},
};

/* What is kept until everything has been read. */
struct options {
    int ranks, segments;
    const char *topology, *algorithm;
};

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

static dist_status options_format(struct job *job, const char *text)
{
    static const char *const names[] = {
        [JOB_TEXT] = "text", [JOB_CSV] = "csv", [JOB_JSON] = "json"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcmp(names[i], text) == 0) {
            job->format = (enum job_format)i;
            return DIST_OK;
        }
    return disti_fail(DIST_ERR_INVALID_ARGUMENT, "--format: \"%s\" is none of text, csv, json",
                      text);
}

static dist_status options_one(int option, struct job *job, struct options *options)
{
    switch (option) {
    case 'n':
        return disti_parse_int("--ranks", optarg, 1, 1 << 20, &options->ranks);
    case 't':
        options->topology = optarg;
        return DIST_OK;
    case 'b':
        return options_sizes(job, optarg);
    case 'a':
        options->algorithm = optarg;
        return DIST_OK;
    case 's':
        return disti_parse_int("--segments", optarg, 1, 1024, &options->segments);
    case 'r':
        return disti_parse_int("--root", optarg, 0, 1 << 20, &job->root);
    case 'l':
        return job_links(optarg, &job->cost);
    case 'f':
        return options_format(job, optarg);
    case 'd':
        job->draw = optarg;
        return DIST_OK;
    default:
        job->verify = false;
        return DIST_OK;
    }
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
    int ranks = options->ranks ? options->ranks : 8;
    if (!options->topology)
        return disti_topology_flat(ranks, &job->topology);
    dist_status status = disti_topology_synthetic(options->topology, &job->topology);
    if (status == DIST_OK && options->ranks && options->ranks != job->topology->ranks)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "--ranks %d, but the topology \"%s\" has room for %d: leave --ranks out",
                          options->ranks, options->topology, job->topology->ranks);
    return status;
}

static dist_status options_settle(struct job *job, const struct options *options)
{
    dist_status status = options_topology(job, options);
    if (status != DIST_OK)
        return status;
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

int job_parse(int argc, char **argv, struct job *job)
{
    struct options options = {0};
    dist_status status = DIST_OK;
    int option;
    job->cost = disti_cost_usual;
    job->verify = true;
    options_ladder(job, (size_t)64 << 20);
    while (status == DIST_OK && (option = getopt_long(argc, argv, "h", options_long, NULL)) != -1) {
        if (option == 'h')
            return options_usage(stdout, 0);
        if (option == 'v') {
            printf("dist_sim %s\n", dist_version());
            return 0;
        }
        if (option == '?')
            return options_usage(stderr, 2);
        status = options_one(option, job, &options);
    }
    if (status == DIST_OK && optind != argc - 1)
        return options_usage(stderr, 2);
    if (status == DIST_OK)
        status = options_collective(argv[optind], job);
    if (status == DIST_OK)
        status = options_settle(job, &options);
    if (status == DIST_OK)
        return -1;
    fprintf(stderr, "dist_sim: %s\n", dist_last_error());
    return 2;
}
