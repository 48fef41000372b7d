/* SPDX-License-Identifier: BSD-3-Clause */
/* The JSON of a safetensors header. */
#ifndef TRAIN_TENSORS_JSON_H
#define TRAIN_TENSORS_JSON_H

#include "tensors.h"

/*
 * Reads the syntax only: names, dtypes (float32 is demanded), shapes, places, checksums and notes.
 * -1: the text names the file, and the byte where it is no JSON, or the tensor that is wrong.
 */
int tensors_parse(const char *path, const char *text, size_t length, struct tensors *tensors);

#endif
