/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes from a file that may be compressed with gzip. */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "source.h"

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

#include "train/failure.h"

enum { SOURCE_DEFLATE_RATIO = 1032 }; /* deflate never shrinks by more */

struct source {
    char *path;
    uint64_t size;   /* on disk */
    uint64_t offset; /* uncompressed bytes delivered */
    bool compressed;
    int fd; /* -1 once zlib owns it */
#ifdef HAVE_ZLIB
    gzFile gz;
#endif
};

static bool source_is_compressed(int fd)
{
    uint8_t magic[2];

    return pread(fd, magic, 2, 0) == 2 && magic[0] == 0x1f && magic[1] == 0x8b;
}

static int source_open_compressed(struct source *source)
{
#ifdef HAVE_ZLIB
    source->gz = gzdopen(source->fd, "rb");
    if (!source->gz)
        return failure("%s: out of memory", source->path);
    source->fd = -1;
    gzbuffer(source->gz, 1 << 17);
    return 0;
#else
    return failure("%s: is compressed with gzip, and this program was built without zlib: "
                   "run gunzip on it",
                   source->path);
#endif
}

int source_open(const char *path, struct source **source_p)
{
    struct source *source = calloc(1, sizeof(*source));
    struct stat status;

    if (!source)
        return failure("%s: out of memory", path);
    source->path = strdup(path);
    source->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (!source->path || source->fd < 0 || fstat(source->fd, &status) < 0) {
        failure("%s: %s", path, strerror(errno));
        goto failed;
    }
    if (!S_ISREG(status.st_mode)) {
        failure("%s: not a regular file", path);
        goto failed;
    }
    source->size = (uint64_t)status.st_size;
    source->compressed = source_is_compressed(source->fd);
    if (source->compressed && source_open_compressed(source) < 0)
        goto failed;
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
    free(source->path);
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

uint64_t source_most(const struct source *source)
{
    if (!source->compressed)
        return source->size;
    return source->size > UINT64_MAX / SOURCE_DEFLATE_RATIO ? UINT64_MAX
                                                            : source->size * SOURCE_DEFLATE_RATIO;
}
