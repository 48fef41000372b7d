/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank's training: telling its records what happens. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"
#include "trainer.h"

static_assert((int)RECORDS_AHEAD >= (int)DEVICE_AHEAD, "losses come so late");

int trainer_records_open(struct trainer *trainer)
{
    const struct options *options = trainer->options;
    const int count = options_facts(options, NULL, 0);
    struct records_setup setup = {
        .options = options,
        .program = options->task->program,
        .setting_count = count,
        .epochs = options->epochs,
        .step = trainer->progress.step,
        .resumed = trainer->resumed,
        .rank = trainer->comm->rank,
        .world = trainer->comm->world,
    };

    if (!options->metrics && !options->tensorboard && !options->report && !options->trace)
        return 0;
    trainer->records.settings = calloc((size_t)count, sizeof(*trainer->records.settings));
    if (!trainer->records.settings)
        return failure("out of memory for the settings");
    options_facts(options, trainer->records.settings, count);
    setup.settings = trainer->records.settings;
    return records_open(&setup, &trainer->records.to);
}

int trainer_records_start(struct trainer *trainer)
{
    const struct options *options = trainer->options;
    const uint64_t asked = (uint64_t)(options->metrics || options->tensorboard) |
                           (uint64_t)(options->report != NULL) << 1 |
                           (uint64_t)(options->trace != NULL) << 2 |
                           (uint64_t)options->record_interval << 3;

    if (comm_compare(trainer->comm, asked, "records that are asked for") < 0)
        return -1;
    return records_start(trainer->records.to, trainer->comm->group);
}

int trainer_records_end(struct trainer *trainer)
{
    const int result = records_close(trainer->records.to, NULL);

    trainer->records.to = NULL;
    return result;
}

/* What is written now may fail too: that is not why the training did. */
void trainer_records_close(struct trainer *trainer)
{
    char failed[1024];

    snprintf(failed, sizeof(failed), "%s", failure_text());
    records_close(trainer->records.to, failed);
    free(trainer->records.settings);
    trainer->records = (struct trainer_records){.to = NULL};
}

void trainer_spent(struct trainer *trainer, enum record_part part, double began)
{
    const double ended = comm_now();

    trainer->times[part] += ended - began;
    records_span(trainer->records.to, part, trainer->progress.step + 1, 0, began, ended);
}

int trainer_records_step(struct trainer *trainer)
{
    const double ended = comm_now();
    struct dist_ddp_bucket_times times = {.size = sizeof(times)};
    struct dist_ddp_stats stats = {.size = sizeof(stats)};
    struct record_step step = {
        .step = trainer->progress.step,
        .epoch = trainer->progress.epoch + 1,
        .samples = trainer->taken * trainer->comm->world,
        .lr = trainer->lr,
        .seconds = ended - trainer->records.since,
    };

    if (!trainer->records.to)
        return 0;
    for (int i = 0; i < RECORD_IN_STEP; i++)
        step.parts[i] = trainer->times[i] - trainer->records.told[i];
    memcpy(trainer->records.told, trainer->times, sizeof(trainer->records.told));
    trainer->records.since = ended;
    /* The buckets that travelled in this step, for the timeline. */
    if (trainer->options->trace && trainer->ddp)
        dist_ddp_get_stats(trainer->ddp, &stats);
    for (int i = 0; i < stats.buckets; i++)
        if (dist_ddp_get_bucket_times(trainer->ddp, i, &times) == DIST_OK && times.began_ns > 0)
            records_span(trainer->records.to, RECORD_BUCKET, trainer->progress.step, i,
                         1e-9 * (double)times.began_ns, 1e-9 * (double)times.ended_ns);
    return records_step(trainer->records.to, &step);
}
