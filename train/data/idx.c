/* SPDX-License-Identifier: BSD-3-Clause */
/* The IDX format. */
#include "idx.h"

#include <stdlib.h>

#include "source.h"
#include "train/failure.h"

enum { IDX_UNSIGNED_BYTE = 8 };

/* Exactly size bytes, the next at offset, or an error that says what is missing. */
static int idx_take(struct source *source, const char *path, size_t offset, const char *what,
                    void *to, size_t size)
{
    size_t got;

    if (source_read(source, to, size, &got) < 0)
        return -1;
    if (got < size)
        return failure("%s: byte %zu: the file ends here, expected %zu bytes more (%s)", path,
                       offset + got, size - got, what);
    return 0;
}

static int idx_check_magic(const char *path, const uint8_t *magic, int dimensions)
{
    if (magic[0] != 0 || magic[1] != 0)
        return failure("%s: byte 0: 0x%02x%02x, expected 0x0000: not an IDX file", path, magic[0],
                       magic[1]);
    if (magic[2] != IDX_UNSIGNED_BYTE)
        return failure("%s: byte 2: element type 0x%02x, expected 0x%02x (unsigned bytes)", path,
                       magic[2], IDX_UNSIGNED_BYTE);
    if (magic[3] != dimensions)
        return failure("%s: byte 3: %u dimensions, expected %d", path, magic[3], dimensions);
    return 0;
}

static uint32_t idx_big_endian(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static int idx_read_header(struct source *source, const char *path, int dimensions, struct idx *idx)
{
    uint8_t header[4 + 4 * IDX_MAX_DIMENSIONS];

    if (idx_take(source, path, 0, "the header", header, 4) < 0 ||
        idx_check_magic(path, header, dimensions) < 0 ||
        idx_take(source, path, 4, "the sizes", header + 4, 4 * (size_t)dimensions) < 0)
        return -1;
    idx->count = 1;
    for (int i = 0; i < dimensions; i++) {
        const uint32_t size = idx_big_endian(header + 4 + 4 * i);

        if (size == 0)
            return failure("%s: byte %d: size 0, expected at least 1", path, 4 + 4 * i);
        if (__builtin_mul_overflow(idx->count, (size_t)size, &idx->count))
            return failure("%s: byte %d: size %u, which makes more elements than memory can hold",
                           path, 4 + 4 * i, size);
        idx->sizes[i] = size;
    }
    return 0;
}

/* A header that lies must not make us allocate what the file cannot contain. */
static int idx_check_room(struct source *source, const char *path, size_t header, size_t count)
{
    const uint64_t most = source_most(source);

    if (most < header || count > most - header)
        return failure("%s: byte %llu: the file cannot reach further, expected %zu bytes after its "
                       "header of %zu: it is truncated or its sizes are corrupt",
                       path, (unsigned long long)most, count, header);
    return 0;
}

static int idx_read_data(struct source *source, const char *path, size_t header, struct idx *idx)
{
    uint8_t more;
    size_t got;

    if (idx_take(source, path, header, "the data that the header announces", idx->bytes,
                 idx->count) < 0 ||
        source_read(source, &more, 1, &got) < 0)
        return -1;
    if (got > 0)
        return failure("%s: byte %zu: more data than the header announces, expected the end of the "
                       "file",
                       path, header + idx->count);
    return 0;
}

int idx_read(const char *path, int dimensions, struct idx *idx)
{
    const size_t header = 4 + 4 * (size_t)dimensions;
    struct idx read = {.bytes = NULL};
    struct source *source = NULL;
    int result = -1;

    if (source_open(path, &source) < 0 || idx_read_header(source, path, dimensions, &read) < 0 ||
        idx_check_room(source, path, header, read.count) < 0)
        goto out;
    read.bytes = malloc(read.count);
    if (!read.bytes) {
        failure("%s: out of memory for %zu bytes", path, read.count);
        goto out;
    }
    result = idx_read_data(source, path, header, &read);
out:
    source_close(source);
    if (result == 0)
        *idx = read;
    else
        free(read.bytes);
    return result;
}
