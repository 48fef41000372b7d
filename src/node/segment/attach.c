/* SPDX-License-Identifier: BSD-3-Clause */
/* Segments of the library itself, which outlive their owner for those that have attached. */
#include "node/segment/segment.h"

#include "node/segment/file.h"
#include "node/segment/table.h"

#include <sys/mman.h>
#include <unistd.h>

dist_status disti_segment_attach(const struct disti_segment_name *name, void **memory_p)
{
    dist_status status;
    int fd;

    disti_segment_begin();
    status = disti_segment_file_open(name, &fd);
    if (status != DIST_OK)
        return status;
    status = disti_segment_file_map(fd, 0, name->bytes, memory_p);
    if (status == DIST_OK)
        madvise(*memory_p, name->bytes, MADV_DONTFORK);
    close(fd);
    return status;
}

void disti_segment_detach(const struct disti_segment_name *name, void *memory)
{
    if (memory)
        munmap(memory, name->bytes);
}

void disti_segment_leave(void *memory)
{
    struct segment segment;
    dist_status status;

    if (!memory)
        return;
    disti_segment_lock();
    status = disti_segment_table_take(memory, false, &segment);
    disti_segment_unlock();
    if (status != DIST_OK)
        return;
    munmap(segment.memory, segment.bytes);
    close(segment.name.fd);
}
