/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank's training: the learning rate of each step, and when there is nothing to be gained. */
#include <math.h>
#include <string.h>

#include "trainer.h"

/* How far the training is, 0 to 1, past the steps of --warmup. The same with any number of ranks.
 */
static double schedule_progress(const struct trainer *trainer)
{
    const double count = (double)trainer->train.count;
    const double warm =
        (double)(trainer->options->warmup * trainer_step_samples(trainer)) * trainer->comm->world;
    const double all = (double)trainer->options->epochs * count - warm;
    const double done = (double)trainer->epoch * count + (double)trainer->samples - warm;

    return done > 0.0 && all > 0.0 ? fmin(done / all, 1.0) : 0.0;
}

double trainer_rate(const struct trainer *trainer)
{
    const struct options *options = trainer->options;
    double rate = options->lr;

    if (trainer->step < options->warmup)
        rate *= (double)(trainer->step + 1) / (double)options->warmup;
    if (strcmp(options->schedule, "cosine") == 0)
        return rate * 0.5 * (1.0 + cos(3.14159265358979323846 * schedule_progress(trainer)));
    if (strcmp(options->schedule, "step") == 0)
        return rate * pow(options->gamma, (double)trainer->epoch);
    return rate;
}

bool trainer_improves(struct trainer *trainer, double loss)
{
    const bool better = trainer->tests == 0 || loss < trainer->best;

    trainer->tests++;
    trainer->best = better ? loss : trainer->best;
    trainer->idle = better ? 0 : trainer->idle + 1;
    return better;
}
