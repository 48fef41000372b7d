/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info explain: queries the library's choice, measures the candidates and prints both. */
#include "explain.h"
#include "common/args.h"
#include "tools/common/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* ---- the table ---- */

/* Prints a time with three significant digits, "12.3 us", after the text `before`. */
static void print_time(double seconds, const char *before)
{
    double value = seconds * 1e6;
    const char *unit = "us";
    char text[32];

    if (value >= 1e6) {
        value /= 1e6;
        unit = "s";
    } else if (value >= 1e3) {
        value /= 1e3;
        unit = "ms";
    }
    snprintf(text, sizeof(text), "%s%.*f %s", before,
             value < 10    ? 2
             : value < 100 ? 1
                           : 0,
             value, unit);
    printf(" %10s", seconds >= 0 ? text : "-");
}

static void print_table(const struct explain_report *report)
{
    const struct dist_explanation *explanation = &report->explanation;

    printf("%s, blocks of %zu bytes, %d rank%s on %d machine%s\n\n",
           dist_collective_string(report->question.collective), report->question.bytes,
           explanation->ranks, explanation->ranks == 1 ? "" : "s", explanation->nodes,
           explanation->nodes == 1 ? "" : "s");
    printf("  %-20s %8s %10s", "algorithm", "segments", "predicted");
    if (report->run)
        printf(" %10s", "measured");
    printf("\n");
    for (int i = 0; i < report->count; i++) {
        const struct dist_candidate *candidate = &report->candidates[i];

        printf("%c %-20s", candidate->chosen ? '*' : ' ', candidate->algorithm);
        if (candidate->segments)
            printf(" %8d", candidate->segments);
        else
            printf(" %8s", "-");
        if (candidate->seconds < 0 && candidate->least > 0)
            print_time(candidate->least, "> ");
        else
            print_time(candidate->seconds, "");
        if (report->run)
            print_time(report->measured[i], "");
        printf("  %s%s\n", candidate->summary, candidate->rules ? " (chosen by the rules)" : "");
    }
    if (report->unforced >= 0) {
        printf("  %-20s %8s %*s", "(nothing forced)", "", 10, "");
        print_time(report->unforced, "");
        printf("\n");
    }
    for (int i = 0; i < report->count; i++) {
        if (report->candidates[i].chosen)
            printf("\nChosen: %s, since %s.\n", report->candidates[i].algorithm,
                   explanation->reason);
    }
    printf("Costs: %s.\n", explanation->costs);
}

/* ---- CSV and JSON ---- */

static void print_seconds(const char *name, double seconds)
{
    if (seconds >= 0)
        printf(", \"%s\": %.9f", name, seconds);
    else
        printf(", \"%s\": null", name);
}

/* Prints the report in report->format. */
static void explain_print(const struct explain_report *report)
{
    if (report->format == EXPLAIN_CSV) {
        printf("collective,bytes,ranks,nodes,algorithm,segments,predicted_s,measured_s,chosen,"
               "rules\n");
        for (int i = 0; i < report->count; i++) {
            const struct dist_candidate *candidate = &report->candidates[i];
            char predicted[32] = "", measured[32] = "";

            if (candidate->seconds >= 0)
                snprintf(predicted, sizeof(predicted), "%.9f", candidate->seconds);
            if (report->measured[i] >= 0)
                snprintf(measured, sizeof(measured), "%.9f", report->measured[i]);
            printf("%s,%zu,%d,%d,%s,%d,%s,%s,%s,%s\n",
                   dist_collective_string(report->question.collective), report->question.bytes,
                   report->explanation.ranks, report->explanation.nodes, candidate->algorithm,
                   candidate->segments, predicted, measured, candidate->chosen ? "yes" : "no",
                   candidate->rules ? "yes" : "no");
        }
    } else if (report->format == EXPLAIN_JSON) {
        const struct dist_explanation *explanation = &report->explanation;

        printf("{");
        json_member("collective", dist_collective_string(report->question.collective), true,
                    stdout);
        printf(", \"bytes\": %zu, \"ranks\": %d, \"nodes\": %d", report->question.bytes,
               explanation->ranks, explanation->nodes);
        json_member("reason", explanation->reason, false, stdout);
        json_member("costs", explanation->costs, false, stdout);
        print_seconds("unforced_s", report->unforced);
        printf(", \"candidates\": [");
        for (int i = 0; i < report->count; i++) {
            const struct dist_candidate *candidate = &report->candidates[i];

            printf("%s\n  {", i ? "," : "");
            json_member("algorithm", candidate->algorithm, true, stdout);
            printf(", \"segments\": %d", candidate->segments);
            print_seconds("predicted_s", candidate->seconds);
            print_seconds("least_s", candidate->least);
            print_seconds("measured_s", report->measured[i]);
            printf(", \"chosen\": %s, \"rules\": %s}", candidate->chosen ? "true" : "false",
                   candidate->rules ? "true" : "false");
        }
        printf("\n]}\n");
    } else {
        print_table(report);
    }
}

/* dist_info explain --run: measures the time of each candidate. */

/*
 * Calls are timed in batches, and the time of the fastest batch is the result: other programs on
 * the machine can only make calls slower.
 */
#define RUN_WARM 5        /* warm-up calls */
#define RUN_SECONDS 0.3   /* approximate duration of all batches of a candidate */
#define RUN_BATCHES 10    /* batches per candidate */
#define RUN_CALLS_MAX 200 /* maximum number of calls per batch */

/* An algorithm to measure; an empty name: the library's choice. Ranks exchange it as bytes. */
struct run_item {
    char algorithm[56];
    int32_t segments;
};

/* Results of rank 0: seconds of each item, and the report with the measured times. */
struct run_found {
    double seconds[EXPLAIN_CANDIDATES_MAX + 1];
    struct explain_report report;
};

/* The items to measure. `found`, where the results are stored, is only used on rank 0. */
struct run_list {
    struct explain_report *report;
    struct run_item items[EXPLAIN_CANDIDATES_MAX + 1];
    int32_t count;
    struct run_found *found;
};

/* Group, buffers and arguments with which a rank measures an item. */
struct run {
    const struct explain_report *report;
    dist_group *group;
    int ranks;
    size_t count; /* elements per block */
    char *in, *out;
    size_t *counts, *offsets;
};

static double run_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static dist_status run_call(const struct run *run)
{
    dist_dtype dtype = run->report->dtype;
    dist_group *group = run->group;
    size_t count = run->count;

    switch (run->report->question.collective) {
    case DIST_COLL_ALL_REDUCE:
        return dist_all_reduce(group, run->in, run->out, count, dtype, DIST_SUM);
    case DIST_COLL_BROADCAST:
        return dist_broadcast(group, run->out, count, dtype, 0);
    case DIST_COLL_BARRIER:
        return dist_barrier(group);
    case DIST_COLL_ALL_GATHER:
        return dist_all_gather(group, run->in, run->out, count, dtype);
    case DIST_COLL_REDUCE:
        return dist_reduce(group, run->in, run->out, count, dtype, DIST_SUM, 0);
    case DIST_COLL_REDUCE_SCATTER:
        return dist_reduce_scatter(group, run->in, run->out, count, dtype, DIST_SUM);
    case DIST_COLL_GATHER:
        return dist_gather(group, run->in, run->out, count, dtype, 0);
    case DIST_COLL_SCATTER:
        return dist_scatter(group, run->in, run->out, count, dtype, 0);
    case DIST_COLL_ALL_TO_ALL:
        return dist_all_to_all(group, run->in, run->out, count, dtype);
    case DIST_COLL_ALL_GATHER_V: /* in this and the following irregular calls all blocks are equal
                                  */
        return dist_all_gather_v(group, run->in, run->out, run->counts, run->offsets, dtype);
    case DIST_COLL_REDUCE_SCATTER_V:
        return dist_reduce_scatter_v(group, run->in, run->out, run->counts, dtype, DIST_SUM);
    case DIST_COLL_GATHER_V:
        return dist_gather_v(group, run->in, count, run->out, run->counts, run->offsets, dtype, 0);
    case DIST_COLL_SCATTER_V:
        return dist_scatter_v(group, run->in, run->counts, run->offsets, run->out, count, dtype, 0);
    default:
        return dist_all_to_all_v(group, run->in, run->counts, run->offsets, run->out, run->counts,
                                 run->offsets, dtype);
    }
}

/* Makes `calls` calls after a barrier and returns the average seconds of a call in *seconds_p. */
static dist_status run_calls(const struct run *run, int calls, double *seconds_p)
{
    dist_status status = dist_barrier(run->group);
    double begin = run_now();

    for (int i = 0; i < calls && status == DIST_OK; i++)
        status = run_call(run);
    *seconds_p = (run_now() - begin) / calls;
    return status;
}

static bool run_alloc(struct run *run)
{
    size_t block = run->report->question.bytes + 8, ranks = (size_t)run->ranks;

    if (block > SIZE_MAX / ranks)
        return false;
    run->in = calloc(ranks, block);
    run->out = calloc(ranks, block);
    run->counts = calloc(ranks, sizeof(*run->counts));
    run->offsets = calloc(ranks, sizeof(*run->offsets));
    if (!run->in || !run->out || !run->counts || !run->offsets)
        return false;
    for (size_t r = 0; r < ranks; r++) {
        run->counts[r] = run->count;
        run->offsets[r] = r * run->count;
    }
    return true;
}

/* Measures one item in a duplicate of the group: creating a group reads DIST_ALGO and DIST_SEGMENTS
 * again. */
static dist_status run_item(dist_group *world, struct run *run, const struct run_item *item,
                            double *seconds_p)
{
    char algorithm[96], segments[16];
    dist_status status;

    if (item->algorithm[0]) {
        snprintf(algorithm, sizeof(algorithm), "%s:%s",
                 dist_collective_string(run->report->question.collective), item->algorithm);
        snprintf(segments, sizeof(segments), "%d", item->segments);
        setenv("DIST_ALGO", algorithm, 1);
        setenv("DIST_SEGMENTS", segments, 1);
    }
    status = dist_dup_group(world, NULL, &run->group);
    if (status != DIST_OK)
        return status;
    /* Rank 0 chooses the number of calls by its clock; the times of the other ranks are unused. */
    double seconds = 0, best = 1e9;
    int32_t calls = 0;
    status = run_calls(run, RUN_WARM, &seconds);
    if (status == DIST_OK)
        status = run_calls(run, RUN_WARM, &seconds);
    calls = seconds * RUN_BATCHES * RUN_CALLS_MAX < RUN_SECONDS
                ? RUN_CALLS_MAX
                : (int32_t)(RUN_SECONDS / RUN_BATCHES / seconds);
    calls = calls < 2 ? 2 : calls;
    if (status == DIST_OK)
        status = dist_broadcast(run->group, &calls, 1, DIST_INT32, 0);
    for (int i = 0; i < RUN_BATCHES && status == DIST_OK; i++) {
        status = run_calls(run, calls, &seconds);
        best = seconds < best ? seconds : best;
    }
    if (status == DIST_OK)
        *seconds_p = best;
    return status == DIST_OK ? dist_destroy_process_group(run->group) : status;
}

static dist_status run_items(dist_group *world, const struct run_list *list)
{
    struct run run = {.report = list->report,
                      .ranks = dist_get_world_size(world),
                      .count = list->report->question.bytes / dist_dtype_size(list->report->dtype)};
    dist_status status = DIST_OK;
    bool allocated = run_alloc(&run);

    if (!allocated) {
        fprintf(stderr,
                "dist_info: rank %d: out of memory for blocks of that size: reduce --bytes\n",
                dist_get_rank(world));
        status = DIST_ERR_NO_MEMORY;
    }
    for (int i = 0; i < list->count && status == DIST_OK; i++)
        status = run_item(world, &run, &list->items[i], &list->found->seconds[i]);
    if (status != DIST_OK && allocated)
        fprintf(stderr, "dist_info: rank %d: %s\n", dist_get_rank(world), dist_last_error());
    free(run.in);
    free(run.out);
    free(run.counts);
    free(run.offsets);
    return status;
}

static dist_status run_open(dist_group **world_p)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    dist_status status;

    options.backend = "gloo";
    status = dist_init_process_group(&options, world_p);
    if (status != DIST_OK)
        fprintf(stderr, "dist_info: %s\n", dist_last_error());
    return status;
}

/* Lists the items to measure. Unsets DIST_ALGO and DIST_SEGMENTS: a forced algorithm has already
 * been shown as the choice, and would affect the measurements. */
static void run_fill_list(struct run_list *list)
{
    list->count = 1;
    for (int i = 0; i < list->report->count; i++) {
        struct run_item *item = &list->items[list->count++];

        if (list->report->candidates[i].segments ==
            0) /* this candidate cannot be forced: the item is the library's choice */
            continue;
        snprintf(item->algorithm, sizeof(item->algorithm), "%s",
                 list->report->candidates[i].algorithm);
        item->segments = list->report->candidates[i].segments;
    }
    unsetenv("DIST_ALGO");
    unsetenv("DIST_SEGMENTS");
}

/* Copies the measured times into the report. Called on rank 0. */
static void run_store(const struct run_list *list)
{
    struct explain_report *report = &list->found->report;

    *report = *list->report;
    report->unforced = list->found->seconds[0];
    for (int row = 0; row < report->count; row++) {
        const struct dist_candidate *candidate = &report->candidates[row];

        /* Find the item of this candidate. */
        for (int i = 1; i < list->count; i++) {
            const struct run_item *item = &list->items[i];

            if (item->segments == candidate->segments &&
                (!item->segments || strcmp(item->algorithm, candidate->algorithm) == 0))
                report->measured[row] = list->found->seconds[i];
        }
    }
}

/* ---- on ranks that this process starts ---- */

static int run_rank(int rank, void *arg)
{
    struct run_found own;
    struct run_list mine = *(const struct run_list *)arg;
    dist_group *world;
    dist_status status = run_open(&world);

    if (rank != 0)
        mine.found = &own;
    if (status == DIST_OK)
        status = run_items(world, &mine);
    if (status == DIST_OK && rank == 0)
        run_store(&mine);
    if (status == DIST_OK)
        status = dist_destroy_process_group(world);
    return status == DIST_OK ? 0 : 1;
}

/*
 * Measures each candidate, and the library's own choice, on ranks that it starts on this machine.
 * Updates the report.
 */
static dist_status explain_run_here(struct explain_report *report)
{
    struct run_list list = {.report = report};
    dist_status status;
    int code = 0;

    list.found =
        mmap(NULL, sizeof(*list.found), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (list.found == MAP_FAILED)
        return DIST_ERR_NO_MEMORY;
    run_fill_list(&list);
    status = dist_spawn(report->question.ranks, run_rank, &list, &code);
    if (status == DIST_OK && code)
        status = DIST_ERR_ABORTED;
    if (status == DIST_OK)
        *report = list.found->report;
    munmap(list.found, sizeof(*list.found));
    return status;
}

/* ---- on the ranks of a launcher's job ---- */

/*
 * Writes the job's topology to text, such as "node:2 core:4". Returns false if the machines have
 * different numbers of ranks, or on an error. A collective call.
 */
static bool run_topology(dist_group *world, char *text, size_t size)
{
    int32_t mine = dist_get_local_rank(world) + 1, most = 0, ranks = dist_get_world_size(world);
    int32_t last = mine, lasts = 0; /* last: this is the last rank of a machine with `most` ranks */

    if (dist_all_reduce(world, &mine, &most, 1, DIST_INT32, DIST_MAX) != DIST_OK || most < 1)
        return false;
    last = mine == most;
    if (dist_all_reduce(world, &last, &lasts, 1, DIST_INT32, DIST_SUM) != DIST_OK)
        return false;
    snprintf(text, size, "node:%d core:%d", ranks / most, most);
    return (int64_t)lasts * most == ranks;
}

/* Queries the library, and prints its error. */
static dist_status explain_query(struct explain_report *report)
{
    dist_status status = dist_explain(&report->question, report->candidates, EXPLAIN_CANDIDATES_MAX,
                                      &report->explanation);

    if (status != DIST_OK)
        fprintf(stderr, "dist_info: %s\n", dist_last_error());
    else
        report->count = report->explanation.candidates < EXPLAIN_CANDIDATES_MAX
                            ? report->explanation.candidates
                            : EXPLAIN_CANDIDATES_MAX;
    return status;
}

/* Queries the library on rank 0 and broadcasts the items to measure to the other ranks. */
static dist_status run_query(dist_group *world, struct run_list *list)
{
    struct explain_report *report = list->report;
    int32_t queried = DIST_OK; /* status of rank 0's query */
    dist_status status;

    if (dist_get_rank(world) == 0) {
        queried = explain_query(report);
        if (queried == DIST_OK)
            run_fill_list(list);
    }
    status = dist_broadcast(world, &queried, 1, DIST_INT32, 0);
    if (status == DIST_OK && queried != DIST_OK)
        return (dist_status)queried;
    if (status == DIST_OK)
        status = dist_broadcast(world, &list->count, 1, DIST_INT32, 0);
    if (status == DIST_OK)
        status = dist_broadcast(world, list->items, sizeof(list->items), DIST_UINT8, 0);
    unsetenv("DIST_ALGO");
    unsetenv("DIST_SEGMENTS");
    return status;
}

/* The command. */

/* The options. */
struct explain_words {
    int64_t bytes, ranks; /* 0 ranks: not given */
    const char *topology, *dtype, *format;
    bool run;
    int action;
};

#define EXPLAIN_CHOICE(name, text) text "|"
#define AT(member) offsetof(struct explain_words, member)
static const struct args_row explain_rows[] = {
    {.names = "", .kind = ARGS_WORDS, .argument = DIST_COLLECTIVE_MAP(EXPLAIN_CHOICE)},
    {"bytes", 0, ARGS_BYTES, AT(bytes), 0, 1e15, "SIZE",
     "size of a block, with K, M or G (default: 1M)"},
    {"ranks", 0, ARGS_INT, AT(ranks), 1, EXPLAIN_RANKS_MAX, "N",
     "number of ranks on one machine (default: one per CPU, 2 to 64)"},
    {"topology", 0, ARGS_TEXT, AT(topology), 0, 0, "TEXT",
     "machines and ranks on them, such as 'node:2 core:4'"},
    {"dtype", 0, ARGS_TEXT, AT(dtype), 0, 0, "NAME",
     "data type of the measured calls (default: float32)"},
    {"run", 0, ARGS_FLAG, AT(run), 0, 0, NULL,
     "also measure each algorithm: with --ranks on this machine, otherwise in the launcher's job"},
    {"format", 0, ARGS_CHOICE, AT(format), 0, 0, "table|csv|json",
     "for people (the default), or for programs"},
    ARGS_HELP_ROWS(struct explain_words, 0),
};
static const struct args explain_args = {
    .rows = explain_rows,
    .count = sizeof(explain_rows) / sizeof(explain_rows[0]),
    .program = "dist_info explain",
    .usage = "COLLECTIVE [--bytes SIZE] [--ranks N] [--topology TEXT] [--dtype NAME] [--run] "
             "[--format table|csv|json]",
    .about = "Shows which algorithm libdist chooses for blocks of that size, the predicted time "
             "of each algorithm, and why. COLLECTIVE is all_reduce, broadcast, ...\n"};

static int explain_options(int argc, char **argv, struct explain_report *report)
{
    struct explain_words words = {.bytes = 1 << 20, .dtype = "float32", .format = "table"};
    int rest, code = args_begin(&explain_args, argc, argv, &words, 1, &rest);

    if (code >= 0)
        return code;
    if (rest == argc)
        return args_wrong(&explain_args, "name a collective, such as all_reduce");
    report->question.bytes = (size_t)words.bytes;
    report->question.ranks = (int)words.ranks;
    report->question.topology = words.topology;
    report->run = words.run;
    report->format = strcmp(words.format, "csv") == 0    ? EXPLAIN_CSV
                     : strcmp(words.format, "json") == 0 ? EXPLAIN_JSON
                                                         : EXPLAIN_TABLE;
    if (words.run && words.topology)
        return args_wrong(&explain_args, "--run measures real ranks: omit --topology, and give "
                                         "--ranks or start dist_info with your job's launcher");
    int dtype = 0;

    while (dtype < DIST_DTYPE_COUNT &&
           strcmp(words.dtype, dist_dtype_string((dist_dtype)dtype)) != 0)
        dtype++;
    report->dtype = (dist_dtype)dtype;
    if (dtype == DIST_DTYPE_COUNT)
        return args_wrong(&explain_args,
                          "--dtype: unknown type '%s'; `dist_info backends` lists the types",
                          words.dtype);
    char names[512] = "";
    size_t used = 0;

    for (int c = 0; c < DIST_COLL_SEND; c++) {
        const char *name = dist_collective_string((dist_collective)c);

        if (strcmp(argv[rest], name) == 0) {
            report->question.collective = (dist_collective)c;
            return -1;
        }
        used += (size_t)snprintf(names + used, sizeof(names) - used, " %s", name);
    }
    return args_wrong(&explain_args, "unknown collective '%s'; choose from%s", argv[rest], names);
}

int explain_main(int argc, char **argv)
{
    struct explain_report report = {.question = {.size = sizeof(report.question)},
                                    .explanation = {.size = sizeof(report.explanation)},
                                    .unforced = -1};
    int code;

    code = explain_options(argc, argv, &report);
    if (code >= 0)
        return code;
    for (int i = 0; i < EXPLAIN_CANDIDATES_MAX; i++)
        report.measured[i] = -1;
    if (report.question.collective == DIST_COLL_BARRIER)
        report.question.bytes = 0;
    if (report.run && !report.question.ranks) {
        struct run_found found;
        struct run_list list = {.report = &report, .found = &found};
        char topology[64];
        dist_group *world;
        dist_status status = run_open(&world);

        if (status != DIST_OK)
            return 1;
        if (dist_get_world_size(world) == 1 || !run_topology(world, topology, sizeof(topology))) {
            fprintf(stderr, "dist_info: %s\n",
                    dist_get_world_size(world) == 1
                        ? "--run in a job of one rank: give --ranks, or start more ranks with your "
                          "launcher"
                        : "--run: the job's machines must have equal numbers of ranks");
            dist_destroy_process_group(world);
            return 1;
        }
        report.question.topology = topology;
        status = run_query(world, &list);
        if (status == DIST_OK)
            status = run_items(world, &list);
        if (status == DIST_OK && dist_get_rank(world) == 0) {
            run_store(&list);
            explain_print(&found.report);
        }
        report.question.topology = NULL;
        if (dist_destroy_process_group(world) != DIST_OK)
            status = DIST_ERR_ABORTED;
        return status == DIST_OK ? 0 : 1;
    }
    if (!report.question.ranks && !report.question.topology) {
        /* By default one rank per CPU, from 2 to 64. */
        long cpus = sysconf(_SC_NPROCESSORS_ONLN);

        report.question.ranks = cpus < 2 ? 2 : cpus > 64 ? 64 : (int)cpus;
    }
    if (explain_query(&report) != DIST_OK)
        return 1;
    if (report.run && explain_run_here(&report) != DIST_OK) {
        fprintf(stderr, "dist_info: %s\n", dist_last_error());
        return 1;
    }
    explain_print(&report);
    return 0;
}
