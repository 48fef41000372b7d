/* SPDX-License-Identifier: BSD-3-Clause */
/* Augmentation: a small random rotation, scale and shift of an image. */
#ifndef TRAIN_AUGMENT_H
#define TRAIN_AUGMENT_H

#include <stdint.h>

/*
 * Replaces image (28 x 28) by itself, turned by up to 10 degrees, scaled by up to 8 %, and
 * shifted by up to 2 pixels, all drawn from key; between pixels it is interpolated, outside is
 * paper.
 */
void augment_image(uint64_t key, uint8_t *image);

#endif
