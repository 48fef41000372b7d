/* SPDX-License-Identifier: BSD-3-Clause */
/* Saves the state of a training in checkpoints, and continues from them. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "failure.h"
#include "file.h"
#include "tools/common/output.h"
#include "trainer.h"

enum { KEEP_DEFAULT = 3 };

/* Reads a file. Returns 1, or an enum image_status. whole: require a whole training state. */
static int keep_read(struct trainer *trainer, const char *path, bool whole)
{
    const struct options *options = trainer->options;
    const bool weights = options->evaluate || (!whole && options->start_epoch >= 0);
    struct training_state read = trainer->progress;
    int result;

    if (weights)
        read.state = NULL;
    result = checkpoint_load(path, trainer->model, &read);
    if (result < 0)
        return result;
    if (result > 0 && (uint64_t)read.samples > trainer->train.count)
        return failure("%s: contains %" PRId64
                       " samples of an epoch, but the training set has %zu: "
                       "use the same --data",
                       path, read.samples, trainer->train.count);
    if (result > 0) {
        read.seed = trainer->progress.seed; /* older files may lack it */
        read.data = trainer->progress.data;
        read.tests = read.tests > 0 ? read.tests : 0;
        read.idle = read.idle > 0 ? read.idle : 0;
        trainer->progress = read;
        trainer->resumed = true;
        output_print("=> resuming from '%s': %" PRId64 " epochs and %" PRId64 " samples, %" PRId64
                     " steps\n",
                     path, read.epoch, read.samples, read.step);
        return 1;
    }
    if (whole && !weights)
        return failure("%s: contains only parameters: start from them with --resume", path);
    trainer->progress.epoch = read.epoch > 0 ? read.epoch : 0;
    output_print("=> loaded checkpoint '%s' (epoch %" PRId64 ")\n", path, trainer->progress.epoch);
    return 1;
}

/* Reads a single file, for which there is no older one to fall back to. */
static int keep_read_single(struct trainer *trainer, const char *path, bool whole)
{
    const int result = keep_read(trainer, path, whole);
    char why[512];

    if (result != IMAGE_DAMAGED)
        return result;
    snprintf(why, sizeof(why), "%s", failure_text());
    return failure("%s; replace it with an intact copy, or start without it", why);
}

/*
 * Reads the newest file of a directory that is intact. Returns 1, 0 if there are no files, or -1.
 */
static int keep_read_folder(struct trainer *trainer, const char *folder, bool whole)
{
    char path[FOLDER_PATH];
    int64_t step = INT64_MAX;
    int damaged = 0;

    while ((step = folder_newest(folder, step)) >= 0) {
        int result = folder_name(folder, step, path);

        if (result == 0)
            result = keep_read(trainer, path, whole);
        if (result != IMAGE_DAMAGED)
            return result;
        damaged++;
        fprintf(stderr, "%s: warning: %s: trying the previous checkpoint\n",
                trainer->options->task->program, failure_text());
    }
    if (damaged > 0)
        return failure("%s: all checkpoints in this directory (%d) are damaged", folder, damaged);
    return step == -1 ? 0 : -1;
}

/*
 * Loads the state from --checkpoint if it exists, otherwise from --resume. Without either, the
 * training starts from the beginning.
 */
static int keep_start(struct trainer *trainer)
{
    const char *kept = trainer->options->checkpoint, *resume = trainer->options->resume;
    int result = 0;

    if (kept && folder_is(kept))
        result = !trainer->options->evaluate && folder_make(kept) < 0
                     ? -1
                     : keep_read_folder(trainer, kept, true);
    else if (kept && trainer->options->keep > 0)
        return failure("--keep requires a directory: end the path of --checkpoint %s with a slash",
                       kept);
    else if (kept && access(kept, F_OK) == 0)
        result = keep_read_single(trainer, kept, true);
    if (result == 0 && !resume && trainer->options->evaluate)
        return failure("--evaluate: no checkpoint in --checkpoint %s", kept);
    if (result != 0 || !resume)
        return result < 0 ? -1 : 0;
    if (!folder_is(resume))
        return keep_read_single(trainer, resume, false) < 0 ? -1 : 0;
    result = keep_read_folder(trainer, resume, false);
    return result == 0 ? failure("%s: no checkpoint in this directory", resume) : result;
}

/* Writes the path of the next checkpoint. */
static int keep_path(const struct trainer *trainer, char path[FOLDER_PATH])
{
    const char *to = trainer->options->checkpoint;

    if (folder_is(to))
        return folder_name(to, trainer->progress.step, path);
    return snprintf(path, FOLDER_PATH, "%s", to) < FOLDER_PATH
               ? 0
               : failure("%s: the path is too long", to);
}

int trainer_keep_open(struct trainer *trainer)
{
    const struct options *options = trainer->options;
    const struct dataset *set = &trainer->train;
    const size_t count = trainer->device->state_count;
    char path[FOLDER_PATH], sum[TENSORS_SUM + 1];

    if (!options->checkpoint && !options->resume)
        return 0;
    trainer->progress.seed = options->seed;
    trainer->progress.optimizer = options->optimizer;
    trainer->progress.count = count;
    trainer->progress.state = calloc(count > 0 ? count : 1, sizeof(*trainer->progress.state));
    if (!trainer->progress.state)
        return failure("out of memory for a checkpoint");
    if (trainer->comm->rank != 0)
        return 0;
    /*
     * Compute a 32-bit hash that identifies the training set. For a synthetic set it is the number
     * of images, because the seed is stored separately.
     */
    trainer->progress.data = (int64_t)set->count;
    if (set->images) {
        tensors_sum(set->images, set->count * (size_t)shape_size(set->kind->shape), sum);
        trainer->progress.data ^= strtoll(sum, NULL, 16);
        tensors_sum(set->labels, set->count, sum);
        trainer->progress.data = trainer->progress.data << 1 ^ strtoll(sum, NULL, 16);
    }
    trainer->progress.data &= UINT32_MAX;
    if (keep_start(trainer) < 0)
        return -1;
    if (!options->checkpoint || options->evaluate)
        return 0;
    /* Detect a path that cannot be written before the first epoch, not after it. */
    if (keep_path(trainer, path) < 0 || file_can_replace(path) < 0)
        return -1;
    return writer_create(&trainer->writer);
}

/* Copies the training state and starts to write it. */
int trainer_keep_write(struct trainer *trainer)
{
    const struct device_kind *kind = trainer->device->kind;
    const struct model *model = trainer->model;
    const int64_t keep = trainer->options->keep > 0 ? trainer->options->keep : KEEP_DEFAULT;
    char path[FOLDER_PATH];
    static struct image
        image; /* static because it is too large for a small stack; only one thread saves */

    if (keep_path(trainer, path) < 0 || kind->get(trainer->device) < 0)
        return -1;
    /* Do not replace a usable checkpoint by one that cannot be trained further. */
    for (size_t i = 0; i < model->parameters; i++) {
        if (!isfinite(model->weights[i]))
            return failure("step %" PRId64 ": some parameters are not finite: no checkpoint is "
                           "written",
                           trainer->progress.step);
    }
    if (kind->state(trainer->device, true, trainer->progress.state) < 0 ||
        checkpoint_image(path, model, &trainer->progress, &image) < 0)
        return -1;
    return writer_start(trainer->writer, path, &image,
                        folder_is(trainer->options->checkpoint) ? (int)keep : 0);
}
