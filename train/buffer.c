/* SPDX-License-Identifier: BSD-3-Clause */
/* Floats that go to the other ranks. */
#include "buffer.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static float *buffer_ordinary(size_t bytes)
{
    float *floats = aligned_alloc(64, bytes);

    if (floats)
        memset(floats, 0, bytes);
    return floats;
}

/* May the host read it? The kernel tries, since this process would be ended by it. */
static bool buffer_is_the_hosts(const void *memory)
{
    bool readable = false;
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) == 0) {
        readable = write(ends[1], memory, 1) == 1;
        close(ends[0]);
        close(ends[1]);
    }
    return readable;
}

/* NULL: there is no such memory here, or it is a GPU's. */
static float *buffer_shared(dist_group *group, size_t bytes)
{
    void *memory = NULL;

    if (dist_alloc(group, bytes, &memory) == DIST_OK) {
        if (buffer_is_the_hosts(memory))
            return memory;
        dist_free(group, memory);
        return NULL;
    }
    fprintf(stderr, "warning: rank %d: using ordinary memory for %zu KiB: %s\n",
            dist_get_rank(group), bytes >> 10, dist_last_error());
    return NULL;
}

int buffer_create(dist_group *group, size_t count, struct buffer *buffer)
{
    const size_t bytes = (count * sizeof(float) + 63) / 64 * 64;
    float *shared = group ? buffer_shared(group, bytes) : NULL;

    buffer->shared = shared != NULL;
    buffer->floats = shared ? shared : buffer_ordinary(bytes);
    return buffer->floats ? 0 : -1;
}

void buffer_destroy(struct buffer *buffer)
{
    if (buffer->shared)
        dist_free(NULL, buffer->floats);
    else
        free(buffer->floats);
    *buffer = (struct buffer){.floats = NULL};
}
