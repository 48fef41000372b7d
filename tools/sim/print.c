/* SPDX-License-Identifier: BSD-3-Clause */
/* What dist_sim found out, as text, csv and json. */
#include "tools/sim/job.h"

#include "tools/common/json.h"

#include <string.h>

/* ---- numbers for people ---- */

void job_size_text(size_t bytes, char text[24])
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

void job_time_text(double seconds, char text[24])
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    print_scaled(seconds * 1e9, units, 4, text);
}

void job_rate_text(double bytes_per_second, char text[24])
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
