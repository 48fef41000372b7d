/* SPDX-License-Identifier: BSD-3-Clause */
/* Augmentation: small random changes of an image. */
#ifndef TRAIN_AUGMENT_H
#define TRAIN_AUGMENT_H

#include <stdint.h>

/*
 * Replaces image (28 x 28) by itself, turned by up to 10 degrees, scaled by up to 8 %, and
 * shifted by up to 2 pixels, all drawn from key; between pixels it is interpolated, outside is
 * paper.
 */
void augment_turn(uint64_t key, uint8_t *image);

/*
 * Replaces image (32 x 32, three channels) by a part of it of the same size, once 4 black pixels
 * have been added on each side, and mirrors every second one; drawn from key. What is usual for
 * CIFAR-10.
 */
void augment_crop(uint64_t key, uint8_t *image);

#endif
