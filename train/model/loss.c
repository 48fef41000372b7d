/* SPDX-License-Identifier: BSD-3-Clause */
/* Log-softmax and negative log-likelihood. */
#include "loss.h"

#include <math.h>
#include <stddef.h>

static int loss_largest(int classes, const float *outputs)
{
    int best = 0;

    for (int i = 1; i < classes; i++) {
        if (outputs[i] > outputs[best])
            best = i;
    }
    return best;
}

/* log sum exp, shifted by the largest so that it cannot overflow. */
static float loss_log_sum(int classes, const float *outputs, float largest)
{
    float sum = 0.0F;

    for (int i = 0; i < classes; i++)
        sum += expf(outputs[i] - largest);
    return largest + logf(sum);
}

struct loss loss_nll(int batch, int classes, const float *outputs, const uint8_t *labels,
                     float weight, float *gradient)
{
    struct loss loss = {0.0, 0};

    for (int row = 0; row < batch; row++, outputs += classes) {
        const int best = loss_largest(classes, outputs);
        const float log_sum = loss_log_sum(classes, outputs, outputs[best]);

        loss.total += (double)(log_sum - outputs[labels[row]]);
        loss.correct += best == labels[row];
        for (int i = 0; gradient && i < classes; i++)
            gradient[(size_t)row * classes + i] =
                (expf(outputs[i] - log_sum) - (i == labels[row] ? 1.0F : 0.0F)) * weight;
    }
    return loss;
}
