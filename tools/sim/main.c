/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_sim: verifies algorithms, and simulates them on machines that need not exist. */
#include "base/log.h"
#include "base/settings/config.h"
#include "tools/common/args.h"
#include "tools/common/output.h"
#include "tools/common/plot.h"
#include "tools/common/text.h"
#include "topology/topology.h"
#include "tuning/choose.h"
#include "tuning/tuning.h"
#include "verify/verify.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define JOB_SIZES_MAX 32
#define JOB_ALGORITHMS_MAX 16
#define JOB_WHY_MAX 512

struct job_result;

/* The options, parsed. */
struct job {
    dist_collective collective;
    struct disti_topology *topology;
    struct disti_cost cost;
    size_t sizes[JOB_SIZES_MAX]; /* sizes of a block in bytes, ascending */
    int size_count;
    const struct disti_algorithm *only; /* NULL: all */
    uint32_t segments;                  /* 0: the library's choice */
    int root;
    void (*print)(const struct job *job, const struct job_result *result, FILE *to);
    const char *draw; /* file of the picture; NULL: none */
    bool verify;
};

/* The result of an algorithm for one size. */
struct job_cell {
    uint32_t segments;
    dist_status status;
    struct disti_forecast forecast; /* valid if status is DIST_OK */
    char why[JOB_WHY_MAX];          /* error message otherwise */
};

/* The results of one algorithm. */
struct job_row {
    const struct disti_algorithm *algorithm;
    bool verified;
    dist_status status; /* of the verification */
    struct disti_verdict verdict;
    char why[JOB_WHY_MAX]; /* why it could not be verified; "": it could */
    struct job_cell cells[JOB_SIZES_MAX];
};

struct job_result {
    int count;
    struct job_row rows[JOB_ALGORITHMS_MAX];
    int best[JOB_SIZES_MAX]; /* fastest row for each size; -1: no row could be simulated */
};

/* Names of the distances in --links and in all outputs. */
static const char *const job_distances[DISTI_DISTANCES] = {
    [DISTI_SAME_NUMA] = "same_numa",
    [DISTI_SAME_NODE] = "same_node",
    [DISTI_OTHER_NODE] = "other_node",
    [DISTI_OTHER_RACK] = "other_rack",
};

/* ---- --links: numbers with units ---- */

struct links_unit {
    const char *name;
    double value;
};

static const struct links_unit links_times[] = {
    {"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {NULL, 0}};

static const struct links_unit links_rates[] = {
    {"kbit", 1e3 / 8}, {"mbit", 1e6 / 8}, {"gbit", 1e9 / 8}, {"kB", 1e3},
    {"MB", 1e6},       {"GB", 1e9},       {"TB", 1e12},      {NULL, 0}};

/* Parses a number with a unit, such as "20us"; 0 needs no unit. Returns false if it is invalid. */
static bool links_number(const char *text, const struct links_unit *unit, double *value_p)
{
    char *end;
    if (!text || !*text || strlen(text) >= 32 || !strchr("0123456789.", *text))
        return false;
    double value = strtod(text, &end);
    while (unit->name && strcmp(unit->name, end) != 0)
        unit++;
    if (!unit->name && !(value == 0 && *end == '\0'))
        return false;
    *value_p = unit->name ? value * unit->value : 0;
    return value >= 0 && value < 1e15;
}

/* ---- --links: items ---- */

struct links_word {
    const char *name;
    size_t offset; /* of the member, a double, in struct disti_cost */
    const struct links_unit *units;
};

static const struct links_word links_words[] = {
    {"copy", offsetof(struct disti_cost, copy_bytes_per_second), links_rates},
    {"reduce", offsetof(struct disti_cost, reduce_bytes_per_second), links_rates},
    {"memory", offsetof(struct disti_cost, node_bytes_per_second), links_rates},
    {"network", offsetof(struct disti_cost, network_bytes_per_second), links_rates},
    {"step", offsetof(struct disti_cost, step_s), links_times},
    {"switch", offsetof(struct disti_cost, switch_s), links_times},
};

/* Parses an item such as "other_node=20us/10gbit/5us" (latency, rate, optional overhead) or
 * "cpus=8". Returns false if it is invalid. */
static bool links_item(char *value, struct disti_cost *cost)
{
    const char *name = strsep(&value, "=");
    if (!value)
        return false;
    for (int d = 0; d < DISTI_DISTANCES; d++) {
        struct disti_link_cost link = cost->links[d];
        if (strcmp(job_distances[d], name) != 0)
            continue;
        if (!links_number(strsep(&value, "/"), links_times, &link.latency_s) ||
            !links_number(strsep(&value, "/"), links_rates, &link.bytes_per_second) ||
            (value && !links_number(value, links_times, &link.overhead_s)))
            return false;
        cost->links[d] = link;
        return true;
    }
    for (size_t i = 0; i < sizeof(links_words) / sizeof(*links_words); i++)
        if (strcmp(links_words[i].name, name) == 0)
            return links_number(value, links_words[i].units,
                                (double *)((char *)cost + links_words[i].offset));
    if (strcmp(name, "cpus") == 0)
        return disti_parse_int("cpus", value, 0, 1 << 16, &cost->node_cpus) == DIST_OK;
    return strcmp(name, "eager") == 0 &&
           disti_parse_bytes("eager", value, &cost->eager_bytes) == DIST_OK;
}

static dist_status links_words_of(const char *text, struct disti_cost *cost)
{
    for (text += strspn(text, ", "); *text; text += strspn(text, ", ")) {
        size_t length = strcspn(text, ", ");
        char item[128];
        snprintf(item, sizeof(item), "%.*s", (int)length, text);
        if (length >= sizeof(item) || !links_item(item, cost))
            return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                              "--links: invalid item \"%.*s\"; valid are for example "
                              "other_node=20us/10gbit/5us, memory=25GB, step=100ns, cpus=8",
                              (int)(length < 100 ? length : 100), text);
        text += length;
    }
    return DIST_OK;
}

/*
 * Reads the costs from a tuning file. Leaves the number of CPUs and the eager limit unchanged,
 * since tuning files do not have them.
 */
static dist_status links_file(const char *name, struct disti_cost *cost)
{
    static char text[2 * DISTI_TUNING_TEXT]; /* too large for a small stack */
    char why[256];
    struct disti_tuning tuning;
    FILE *file = fopen(name, "r");
    if (!file)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "--links %s: %s", name, strerror(errno));
    size_t length = fread(text, 1, sizeof(text), file);
    bool failed = ferror(file);
    fclose(file);
    if (failed || length == sizeof(text))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "--links %s: the file cannot be read, or is too long for a tuning file",
                          name);
    text[length] = '\0';
    dist_status status = disti_tuning_parse(text, name, NULL, &tuning, why, sizeof(why));
    if (status != DIST_OK)
        return disti_fail(status, "--links %s", why);
    tuning.cost.node_cpus = cost->node_cpus;
    tuning.cost.eager_bytes = cost->eager_bytes;
    *cost = tuning.cost;
    return DIST_OK;
}

/* ---- formatting of numbers: "64M", "1.5 ms", "3.2 GB/s"; all functions return text ---- */

static char *job_size_text(size_t bytes, char text[24])
{
    static const char units[] = " KMGT";
    int unit = 0;
    while (bytes >= 1024 && bytes % 1024 == 0 && unit < 4) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, 24, unit ? "%zu%c" : "%zu", bytes, units[unit]);
    return text;
}

/* Prints three digits with a suitable unit; units[i] is 1000 times units[i - 1]. */
static char *print_scaled(double value, const char *const *units, int count, char text[24])
{
    int unit = 0;
    while (value >= 999.5 && unit < count - 1) {
        value /= 1000;
        unit++;
    }
    int digits = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    snprintf(text, 24, "%.*f %s", digits, value, units[unit]);
    return text;
}

static char *job_time_text(double seconds, char text[24])
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    return print_scaled(seconds * 1e9, units, 4, text);
}

static char *job_rate_text(double bytes_per_second, char text[24])
{
    static const char *const units[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
    if (bytes_per_second <= 0)
        return strcpy(text, "no limit");
    return print_scaled(bytes_per_second, units, 5, text);
}

/* ---- text ---- */

/* True if two ranks of the topology are at this distance. */
static bool job_has(const struct disti_topology *topology, int distance)
{
    int rack = topology->rack_nodes ? topology->rack_nodes : topology->nodes;
    if (distance == DISTI_OTHER_RACK)
        return rack < topology->nodes;
    if (distance == DISTI_OTHER_NODE)
        return topology->nodes > 1 && rack > 1;
    for (int i = 1; i < topology->ranks; i++)
        if ((int)disti_distance(topology, topology->order[i], topology->order[i - 1]) == distance)
            return true;
    return false;
}

static const char *text_proof(const struct job *job, const struct job_row *row)
{
    if (!job->verify)
        return "not verified";
    if (row->status != DIST_OK)
        return "could not be verified";
    if (!row->verdict.ok)
        return "WRONG";
    return row->verdict.all ? "verified" : "a sample verified";
}

/* Returns the first error of the row: a wrong plan, a failed simulation or verification; "": none.
 */
static const char *job_why(const struct job *job, const struct job_row *row)
{
    if (row->verdict.text[0])
        return row->verdict.text;
    for (int i = 0; i < job->size_count; i++)
        if (row->cells[i].why[0])
            return row->cells[i].why;
    return row->why;
}

/* Prints an algorithm's result for the largest size, with the traffic of each kind of link. */
static void text_detail(const struct job *job, const struct job_row *row, FILE *to)
{
    const struct job_cell *cell = &row->cells[job->size_count - 1];
    const struct disti_forecast *f = &cell->forecast;
    char time[24], rate[24], bytes[24];
    fprintf(to, "\n%s: %s", row->algorithm->name, text_proof(job, row));
    if (cell->status == DIST_OK) {
        size_t size = job->sizes[job->size_count - 1];
        fprintf(to, ", %u segment%s, %llu steps, %s, %s, busiest rank %.0f %%", cell->segments,
                cell->segments == 1 ? "" : "s", (unsigned long long)f->steps,
                job_time_text(f->seconds, time),
                size ? job_rate_text((double)size / f->seconds, rate) : "no data",
                100 * f->busiest_rank);
    }
    fprintf(to, "\n");
    for (int d = 0; d < DISTI_DISTANCES && cell->status == DIST_OK; d++) {
        const struct disti_traffic *link = &f->links[d];
        if (!link->messages && link->busiest <= 0)
            continue;
        job_rate_text(link->bytes, bytes);
        bytes[strlen(bytes) - 2] = '\0'; /* cut "/s" */
        fprintf(to, "  %-12s %12llu messages %12s", job_distances[d],
                (unsigned long long)link->messages, link->bytes > 0 ? bytes : "0 B");
        if (d >= DISTI_OTHER_NODE) {
            job_time_text(link->messages ? link->waited_s / (double)link->messages : 0, time);
            fprintf(to, ", busiest line %3.0f %%, a message waits %s", 100 * link->busiest, time);
        }
        fprintf(to, "\n");
    }
    if (job_why(job, row)[0])
        fprintf(to, "  %s\n", job_why(job, row));
}

static void print_text(const struct job *job, const struct job_result *result, FILE *to)
{
    const struct disti_topology *t = job->topology;
    fprintf(to, "%s of %d ranks on %d node%s", dist_collective_string(job->collective), t->ranks,
            t->nodes, t->nodes == 1 ? "" : "s");
    if (t->rack_nodes)
        fprintf(to, " in %d racks", (t->nodes - 1) / t->rack_nodes + 1);
    fprintf(to, "\n\n%-12s %12s %12s %12s\n", "link", "latency", "overhead", "rate");
    for (int d = 0; d < DISTI_DISTANCES; d++) {
        const struct disti_link_cost *link = &job->cost.links[d];
        char latency[24], overhead[24], rate[24];
        if (!job_has(t, d))
            continue;
        fprintf(to, "%-12s %12s %12s %12s\n", job_distances[d],
                job_time_text(link->latency_s, latency), job_time_text(link->overhead_s, overhead),
                job_rate_text(link->bytes_per_second, rate));
    }
    /* The table of times; the fastest algorithm for each size is marked with a star. */
    char text[24];
    fprintf(to, "\n%-20s", "algorithm");
    for (int i = 0; i < job->size_count; i++)
        fprintf(to, " %10s ", job_size_text(job->sizes[i], text));
    fprintf(to, "\n");
    for (int r = 0; r < result->count; r++) {
        fprintf(to, "%-20s", result->rows[r].algorithm->name);
        for (int i = 0; i < job->size_count; i++) {
            const struct job_cell *cell = &result->rows[r].cells[i];
            fprintf(to, " %10s%c",
                    cell->status == DIST_OK ? job_time_text(cell->forecast.seconds, text) : "-",
                    result->best[i] == r ? '*' : ' ');
        }
        fprintf(to, "\n");
    }
    fprintf(to, "\nWith %s:\n", job_size_text(job->sizes[job->size_count - 1], text));
    for (int r = 0; r < result->count; r++)
        text_detail(job, &result->rows[r], to);
}

/* ---- CSV and JSON ---- */

static const char *print_verified(const struct job_row *row)
{
    return !row->verified ? "no" : row->verdict.all ? "yes" : "sample";
}

static void print_csv(const struct job *job, const struct job_result *result, FILE *to)
{
    fprintf(to, "collective,ranks,nodes,algorithm,bytes,segments,seconds,best,verified,steps,"
                "busiest_rank");
    for (int d = 0; d < DISTI_DISTANCES; d++)
        fprintf(to, ",%s_messages,%s_bytes,%s_waited_s,%s_busiest", job_distances[d],
                job_distances[d], job_distances[d], job_distances[d]);
    fprintf(to, "\n");
    for (int r = 0; r < result->count; r++) {
        const struct job_row *row = &result->rows[r];
        for (int i = 0; i < job->size_count; i++) {
            const struct disti_forecast *f = &row->cells[i].forecast;
            fprintf(to, "%s,%d,%d,%s,%zu,%u,", dist_collective_string(job->collective),
                    job->topology->ranks, job->topology->nodes, row->algorithm->name, job->sizes[i],
                    row->cells[i].segments);
            if (row->cells[i].status == DIST_OK)
                fprintf(to, "%.9g", f->seconds);
            fprintf(to, ",%s,%s,%llu,%.4f", result->best[i] == r ? "yes" : "no",
                    print_verified(row), (unsigned long long)f->steps, f->busiest_rank);
            for (int d = 0; d < DISTI_DISTANCES; d++)
                fprintf(to, ",%llu,%.0f,%.9g,%.4f", (unsigned long long)f->links[d].messages,
                        f->links[d].bytes, f->links[d].waited_s, f->links[d].busiest);
            fprintf(to, "\n");
        }
    }
}

static void print_json(const struct job *job, const struct job_result *result, FILE *to)
{
    fprintf(to, "{\"collective\": \"%s\", \"ranks\": %d, \"nodes\": %d,\n  \"algorithms\": [",
            dist_collective_string(job->collective), job->topology->ranks, job->topology->nodes);
    for (int r = 0; r < result->count; r++) {
        const struct job_row *row = &result->rows[r];
        fprintf(to,
                "%s\n    {\"algorithm\": \"%s\", \"verified\": \"%s\", \"why_not\": ", r ? "," : "",
                row->algorithm->name, print_verified(row));
        json_quoted(job_why(job, row), to);
        fprintf(to, ", \"sizes\": [");
        for (int i = 0; i < job->size_count; i++) {
            const struct disti_forecast *f = &row->cells[i].forecast;
            fprintf(to, "%s\n        {\"bytes\": %zu, \"segments\": %u", i ? "," : "",
                    job->sizes[i], row->cells[i].segments);
            if (row->cells[i].status != DIST_OK) {
                fprintf(to, ", \"seconds\": null}");
                continue;
            }
            fprintf(to,
                    ", \"seconds\": %.9g, \"best\": %s, \"steps\": %llu, \"busiest_rank\": %.4f",
                    f->seconds, result->best[i] == r ? "true" : "false",
                    (unsigned long long)f->steps, f->busiest_rank);
            for (int d = 0; d < DISTI_DISTANCES; d++)
                fprintf(to,
                        ", \"%s\": {\"messages\": %llu, \"bytes\": %.0f, \"waited_s\": %.9g, "
                        "\"busiest\": %.4f}",
                        job_distances[d], (unsigned long long)f->links[d].messages,
                        f->links[d].bytes, f->links[d].waited_s, f->links[d].busiest);
            fprintf(to, "}");
        }
        fprintf(to, "]}");
    }
    fprintf(to, "]}\n");
}

/* ---- simulation of every algorithm with every size, and one verification per algorithm ---- */

/* Plans with more steps are not verified, since that would take minutes. */
#define RUN_PROVED (UINT64_C(1) << 27)

static struct disti_shape run_shape(const struct job *job, const struct job_cell *cell)
{
    return (struct disti_shape){.collective = job->collective,
                                .ranks = job->topology->ranks,
                                .root = job->root,
                                .segments = cell->segments,
                                .topology = job->topology};
}

static void run_copy_error(char *why)
{
    snprintf(why, JOB_WHY_MAX, "%s", dist_last_error());
}

/* Verifies an algorithm with the largest size. Builds the plans of all ranks, even if the
 * simulation needs only a few representative ranks. */
static dist_status run_proof(const struct job *job, struct job_row *row)
{
    const struct job_cell *cell = &row->cells[job->size_count - 1];
    struct disti_shape shape = run_shape(job, cell);
    if (cell->status != DIST_OK) { /* too large to simulate, so too large to verify */
        memcpy(row->why, cell->why, sizeof(row->why));
        return cell->status;
    }
    if (cell->forecast.steps > RUN_PROVED) {
        snprintf(row->why, sizeof(row->why),
                 "too long to be verified: %llu steps of all ranks, more than %llu; give fewer "
                 "ranks",
                 (unsigned long long)cell->forecast.steps, (unsigned long long)RUN_PROVED);
        return DIST_ERR_UNSUPPORTED;
    }
    return disti_verify_algorithm(row->algorithm, &shape, false, &row->verdict);
}

/* ---- tasks ---- */

/* Consecutive sizes of one algorithm with the same number of segments, and so with the same plans.
 */
struct task {
    struct job_row *row;
    int first, count; /* range of cells */
};

/* State that all threads share. */
struct run {
    const struct job *job;
    struct task tasks[JOB_ALGORITHMS_MAX * JOB_SIZES_MAX];
    int count;
    atomic_int next;
};

static void task_run(const struct run *run, const struct task *task, int number)
{
    const struct job *job = run->job;
    struct job_cell *cells = &task->row->cells[task->first];
    struct disti_shape shape = run_shape(job, cells);
    struct disti_simulation *simulation = NULL;
    const char *name = task->row->algorithm->name;
    char size[24];
    progress_show("%d of %d: %s: plans", number + 1, run->count, name);
    dist_status status = disti_simulation_open(task->row->algorithm, &shape, &simulation);
    for (int i = 0; i < task->count; i++) {
        struct job_cell *cell = &cells[i];
        progress_show("%d of %d: %s: %s", number + 1, run->count, name,
                      job_size_text(job->sizes[task->first + i], size));
        cell->status = status;
        if (status == DIST_OK)
            cell->status = disti_simulation_run(simulation, job->sizes[task->first + i], &job->cost,
                                                &cell->forecast);
        if (cell->status != DIST_OK)
            run_copy_error(cell->why);
    }
    disti_simulation_close(simulation);
    if (!job->verify || task->first + task->count < job->size_count)
        return;
    progress_show("%d of %d: %s: verifying", number + 1, run->count, name);
    task->row->status = run_proof(job, task->row);
    task->row->verified = task->row->status == DIST_OK && task->row->verdict.ok;
    if (task->row->status != DIST_OK && !task->row->why[0])
        run_copy_error(task->row->why);
}

static void *run_thread(void *arg)
{
    struct run *run = arg;
    int number;
    while ((number = atomic_fetch_add(&run->next, 1)) < run->count)
        task_run(run, &run->tasks[number], number);
    return NULL;
}

/* Adds an algorithm's tasks, the largest size first, so that no thread ends with a long task while
 * the other threads are idle. */
static void run_row(struct run *run, struct job_row *row)
{
    const struct job *job = run->job;
    for (int i = 0; i < job->size_count; i++) {
        /* Use --segments, or else the number that the library would choose. */
        struct disti_choice choice = {.forced_segments = job->segments};
        const struct disti_algorithm *same;
        uint32_t segments;
        choice.forced[job->collective] = row->algorithm;
        disti_select(&choice, job->collective, job->sizes[i], job->topology, &same, &segments);
        row->cells[i].segments = segments;
    }
    for (int end = job->size_count, i = end - 1; i >= 0; i--) {
        if (i > 0 && row->cells[i - 1].segments == row->cells[i].segments)
            continue;
        run->tasks[run->count++] = (struct task){row, i, end - i};
        end = i;
    }
}

#define RUN_THREADS 16 /* maximum number of additional threads */

/* Verifies and simulates on all CPUs. Errors of single algorithms are stored in the result. */
static void job_run(const struct job *job, struct job_result *result)
{
    struct run run = {.job = job};
    memset(result, 0, sizeof(*result));
    for (const struct disti_algorithm *a = disti_algorithms; a->name; a++) {
        if (a->collective != job->collective || (job->only && job->only != a) ||
            result->count == JOB_ALGORITHMS_MAX)
            continue;
        struct job_row *row = &result->rows[result->count++];
        row->algorithm = a;
        run_row(&run, row);
    }
    pthread_t threads[RUN_THREADS];
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    int started = 0;
    while (started + 1 < cpus && started + 1 < run.count && started < RUN_THREADS &&
           pthread_create(&threads[started], NULL, run_thread, &run) == 0)
        started++;
    run_thread(&run);
    while (started > 0)
        pthread_join(threads[--started], NULL);
    progress_clear();
    for (int i = 0; i < job->size_count; i++) {
        int best = -1;
        for (int r = 0; r < result->count; r++) {
            const struct job_cell *cell = &result->rows[r].cells[i];
            if (cell->status == DIST_OK &&
                (best < 0 || cell->forecast.seconds < result->rows[best].cells[i].forecast.seconds))
                best = r;
        }
        result->best[i] = best;
    }
}

/* ---- SVG pictures of the ring and the trees of a topology ---- */

#define DRAW_RANKS_MAX 256 /* a picture of more ranks is not readable */
#define DRAW_SPACING 28    /* between the centres of two ranks in a tree */
#define DRAW_RING 40       /* between the centres of two ranks on the ring */
#define DRAW_RADIUS 11     /* radius of a rank */
#define DRAW_LEVEL 60      /* between two levels of a tree */
#define DRAW_MARGIN 40
#define DRAW_TITLE 30
#define DRAW_LABEL 70  /* space for the names of nodes around the ring */
#define DRAW_WIDTH 680 /* minimum width, for titles and the legend */

/* Indices of data colours: green, blue, orange, red. */
static const int draw_colours[DISTI_DISTANCES] = {2, 0, 1, 8};
static const char *const draw_names[DISTI_DISTANCES] = {"same NUMA node", "same node", "other node",
                                                        "other rack"};

struct draw {
    FILE *to;
    const struct disti_topology *topology;
    double x[DRAW_RANKS_MAX], y[DRAW_RANKS_MAX]; /* centre of each rank */
    double width;                                /* width of the picture */
    double top;                                  /* top of the next part */
};

/* ---- parts ---- */

static void draw_title(struct draw *draw, const char *text)
{
    plot_text(DRAW_MARGIN, draw->top + 16, "start", "title", text, draw->to);
    draw->top += DRAW_TITLE;
}

/* Draws an arrow between the circles of two ranks, in the direction of the data. */
static void draw_edge(const struct draw *draw, int from, int to)
{
    double dx = draw->x[to] - draw->x[from], dy = draw->y[to] - draw->y[from];
    double length = hypot(dx, dy), cut = (DRAW_RADIUS + 1) / (length > 1 ? length : 1);
    int colour = draw_colours[disti_distance(draw->topology, from, to)];
    fprintf(draw->to,
            "<path class=\"line s%d\" d=\"M%.1f %.1fL%.1f %.1f\" "
            "marker-end=\"url(#arrow%d)\"/>\n",
            colour, draw->x[from] + dx * cut, draw->y[from] + dy * cut, draw->x[to] - dx * cut,
            draw->y[to] - dy * cut, colour);
}

/* Draws the ranks. Neighbouring nodes have different colours: two alternate, and the last of an odd
 * number of nodes, which is next to the first on the ring, has a third. */
static void draw_ranks(const struct draw *draw)
{
    const int nodes = draw->topology->nodes;
    char text[16];
    for (int rank = 0; rank < draw->topology->ranks; rank++) {
        int node = disti_node_of(draw->topology, rank);
        snprintf(text, sizeof(text), "%d", rank);
        fprintf(draw->to, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%d\" class=\"n%d\"/>", draw->x[rank],
                draw->y[rank], DRAW_RADIUS,
                node > 0 && node == nodes - 1 && nodes % 2 ? 2 : node % 2);
        plot_text(draw->x[rank], draw->y[rank] + 4, "middle", "rank", text, draw->to);
    }
}

/* Writes the name of a node outside the ring, along the radius, so that names do not overlap. */
static void draw_node_name(const struct draw *draw, int node, double cx, double cy, double radius)
{
    const struct disti_topology *t = draw->topology;
    double middle = t->node_first[node] + (disti_node_size(t, node) - 1) / 2.0;
    double angle = 360 * middle / t->ranks - 90;
    bool left = angle > 90;
    char text[24];
    snprintf(text, sizeof(text), "node %d", node);
    fprintf(draw->to, "<g transform=\"translate(%.1f %.1f) rotate(%.1f)\">",
            cx + radius * cos(angle * M_PI / 180), cy + radius * sin(angle * M_PI / 180),
            left ? angle - 180 : angle);
    plot_text(0, 0, left ? "end" : "start", "rank", text, draw->to);
    fprintf(draw->to, "</g>\n");
}

static double draw_ring_radius(int ranks)
{
    double radius = ranks * DRAW_RING / (2 * M_PI);
    return radius < 70 ? 70 : radius;
}

static void draw_ring(struct draw *draw)
{
    const struct disti_topology *t = draw->topology;
    double radius = draw_ring_radius(t->ranks), cx = draw->width / 2;
    draw_title(draw, "The ring");
    double cy = draw->top + DRAW_LABEL + radius;
    for (int i = 0; i < t->ranks; i++) {
        double angle = 2 * M_PI * i / t->ranks - M_PI / 2;
        draw->x[t->order[i]] = cx + radius * cos(angle);
        draw->y[t->order[i]] = cy + radius * sin(angle);
    }
    for (int rank = 0; rank < t->ranks && t->ranks > 1; rank++)
        draw_edge(draw, rank, disti_ring_next(t, rank));
    draw_ranks(draw);
    for (int node = 0; node < t->nodes && t->nodes > 1; node++)
        draw_node_name(draw, node, cx, cy, radius + DRAW_RADIUS + 8);
    draw->top = cy + radius + DRAW_LABEL + DRAW_MARGIN;
}

/* ---- trees ---- */

/* Assigns columns of the binomial tree: a rank, then its subtrees, the smallest first. Returns the
 * next free column. */
static int tree_columns(const struct disti_topology *t, int root, int rank, int column,
                        int *columns)
{
    struct disti_tree_neighbours tree;
    disti_tree_binomial(t, root, rank, &tree);
    columns[rank] = column++;
    for (int i = tree.children - 1; i >= 0; i--)
        column = tree_columns(t, root, tree.child[i], column, columns);
    return column;
}

/*
 * Draws a tree. `which` is 0 or 1 for the first or second of the two trees, -1 for the binomial
 * tree.
 */
static void draw_tree(struct draw *draw, int which, int root, const char *title)
{
    const struct disti_topology *t = draw->topology;
    int columns[DRAW_RANKS_MAX], parents[DRAW_RANKS_MAX], levels[DRAW_RANKS_MAX] = {0};
    int deepest = 0;
    if (which < 0)
        tree_columns(t, root, root, 0, columns);
    for (int rank = 0; rank < t->ranks; rank++) {
        struct disti_tree_neighbours tree;
        if (which < 0)
            disti_tree_binomial(t, root, rank, &tree);
        else
            disti_tree_double(t, which, rank, &tree);
        parents[rank] = tree.parent;
        if (which >= 0) /* both trees are search trees: a rank's column is its position */
            columns[rank] = t->position[rank];
    }
    for (int rank = 0; rank < t->ranks; rank++) {
        for (int above = parents[rank]; above >= 0; above = parents[above])
            levels[rank]++;
        deepest = levels[rank] > deepest ? levels[rank] : deepest;
    }
    draw_title(draw, title);
    double left = (draw->width - (t->ranks - 1) * DRAW_SPACING) / 2;
    for (int rank = 0; rank < t->ranks; rank++) {
        draw->x[rank] = left + columns[rank] * DRAW_SPACING;
        draw->y[rank] = draw->top + DRAW_RADIUS + levels[rank] * DRAW_LEVEL;
    }
    for (int rank = 0; rank < t->ranks; rank++) {
        if (parents[rank] >= 0)
            draw_edge(draw, parents[rank], rank);
    }
    draw_ranks(draw);
    draw->top += deepest * DRAW_LEVEL + 2 * DRAW_RADIUS + DRAW_MARGIN;
}

/* ---- the picture ---- */

static dist_status job_draw(const struct disti_topology *topology, int root, const char *file)
{
    char *parts = NULL, title[64];
    size_t size = 0;
    if (topology->ranks > DRAW_RANKS_MAX)
        return disti_fail(DIST_ERR_UNSUPPORTED,
                          "--draw: a picture of %d ranks would be too large to read; give a "
                          "topology of at most %d",
                          topology->ranks, DRAW_RANKS_MAX);
    double ring = 2 * (draw_ring_radius(topology->ranks) + DRAW_LABEL);
    struct draw draw = {.topology = topology, .top = 24};
    draw.width = fmax(DRAW_WIDTH, fmax(ring, topology->ranks * DRAW_SPACING) + 2 * DRAW_MARGIN);
    /* The height is known only after drawing, so draw to memory and write the header later. */
    draw.to = open_memstream(&parts, &size);
    if (!draw.to)
        return disti_fail(DIST_ERR_NO_MEMORY, "out of memory for a picture");
    double x = DRAW_MARGIN;
    for (int d = 0; d < DISTI_DISTANCES; d++) {
        int colour = draw_colours[d];
        if (!job_has(topology, d))
            continue;
        fprintf(draw.to,
                "<marker id=\"arrow%d\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" "
                "markerWidth=\"8\" markerHeight=\"8\" markerUnits=\"userSpaceOnUse\" "
                "orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" class=\"f%d\"/></marker>\n"
                "<path class=\"line s%d\" d=\"M%.0f %.0fh24\"/>",
                colour, colour, colour, x, draw.top);
        plot_text(x + 30, draw.top + 4, "start", "tick", draw_names[d], draw.to);
        x += 160;
    }
    snprintf(title, sizeof(title), "The binomial tree from rank %d", root);
    draw.top += DRAW_MARGIN;
    draw_ring(&draw);
    draw_tree(&draw, -1, root, title);
    draw_tree(&draw, 0, root, "The first of two trees");
    draw_tree(&draw, 1, root, "The second of two trees");
    bool lost = ferror(draw.to);
    if (fclose(draw.to) != 0 || lost) {
        free(parts);
        return disti_fail(DIST_ERR_NO_MEMORY, "out of memory for a picture");
    }
    static const struct plot_rule colours[] = {{".n0", "fill", PLOT_ORANGE},
                                               {".n1", "fill", PLOT_BLUE},
                                               {".n2", "fill", PLOT_GREEN},
                                               {"circle", "stroke", PLOT_FAINT}};
    struct output output;
    output_begin(&output);
    if (output.to) {
        plot_svg_begin((int)draw.width, (int)draw.top, colours,
                       sizeof(colours) / sizeof(colours[0]),
                       "circle{fill-opacity:.25}svg .rank{font-size:11px}", output.to);
        fprintf(output.to, "%s</svg>\n", parts);
    }
    free(parts);
    if (output_end(&output, file) < 0)
        return disti_fail(DIST_ERR_SYSTEM, "--draw %s: cannot write: %s", file, strerror(errno));
    return DIST_OK;
}

/* ---- the command line ---- */

/* The options as they were given. */
struct options {
    int64_t ranks, segments, root;
    const char *topology, *bytes, *algorithm, *format, *draw;
    const char *links[ARGS_TEXTS_MAX];
    bool no_verify;
    int action;
};

#define AT(member) offsetof(struct options, member)
static struct args_row options_rows[] = {
    {"", 0, ARGS_WORDS, 0, 0, 0, NULL, NULL}, /* job_parse sets .argument */
    {"ranks", 0, ARGS_INT, AT(ranks), 1, 1 << 20, "N",
     "number of ranks, on one node if no topology is given (8)"},
    {"topology", 0, ARGS_TEXT, AT(topology), 0, 0, "TEXT",
     "racks, nodes and cores: 'rack:2 node:4 package:2 numa:2 core:8'"},
    {"bytes", 0, ARGS_TEXT, AT(bytes), 0, 0, "SIZE,...",
     "sizes of a block: 64K,1M; with one size, smaller ones too (64M)"},
    {"algorithm", 0, ARGS_TEXT, AT(algorithm), 0, 0, "NAME", "simulate this algorithm only"},
    {"segments", 0, ARGS_INT, AT(segments), 1, 1024, "N",
     "number of segments (default: the library's choice)"},
    {"root", 0, ARGS_INT, AT(root), 0, 1 << 20, "R", "root of collectives that have one (0)"},
    {"links", 0, ARGS_TEXTS, AT(links), 0, 0, "COSTS,...",
     "other_node=20us/10gbit/5us, memory=25GB, cpus=8, ...; or a tuning file"},
    {"format", 0, ARGS_CHOICE, AT(format), 0, 0, "text|csv|json", "output format"},
    {"draw", 0, ARGS_TEXT, AT(draw), 0, 0, "FILE.svg", "draw the ring and the trees"},
    {"no-verify", 0, ARGS_FLAG, AT(no_verify), 0, 0, NULL, "do not verify the plans"},
    ARGS_HELP_ROWS(struct options, 0),
};
static struct args options_args = {.rows = options_rows,
                                   .count = sizeof(options_rows) / sizeof(options_rows[0]),
                                   .program = "dist_sim",
                                   .usage = "COLLECTIVE [OPTION]...\n--help | --version"};

#define OPTIONS_RATIO 16
#define OPTIONS_LEAST 1024
#define OPTIONS_TEXT 256

/* Sets the sizes `most`, `most` / 16, `most` / 256, ... down to OPTIONS_LEAST, in ascending order.
 */
static void options_ladder(struct job *job, size_t most)
{
    job->size_count = 1;
    for (size_t size = most / OPTIONS_RATIO;
         size >= OPTIONS_LEAST && job->size_count < JOB_SIZES_MAX; size /= OPTIONS_RATIO)
        job->size_count++;
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
                          "--bytes: no size in \"%s\"; valid is for example 64K,1M", text);
    if (job->size_count == 1)
        options_ladder(job, job->sizes[0]);
    return DIST_OK;
}

/* True if the collective can be simulated: it is no send or receive, and has equal blocks. */
static bool options_simulates(int collective)
{
    return !disti_collective_pair((dist_collective)collective) &&
           !disti_collective_uneven((dist_collective)collective);
}

/* Lists the names of the collectives that can be simulated. Returns text. */
static char *options_names(const char *separator, char text[OPTIONS_TEXT])
{
    int used = 0;
    for (int c = 0; c < DIST_COLL_COUNT; c++)
        if (options_simulates(c))
            used += snprintf(text + used, (size_t)(OPTIONS_TEXT - used), "%s%s",
                             used ? separator : "", dist_collective_string((dist_collective)c));
    return text;
}

static dist_status options_collective(const char *name, struct job *job)
{
    char names[OPTIONS_TEXT];
    for (int c = 0; c < DIST_COLL_COUNT; c++) {
        job->collective = (dist_collective)c;
        if (options_simulates(c) && strcmp(dist_collective_string(job->collective), name) == 0)
            return DIST_OK;
    }
    return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                      "\"%s\" is not a collective that can be simulated; choose from: %s", name,
                      options_names(", ", names));
}

static dist_status options_complete(struct job *job, const struct options *options)
{
    const int ranks = (int)options->ranks;
    dist_status status = options->topology
                             ? disti_topology_synthetic(options->topology, &job->topology)
                             : disti_topology_flat(ranks ? ranks : 8, &job->topology);
    if (status == DIST_OK && ranks && ranks != job->topology->ranks)
        status = disti_fail(DIST_ERR_INVALID_ARGUMENT,
                            "--ranks %d, but the topology \"%s\" has %d ranks: omit --ranks", ranks,
                            options->topology, job->topology->ranks);
    if (status == DIST_OK && options->bytes)
        status = options_sizes(job, options->bytes);
    for (int i = 0; status == DIST_OK && options->links[i]; i++)
        status = strchr(options->links[i], '=') ? links_words_of(options->links[i], &job->cost)
                                                : links_file(options->links[i], &job->cost);
    if (status != DIST_OK)
        return status;
    job->root = (int)options->root;
    job->print = print_text;
    if (options->format && strcmp(options->format, "text") != 0)
        job->print = strcmp(options->format, "csv") == 0 ? print_csv : print_json;
    job->draw = options->draw;
    job->verify = !options->no_verify;
    if (job->root >= job->topology->ranks)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "--root %d: there are only %d ranks",
                          job->root, job->topology->ranks);
    job->segments = (uint32_t)options->segments;
    if (job->collective == DIST_COLL_BARRIER) {
        job->sizes[0] = 0; /* a barrier has no data */
        job->size_count = 1;
    }
    if (!options->algorithm)
        return DIST_OK;
    job->only = disti_algorithm_find(job->collective, options->algorithm);
    if (!job->only)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "--algorithm: %s has no \"%s\"; omit the option to see all algorithms",
                          dist_collective_string(job->collective), options->algorithm);
    return DIST_OK;
}

/*
 * Parses the command line. Returns -1 if the simulation is to run; otherwise the exit code, after
 * printing help, the version or an error.
 */
static int job_parse(int argc, char **argv, struct job *job)
{
    struct options options = {0};
    dist_status status;
    static char words[OPTIONS_TEXT], about[2 * OPTIONS_TEXT];
    char names[OPTIONS_TEXT];
    int rest, code;
    job->cost = disti_cost_usual;
    options_ladder(job, (size_t)64 << 20);
    options_rows[0].argument = options_names("|", words);
    snprintf(about, sizeof(about),
             "Predicts the time of each algorithm of a collective on a machine that need not "
             "exist. COLLECTIVE is one of\n  %s\n",
             options_names(" ", names));
    options_args.about = about;
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

int main(int argc, char **argv)
{
    struct job job = {0};
    struct job_result *result = NULL;
    int code;
    signal(SIGXFSZ, SIG_IGN); /* a write beyond RLIMIT_FSIZE then fails with EFBIG */
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
        fprintf(stderr, "dist_sim: out of memory\n");
        goto out;
    }
    job_run(&job, result);
    job.print(&job, result, stdout);
    code = 0;
    for (int r = 0; r < result->count; r++)
        if (job.verify && result->rows[r].status == DIST_OK && !result->rows[r].verdict.ok)
            code = 1; /* a plan is wrong */
    for (int i = 0; i < job.size_count; i++)
        if (result->best[i] < 0)
            code = 1; /* nothing could be predicted */
out:
    free(result);
    disti_topology_free(job.topology);
    return output_exit("dist_sim", code);
}
