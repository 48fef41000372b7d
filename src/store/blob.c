/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes with a count of references. The server's thread alone has them. */
#include "store/blob.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

struct disti_blob *disti_blob_new(size_t bytes)
{
    struct disti_blob *blob;
    size_t size;

    if (!disti_add(sizeof(*blob), bytes, &size))
        return NULL;
    blob = malloc(size);
    if (!blob)
        return NULL;
    blob->refs = 1;
    blob->bytes = bytes;
    return blob;
}

struct disti_blob *disti_blob_copy(const void *data, size_t bytes)
{
    struct disti_blob *blob = disti_blob_new(bytes);

    if (blob && bytes)
        memcpy(blob->data, data, bytes);
    return blob;
}

struct disti_blob *disti_blob_hold(struct disti_blob *blob)
{
    blob->refs++;
    return blob;
}

void disti_blob_drop(struct disti_blob *blob)
{
    if (blob && --blob->refs == 0)
        free(blob);
}
