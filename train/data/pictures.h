/* SPDX-License-Identifier: BSD-3-Clause */
/* Coloured pictures that the program draws itself, so that a first run needs no download. */
#ifndef TRAIN_PICTURES_H
#define TRAIN_PICTURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PICTURES_SIDE = 32 };

/*
 * Draws sample index of the training or the test set: 32 x 32 pixels of red, green and blue: one
 * of ten shapes, in any colour, size, place and direction, on a coloured ground with grain.
 * Returns which shape it is. A pure function of its arguments, so every rank draws the same
 * sample; some 50 microseconds.
 */
uint8_t pictures_draw(uint64_t seed, bool train, size_t index, uint8_t *image);

#endif
