/* SPDX-License-Identifier: BSD-3-Clause */
/* Log-softmax and negative log-likelihood over the classes. */
#ifndef TRAIN_LOSS_H
#define TRAIN_LOSS_H

#include <stdint.h>

/* Sums over a batch. */
struct loss {
    double total;    /* negative log-likelihood in nats */
    int64_t correct; /* samples whose largest output is their label */
};

/*
 * outputs: batch x classes; labels: batch, each below classes. gradient (batch x
 * classes, may be NULL) becomes that of weight times the total, by outputs.
 */
struct loss loss_nll(int batch, int classes, const float *outputs, const uint8_t *labels,
                     float weight, float *gradient);

#endif
