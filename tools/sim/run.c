/* SPDX-License-Identifier: BSD-3-Clause */
/* Every algorithm with every size: verified once, simulated each. */
#include "tools/common/progress.h"
#include "tools/sim/job.h"
#include "tuning/select.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of more ranks only the results are proved, and of thousands only some. */
#define RUN_COMPLETE 64

/* More steps than these are not proved, lest it take minutes. */
#define RUN_PROVED (UINT64_C(1) << 27)

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

const char *job_why(const struct job *job, const struct job_row *row)
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
    if (shape.ranks <= RUN_COMPLETE)
        return disti_verify_algorithm(row->algorithm, &shape, false, &row->verdict);
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
    return disti_verify_sample(row->algorithm, &shape, &row->verdict);
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
