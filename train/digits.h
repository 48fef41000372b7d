/* SPDX-License-Identifier: BSD-3-Clause */
/* Digits and pictures that the program draws itself, and augmentation. */
#ifndef TRAIN_DIGITS_H
#define TRAIN_DIGITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DIGITS_SIDE = 28 };

/*
 * Draws sample index of the training or the test set: 28 x 28 bytes, ink is 255, edges
 * smooth. Returns the digit. A pure function of its arguments, so every rank draws the
 * same sample; some 10 microseconds.
 */
uint8_t digits_draw(uint64_t seed, bool train, size_t index, uint8_t *image);

enum { PICTURES_SIDE = 32 };

/*
 * Draws sample index of the training or the test set: 32 x 32 pixels of red, green and blue: one
 * of ten shapes, in any colour, size, place and direction, on a coloured ground with grain.
 * Returns which shape it is. A pure function of its arguments, so every rank draws the same
 * sample; some 50 microseconds.
 */
uint8_t pictures_draw(uint64_t seed, bool train, size_t index, uint8_t *image);

/* ---- augmentation: small random changes of an image ---- */

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
