/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes from a file that may be compressed with gzip, and the IDX format. */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "idx.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef HAVE_ZLIB
#include <zlib.h>
#endif

#include "failure.h"

enum { SOURCE_DEFLATE_RATIO = 1032 }; /* deflate never shrinks by more */

struct source {
    const char *path; /* of the caller, which outlives the source */
    uint64_t size;    /* on disk */
    uint64_t offset;  /* uncompressed bytes delivered */
    bool compressed;
    int fd; /* -1 once zlib owns it */
#ifdef HAVE_ZLIB
    gzFile gz;
#endif
};

int source_open(const char *path, struct source **source_p)
{
    struct source *source = calloc(1, sizeof(*source));
    struct stat status;
    uint8_t magic[2];

    if (!source)
        return failure("%s: out of memory", path);
    source->path = path;
    source->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (source->fd < 0 || fstat(source->fd, &status) < 0) {
        failure("%s: %s", path, strerror(errno));
        goto failed;
    }
    if (!S_ISREG(status.st_mode)) {
        failure("%s: not a regular file", path);
        goto failed;
    }
    source->size = (uint64_t)status.st_size;
    source->compressed =
        pread(source->fd, magic, 2, 0) == 2 && magic[0] == 0x1f && magic[1] == 0x8b;
    if (source->compressed) {
#ifdef HAVE_ZLIB
        source->gz = gzdopen(source->fd, "rb");
        if (!source->gz) {
            failure("%s: out of memory", path);
            goto failed;
        }
        source->fd = -1;
        gzbuffer(source->gz, 1 << 17);
#else
        failure("%s: is compressed with gzip, and this program was built without zlib: "
                "run gunzip on it",
                path);
        goto failed;
#endif
    }
    *source_p = source;
    return 0;

failed:
    source_close(source);
    return -1;
}

void source_close(struct source *source)
{
    if (!source)
        return;
    if (source->fd >= 0)
        close(source->fd);
#ifdef HAVE_ZLIB
    if (source->gz)
        gzclose(source->gz);
#endif
    free(source);
}

/* One piece; 0 at the end. */
static ssize_t source_read_some(struct source *source, void *to, size_t size)
{
    const size_t most = 1U << 30;
    ssize_t got;

    size = size < most ? size : most;
#ifdef HAVE_ZLIB
    if (source->gz) {
        int error = Z_OK;
        const char *text;

        got = gzread(source->gz, to, (unsigned)size);
        text = gzerror(source->gz, &error);
        if (got < 0 || (got == 0 && error != Z_OK && error != Z_STREAM_END))
            return failure("%s: byte %llu: the compressed data is damaged or ends too early (%s)",
                           source->path, (unsigned long long)source->offset, text);
        return got;
    }
#endif
    do {
        got = read(source->fd, to, size);
    } while (got < 0 && errno == EINTR);
    if (got < 0)
        return failure("%s: byte %llu: %s", source->path, (unsigned long long)source->offset,
                       strerror(errno));
    return got;
}

int source_read(struct source *source, void *to, size_t size, size_t *read_p)
{
    size_t done = 0;

    while (done < size) {
        const ssize_t got = source_read_some(source, (char *)to + done, size - done);

        if (got < 0)
            return -1;
        if (got == 0)
            break;
        done += (size_t)got;
        source->offset += (uint64_t)got;
    }
    *read_p = done;
    return 0;
}

/* ---- IDX ---- */

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

static int idx_read_header(struct source *source, const char *path, int dimensions, struct idx *idx)
{
    uint8_t header[4 + 4 * IDX_MAX_DIMENSIONS];

    if (idx_take(source, path, 0, "the header", header, 4) < 0)
        return -1;
    if (header[0] != 0 || header[1] != 0)
        return failure("%s: byte 0: 0x%02x%02x, expected 0x0000: not an IDX file", path, header[0],
                       header[1]);
    if (header[2] != IDX_UNSIGNED_BYTE)
        return failure("%s: byte 2: element type 0x%02x, expected 0x%02x (unsigned bytes)", path,
                       header[2], IDX_UNSIGNED_BYTE);
    if (header[3] != dimensions)
        return failure("%s: byte 3: %u dimensions, expected %d", path, header[3], dimensions);
    if (idx_take(source, path, 4, "the sizes", header + 4, 4 * (size_t)dimensions) < 0)
        return -1;
    idx->count = 1;
    for (int i = 0; i < dimensions; i++) {
        uint32_t size;

        memcpy(&size, header + 4 + 4 * i, sizeof(size));
        size = be32toh(size);
        if (size == 0)
            return failure("%s: byte %d: size 0, expected at least 1", path, 4 + 4 * i);
        if (__builtin_mul_overflow(idx->count, (size_t)size, &idx->count))
            return failure("%s: byte %d: size %u, which makes more elements than memory can hold",
                           path, 4 + 4 * i, size);
        idx->sizes[i] = size;
    }
    return 0;
}

/* Checks that the file can have all the data, and reads them. */
static int idx_read_data(struct source *source, const char *path, size_t header, struct idx *idx)
{
    const uint64_t ratio = source->compressed ? SOURCE_DEFLATE_RATIO : 1;
    const uint64_t most = source->size > UINT64_MAX / ratio ? UINT64_MAX : source->size * ratio;
    uint8_t more;
    size_t got;

    /* A header that lies must not make us allocate what the file cannot contain. */
    if (most < header || idx->count > most - header)
        return failure("%s: byte %llu: the file cannot reach further, expected %zu bytes after its "
                       "header of %zu: it is truncated or its sizes are corrupt",
                       path, (unsigned long long)most, idx->count, header);
    idx->bytes = malloc(idx->count);
    if (!idx->bytes)
        return failure("%s: out of memory for %zu bytes", path, idx->count);
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
    struct idx read = {.bytes = NULL};
    struct source *source = NULL;
    int result = -1;

    if (source_open(path, &source) == 0 && idx_read_header(source, path, dimensions, &read) == 0)
        result = idx_read_data(source, path, 4 + 4 * (size_t)dimensions, &read);
    source_close(source);
    if (result == 0)
        *idx = read;
    else
        free(read.bytes);
    return result;
}
