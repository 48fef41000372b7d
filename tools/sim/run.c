/* SPDX-License-Identifier: BSD-3-Clause */
/* What things cost, as dist_sim's --links says it. */
#include "base/log.h"
#include "base/settings/config.h"
#include "tools/common/output.h"
#include "tools/common/text.h"
#include "tools/sim/job.h"
#include "tuning/choose.h"
#include "tuning/tuning.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const job_distances[DISTI_DISTANCES] = {
    [DISTI_SAME_NUMA] = "same_numa",
    [DISTI_SAME_NODE] = "same_node",
    [DISTI_OTHER_NODE] = "other_node",
    [DISTI_OTHER_RACK] = "other_rack",
};

/* ---- numbers with units ---- */

struct links_unit {
    const char *name;
    double value;
};

static const struct links_unit links_times[] = {
    {"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {NULL, 0}};

static const struct links_unit links_rates[] = {
    {"kbit", 1e3 / 8}, {"mbit", 1e6 / 8}, {"gbit", 1e9 / 8}, {"kB", 1e3},
    {"MB", 1e6},       {"GB", 1e9},       {"TB", 1e12},      {NULL, 0}};

/* "20us" of text[length]. False: it is no such number. 0 needs no unit. */
static bool links_number(const char *text, size_t length, const struct links_unit *unit,
                         double *value_p)
{
    char copy[32], *end;
    if (length == 0 || length >= sizeof(copy))
        return false;
    memcpy(copy, text, length);
    copy[length] = '\0';
    if (!strchr("0123456789.", copy[0]))
        return false;
    double value = strtod(copy, &end);
    while (unit->name && strcmp(unit->name, end) != 0)
        unit++;
    if (!unit->name && !(value == 0 && *end == '\0'))
        return false;
    *value_p = unit->name ? value * unit->value : 0;
    return value >= 0 && value < 1e15;
}

/* ---- words ---- */

/* "20us/10gbit/5us": latency, rate, and if it is there overhead. */
static bool links_distance(const char *text, size_t length, struct disti_link_cost *link)
{
    const char *end = text + length, *rate = memchr(text, '/', length), *overhead;
    struct disti_link_cost own = *link;
    if (!rate || !links_number(text, (size_t)(rate - text), links_times, &own.latency_s))
        return false;
    rate++;
    overhead = memchr(rate, '/', (size_t)(end - rate));
    if (!links_number(rate, (size_t)((overhead ? overhead : end) - rate), links_rates,
                      &own.bytes_per_second))
        return false;
    if (overhead &&
        !links_number(overhead + 1, (size_t)(end - overhead - 1), links_times, &own.overhead_s))
        return false;
    *link = own;
    return true;
}

struct links_word {
    const char *name;
    size_t offset; /* of a double in struct disti_cost */
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

static bool links_is(const char *name, const char *text, size_t length)
{
    return strlen(name) == length && strncmp(name, text, length) == 0;
}

/* "cpus=8" or "eager=8K". */
static bool links_count(const char *name, size_t name_length, const char *value, size_t length,
                        struct disti_cost *cost)
{
    char copy[32];
    if (length >= sizeof(copy))
        return false;
    memcpy(copy, value, length);
    copy[length] = '\0';
    if (links_is("cpus", name, name_length))
        return disti_parse_int("cpus", copy, 0, 1 << 16, &cost->node_cpus) == DIST_OK;
    return links_is("eager", name, name_length) &&
           disti_parse_bytes("eager", copy, &cost->eager_bytes) == DIST_OK;
}

static bool links_item(const char *text, size_t length, struct disti_cost *cost)
{
    const char *equals = memchr(text, '=', length);
    if (!equals)
        return false;
    size_t name = (size_t)(equals - text), rest = length - name - 1;
    for (int d = 0; d < DISTI_DISTANCES; d++)
        if (links_is(job_distances[d], text, name))
            return links_distance(equals + 1, rest, &cost->links[d]);
    for (size_t i = 0; i < sizeof(links_words) / sizeof(*links_words); i++)
        if (links_is(links_words[i].name, text, name))
            return links_number(equals + 1, rest, links_words[i].units,
                                (double *)((char *)cost + links_words[i].offset));
    return links_count(text, name, equals + 1, rest, cost);
}

static dist_status links_words_of(const char *text, struct disti_cost *cost)
{
    for (text += strspn(text, ", "); *text; text += strspn(text, ", ")) {
        size_t length = strcspn(text, ", ");
        if (!links_item(text, length, cost))
            return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                              "--links: \"%.*s\" is not a price; give for example "
                              "other_node=20us/10gbit/5us, or memory=25GB, step=100ns, cpus=8",
                              (int)(length < 100 ? length : 100), text);
        text += length;
    }
    return DIST_OK;
}

/* A tuning file has CPUs and the limit of short messages not in it: those stay. */
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

dist_status job_links(const char *text, struct disti_cost *cost)
{
    return strchr(text, '=') ? links_words_of(text, cost) : links_file(text, cost);
}

/* What dist_sim found out, as text, csv and json. */

/* "64M", "1.5 ms", "3.2 GB/s". */
/* ---- numbers for people ---- */

static void job_size_text(size_t bytes, char text[24])
{
    static const char units[] = " KMGT";
    int unit = 0;
    while (bytes >= 1024 && bytes % 1024 == 0 && unit < 4) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, 24, unit ? "%zu%c" : "%zu", bytes, units[unit]);
}

/* Three digits, in the unit that fits: units[i] is 1000 times units[i - 1]. */
static void print_scaled(double value, const char *const *units, int count, char text[24])
{
    int unit = 0;
    while (value >= 999.5 && unit < count - 1) {
        value /= 1000;
        unit++;
    }
    int digits = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    snprintf(text, 24, "%.*f %s", digits, value, units[unit]);
}

static void job_time_text(double seconds, char text[24])
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    print_scaled(seconds * 1e9, units, 4, text);
}

static void job_rate_text(double bytes_per_second, char text[24])
{
    static const char *const units[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
    if (bytes_per_second > 0)
        print_scaled(bytes_per_second, units, 5, text);
    else
        snprintf(text, 24, "no limit");
}

/* ---- text ---- */

static void text_head(const struct job *job, FILE *to)
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
        job_time_text(link->latency_s, latency);
        job_time_text(link->overhead_s, overhead);
        job_rate_text(link->bytes_per_second, rate);
        fprintf(to, "%-12s %12s %12s %12s\n", job_distances[d], latency, overhead, rate);
    }
}

/* Which algorithm is the fastest where: marked with a star. */
static void text_table(const struct job *job, const struct job_result *result, FILE *to)
{
    char text[24];
    fprintf(to, "\n%-20s", "algorithm");
    for (int i = 0; i < job->size_count; i++) {
        job_size_text(job->sizes[i], text);
        fprintf(to, " %10s ", text);
    }
    fprintf(to, "\n");
    for (int r = 0; r < result->count; r++) {
        fprintf(to, "%-20s", result->rows[r].algorithm->name);
        for (int i = 0; i < job->size_count; i++) {
            const struct job_cell *cell = &result->rows[r].cells[i];
            if (cell->status == DIST_OK)
                job_time_text(cell->forecast.seconds, text);
            else
                snprintf(text, sizeof(text), "-");
            fprintf(to, " %10s%c", text, result->best[i] == r ? '*' : ' ');
        }
        fprintf(to, "\n");
    }
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

static const char *job_why(const struct job *job, const struct job_row *row);

/* What the links carry with the largest size. */
static void text_detail(const struct job *job, const struct job_row *row, FILE *to)
{
    const struct job_cell *cell = &row->cells[job->size_count - 1];
    const struct disti_forecast *f = &cell->forecast;
    char time[24], rate[24], bytes[24];
    fprintf(to, "\n%s: %s", row->algorithm->name, text_proof(job, row));
    if (cell->status == DIST_OK) {
        job_time_text(f->seconds, time);
        job_rate_text((double)job->sizes[job->size_count - 1] / f->seconds, rate);
        fprintf(to, ", %u segment%s, %llu steps, %s, %s, busiest rank %.0f %%", cell->segments,
                cell->segments == 1 ? "" : "s", (unsigned long long)f->steps, time,
                job->sizes[job->size_count - 1] ? rate : "no data", 100 * f->busiest_rank);
    }
    fprintf(to, "\n");
    for (int d = 0; d < DISTI_DISTANCES && cell->status == DIST_OK; d++) {
        const struct disti_traffic *link = &f->links[d];
        if (!link->messages && link->busiest <= 0)
            continue;
        job_rate_text(link->bytes, bytes);
        bytes[strlen(bytes) - 2] = '\0'; /* bytes, not bytes a second */
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
    char size[24];
    text_head(job, to);
    text_table(job, result, to);
    job_size_text(job->sizes[job->size_count - 1], size);
    fprintf(to, "\nWith %s:\n", size);
    for (int r = 0; r < result->count; r++)
        text_detail(job, &result->rows[r], to);
}

/* ---- for programs ---- */

static const char *print_verified(const struct job_row *row)
{
    if (!row->verified)
        return "no";
    return row->verdict.all ? "yes" : "sample";
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

static void json_cell(const struct job *job, const struct job_result *result, int r, int i,
                      FILE *to)
{
    const struct job_cell *cell = &result->rows[r].cells[i];
    const struct disti_forecast *f = &cell->forecast;
    fprintf(to, "%s\n        {\"bytes\": %zu, \"segments\": %u", i ? "," : "", job->sizes[i],
            cell->segments);
    if (cell->status != DIST_OK) {
        fprintf(to, ", \"seconds\": null}");
        return;
    }
    fprintf(to, ", \"seconds\": %.9g, \"best\": %s, \"steps\": %llu, \"busiest_rank\": %.4f",
            f->seconds, result->best[i] == r ? "true" : "false", (unsigned long long)f->steps,
            f->busiest_rank);
    for (int d = 0; d < DISTI_DISTANCES; d++)
        fprintf(to,
                ", \"%s\": {\"messages\": %llu, \"bytes\": %.0f, \"waited_s\": %.9g, "
                "\"busiest\": %.4f}",
                job_distances[d], (unsigned long long)f->links[d].messages, f->links[d].bytes,
                f->links[d].waited_s, f->links[d].busiest);
    fprintf(to, "}");
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
        json_string(job_why(job, row), to);
        fprintf(to, ", \"sizes\": [");
        for (int i = 0; i < job->size_count; i++)
            json_cell(job, result, r, i, to);
        fprintf(to, "]}");
    }
    fprintf(to, "]}\n");
}

void job_print(const struct job *job, const struct job_result *result, FILE *to)
{
    static void (*const formats[])(const struct job *, const struct job_result *, FILE *) = {
        [JOB_TEXT] = print_text, [JOB_CSV] = print_csv, [JOB_JSON] = print_json};
    formats[job->format](job, result, to);
}

/* Every algorithm with every size: verified once, simulated each. */

/* More steps than these are not proved, lest it take minutes. */
#define RUN_PROVED (UINT64_C(1) << 27)

bool job_has(const struct disti_topology *topology, int distance)
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

/* What is wrong with the row: of its plans, or what could not be done; "": nothing. */
static const char *job_why(const struct job *job, const struct job_row *row)
{
    if (row->verdict.text[0])
        return row->verdict.text;
    for (int i = 0; i < job->size_count; i++)
        if (row->cells[i].why[0])
            return row->cells[i].why;
    return row->why;
}

/* As many as the library would take, unless they were given. */
static uint32_t run_segments(const struct job *job, const struct disti_algorithm *algorithm,
                             size_t bytes)
{
    struct disti_choice choice = {.forced_segments = job->segments};
    const struct disti_algorithm *same;
    uint32_t segments;
    choice.forced[job->collective] = algorithm;
    disti_select(&choice, job->collective, bytes, job->topology, &same, &segments);
    return segments;
}

static struct disti_shape run_shape(const struct job *job, const struct job_cell *cell)
{
    return (struct disti_shape){.collective = job->collective,
                                .ranks = job->topology->ranks,
                                .root = job->root,
                                .segments = cell->segments,
                                .topology = job->topology};
}

static void run_why(char *why)
{
    snprintf(why, JOB_WHY_MAX, "%s", dist_last_error());
}

/* The proof writes the plans of all ranks, even where a few stand for all in the simulation. */
static dist_status run_proof(const struct job *job, struct job_row *row)
{
    const struct job_cell *cell = &row->cells[job->size_count - 1];
    struct disti_shape shape = run_shape(job, cell);
    if (cell->status != DIST_OK) { /* what is too long is too long for this as well */
        memcpy(row->why, cell->why, sizeof(row->why));
        return cell->status;
    }
    if (cell->forecast.steps > RUN_PROVED) {
        snprintf(row->why, sizeof(row->why),
                 "too long to be proved: %llu steps of all ranks, more than %llu; give fewer ranks",
                 (unsigned long long)cell->forecast.steps, (unsigned long long)RUN_PROVED);
        return DIST_ERR_UNSUPPORTED;
    }
    return disti_verify_algorithm(row->algorithm, &shape, false, &row->verdict);
}

static void run_verify(const struct job *job, struct job_row *row)
{
    row->status = run_proof(job, row);
    row->verified = row->status == DIST_OK && row->verdict.ok;
    if (row->status != DIST_OK && !row->why[0])
        run_why(row->why);
}

/* ---- tasks ---- */

/* One algorithm's sizes that have the same number of segments, thus the same plans. */
struct task {
    struct job_row *row;
    int first, count; /* cells */
};

/* What all threads share. */
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
        job_size_text(job->sizes[task->first + i], size);
        progress_show("%d of %d: %s: %s", number + 1, run->count, name, size);
        cell->status = status;
        if (status == DIST_OK)
            cell->status = disti_simulation_run(simulation, job->sizes[task->first + i], &job->cost,
                                                &cell->forecast);
        if (cell->status != DIST_OK)
            run_why(cell->why);
    }
    disti_simulation_close(simulation);
    if (!job->verify || task->first + task->count < job->size_count)
        return;
    progress_show("%d of %d: %s: verifying", number + 1, run->count, name);
    run_verify(job, task->row);
}

static void *run_thread(void *arg)
{
    struct run *run = arg;
    int number;
    while ((number = atomic_fetch_add(&run->next, 1)) < run->count)
        task_run(run, &run->tasks[number], number);
    return NULL;
}

/* The longest plans first, so that no thread is left alone with them at the end. */
static void run_row(struct run *run, struct job_row *row)
{
    const struct job *job = run->job;
    for (int i = 0; i < job->size_count; i++)
        row->cells[i].segments = run_segments(job, row->algorithm, job->sizes[i]);
    for (int end = job->size_count, i = end - 1; i >= 0; i--) {
        if (i > 0 && row->cells[i - 1].segments == row->cells[i].segments)
            continue;
        run->tasks[run->count++] = (struct task){row, i, end - i};
        end = i;
    }
}

/* On all CPUs that there are. Where there is no other thread, this one does it all. */
#define RUN_THREADS 16
static void run_tasks(struct run *run)
{
    pthread_t threads[RUN_THREADS];
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    int started = 0;
    while (started + 1 < cpus && started + 1 < run->count && started < RUN_THREADS &&
           pthread_create(&threads[started], NULL, run_thread, run) == 0)
        started++;
    run_thread(run);
    while (started > 0)
        pthread_join(threads[--started], NULL);
}

static int run_best(const struct job_result *result, int size)
{
    int best = -1;
    for (int r = 0; r < result->count; r++) {
        const struct job_cell *cell = &result->rows[r].cells[size];
        if (cell->status == DIST_OK &&
            (best < 0 || cell->forecast.seconds < result->rows[best].cells[size].forecast.seconds))
            best = r;
    }
    return best;
}

void job_run(const struct job *job, struct job_result *result)
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
    run_tasks(&run);
    progress_clear();
    for (int i = 0; i < job->size_count; i++)
        result->best[i] = run_best(result, i);
}
