/* SPDX-License-Identifier: BSD-3-Clause */
/* Digits that the program draws itself, so that a first run needs no download. */
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

#endif
