/* SPDX-License-Identifier: BSD-3-Clause */
/* --metrics: lines of JSON, in one write each. */
#include "metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "train/failure.h"

static int metrics_flush(const struct metrics *metrics)
{
    return fflush(metrics->file) == 0 ? 0 : failure("%s", strerror(errno));
}

/* JSON has no number for what is not finite. */
static void metrics_number(const struct metrics *metrics, const char *name, double value)
{
    if (isfinite(value))
        fprintf(metrics->file, ", \"%s\": %.9g", name, value);
    else
        fprintf(metrics->file, ", \"%s\": null", name);
}

static void metrics_begin(const struct metrics *metrics, const char *event, int64_t step,
                          int64_t epoch)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    fprintf(metrics->file,
            "{\"event\": \"%s\", \"time\": %.6f, \"step\": %" PRId64 ", \"epoch\": %" PRId64, event,
            (double)now.tv_sec + 1e-9 * (double)now.tv_nsec, step, epoch);
}

static int metrics_end(const struct metrics *metrics)
{
    fputs("}\n", metrics->file);
    return metrics_flush(metrics);
}

/* Whether the last byte of the file is that of a whole line. */
static bool metrics_is_whole(FILE *file)
{
    return fseek(file, -1, SEEK_END) < 0 || getc(file) == '\n';
}

static int metrics_start(struct metrics *metrics, const struct records_setup *setup)
{
    metrics_begin(metrics, setup->resumed ? "resume" : "start", setup->step, 0);
    fprintf(metrics->file, ", \"world_size\": %d", setup->world);
    return metrics_end(metrics);
}

int metrics_open(const char *path, const struct records_setup *setup, struct metrics *metrics)
{
    metrics->file = fopen(path, setup->resumed ? "a+e" : "we");
    if (!metrics->file)
        return failure("%s", strerror(errno));
    if (setup->resumed && !metrics_is_whole(metrics->file)) {
        fseek(metrics->file, 0, SEEK_END);
        fputc('\n', metrics->file);
    }
    return metrics_start(metrics, setup);
}

int metrics_step(struct metrics *metrics, const struct record_step *step, double loss, int steps)
{
    metrics_begin(metrics, "step", step->step, step->epoch);
    fprintf(metrics->file, ", \"steps\": %d, \"samples\": %" PRId64, steps, step->samples);
    metrics_number(metrics, "loss", loss);
    metrics_number(metrics, "lr", step->lr);
    metrics_number(metrics, "samples_per_s", (double)step->samples / step->seconds);
    metrics_number(metrics, "step_s", step->seconds / steps);
    for (int i = 0; i < RECORD_IN_STEP; i++) {
        char name[32];

        snprintf(name, sizeof(name), "%s_s", record_part_name((enum record_part)i));
        metrics_number(metrics, name, step->parts[i] / steps);
    }
    return metrics_end(metrics);
}

int metrics_test(struct metrics *metrics, const struct record_test *test)
{
    metrics_begin(metrics, "test", test->step, test->epoch);
    metrics_number(metrics, "loss", test->loss);
    metrics_number(metrics, "accuracy", (double)test->correct / (double)test->count);
    fprintf(metrics->file, ", \"correct\": %" PRId64 ", \"count\": %" PRId64, test->correct,
            test->count);
    return metrics_end(metrics);
}

int metrics_close(struct metrics *metrics)
{
    FILE *file = metrics->file;

    metrics->file = NULL;
    return !file || fclose(file) == 0 ? 0 : failure("%s", strerror(errno));
}
