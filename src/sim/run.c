/* SPDX-License-Identifier: BSD-3-Clause */
/* Every algorithm with every size: verified once, simulated each. */
#include "collectives/select.h"
#include "sim/job.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of more ranks only the results are proved, and of thousands only some. */
#define RUN_COMPLETE 64

int job_distance(const struct disti_topology *topology, int one, int other)
{
    const struct dist_place *a = &topology->places[one], *b = &topology->places[other];
    int rack = topology->rack_nodes;
    if (a->node != b->node)
        return rack && a->node / rack != b->node / rack ? DISTI_OTHER_RACK : DISTI_OTHER_NODE;
    return a->package == b->package && a->numa == b->numa ? DISTI_SAME_NUMA : DISTI_SAME_NODE;
}

bool job_has(const struct disti_topology *topology, int distance)
{
    int rack = topology->rack_nodes ? topology->rack_nodes : topology->nodes;
    if (distance == DISTI_OTHER_RACK)
        return rack < topology->nodes;
    if (distance == DISTI_OTHER_NODE)
        return topology->nodes > 1 && rack > 1;
    for (int i = 1; i < topology->ranks; i++)
        if (job_distance(topology, topology->order[i], topology->order[i - 1]) == distance)
            return true;
    return false;
}

static void run_why(struct job_row *row)
{
    if (!row->why[0])
        snprintf(row->why, sizeof(row->why), "%s", dist_last_error());
}

const char *job_why(const struct job_row *row)
{
    return row->verdict.text[0] ? row->verdict.text : row->why;
}

/* Thousands of ranks take minutes: a person at a terminal sees what is under way. NULL: nothing. */
static void run_tell(const struct job_row *row, const char *what)
{
    if (!isatty(STDERR_FILENO))
        return;
    if (row)
        fprintf(stderr, "\r\033[K%s: %s", row->algorithm->name, what);
    else
        fprintf(stderr, "\r\033[K");
}

static void run_verify(const struct job *job, struct job_row *row)
{
    const struct job_cell *cell = &row->cells[job->size_count - 1];
    struct disti_shape shape = {.collective = job->collective,
                                .ranks = job->topology->ranks,
                                .root = job->root,
                                .segments = cell->segments,
                                .topology = job->topology};
    if (shape.ranks <= RUN_COMPLETE)
        row->status = disti_verify_algorithm(row->algorithm, &shape, false, &row->verdict);
    else if (cell->status != DIST_OK) /* what is too long is too long for this as well */
        row->status = cell->status;
    else
        row->status = disti_verify_sample(row->algorithm, &shape, &row->verdict);
    row->verified = row->status == DIST_OK && row->verdict.ok;
    if (row->status != DIST_OK)
        run_why(row);
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

/* Sizes with the same number of segments have the same plans. */
static void run_row(const struct job *job, struct job_row *row)
{
    struct disti_simulation *simulation = NULL;
    for (int i = 0; i < job->size_count; i++) {
        struct job_cell *cell = &row->cells[i];
        char size[24];
        struct disti_shape shape = {.collective = job->collective,
                                    .ranks = job->topology->ranks,
                                    .root = job->root,
                                    .segments = run_segments(job, row->algorithm, job->sizes[i]),
                                    .topology = job->topology};
        cell->segments = shape.segments;
        job_size_text(job->sizes[i], size);
        run_tell(row, size);
        if (i == 0 || cell->segments != cell[-1].segments) {
            disti_simulation_close(simulation);
            simulation = NULL;
            cell->status = disti_simulation_open(row->algorithm, &shape, &simulation);
        }
        if (simulation)
            cell->status =
                disti_simulation_run(simulation, job->sizes[i], &job->cost, &cell->forecast);
        else if (i > 0 && cell->segments == cell[-1].segments)
            cell->status = cell[-1].status;
        if (cell->status != DIST_OK)
            run_why(row);
    }
    disti_simulation_close(simulation);
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
    memset(result, 0, sizeof(*result));
    for (const struct disti_algorithm *a = disti_algorithms; a->name; a++) {
        if (a->collective != job->collective || (job->only && job->only != a) ||
            result->count == JOB_ALGORITHMS_MAX)
            continue;
        struct job_row *row = &result->rows[result->count++];
        row->algorithm = a;
        run_row(job, row);
        if (job->verify) {
            run_tell(row, "verifying");
            run_verify(job, row);
        }
    }
    run_tell(NULL, NULL);
    for (int i = 0; i < job->size_count; i++)
        result->best[i] = run_best(result, i);
}
