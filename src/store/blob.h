/* SPDX-License-Identifier: BSD-3-Clause */
/* The server's memory: bytes that several replies may be sending at a time. */
#ifndef DISTI_STORE_BLOB_H
#define DISTI_STORE_BLOB_H

#include <stddef.h>

struct disti_blob {
    size_t refs, bytes;
    unsigned char data[];
};

/* One reference; data is not set. NULL: no memory. */
struct disti_blob *disti_blob_new(size_t bytes);
struct disti_blob *disti_blob_copy(const void *data, size_t bytes);
struct disti_blob *disti_blob_hold(struct disti_blob *blob);
void disti_blob_drop(struct disti_blob *blob); /* NULL is accepted */

#endif
