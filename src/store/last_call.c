/* SPDX-License-Identifier: BSD-3-Clause */
/* A page for each process of a launcher, in a file of its own. */
#include "base/clock.h"
#include "base/collective.h"
#include "base/file.h"
#include "base/settings/env.h"
#include "store/store.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct disti_last_call *disti_last_call;

/* Behind the call, which is written as a whole. */
struct last_call_page {
    struct disti_last_call call;
    uint32_t has_lost;
    _Atomic int64_t suspended; /* written by the launcher: see base/clock.h */
};

/* What a child calls is not what its parent does. */
static void last_call_forked(void)
{
    disti_last_call = NULL;
}

void disti_last_call_open(int local_rank)
{
    const char *path = disti_env("DIST_AGENT_LAST_CALL");
    void *page = MAP_FAILED;
    int fd, inherited;
    int seals;
    struct stat entry;

    if (disti_last_call || !path || local_rank < 0)
        return;
    fd = disti_handed_open(DISTI_HANDED_LAST_CALLS, path, O_RDWR, &inherited);
    if (fd < 0)
        return;
    /* A file that could shrink would end the process that writes to it. */
    seals = fcntl(fd, F_GET_SEALS);
    if (seals >= 0 && seals & F_SEAL_SHRINK && fstat(fd, &entry) == 0 &&
        entry.st_size >= (off_t)(local_rank + 1) * DISTI_LAST_CALL_BYTES)
        page = mmap(NULL, DISTI_LAST_CALL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                    (off_t)local_rank * DISTI_LAST_CALL_BYTES);
    close(fd);
    if (page == MAP_FAILED)
        return;
    (void)pthread_atfork(NULL, NULL, last_call_forked);
    disti_last_call = page;
    disti_clock_follow(&((struct last_call_page *)page)->suspended);
}

void disti_last_call_note_loss(void)
{
    if (disti_last_call)
        ((struct last_call_page *)(void *)disti_last_call)->has_lost = 1;
}

void disti_last_call_note_served(int local_ranks)
{
    disti_last_call_open(local_ranks);
    if (disti_last_call)
        disti_last_call->magic = DISTI_LAST_CALL_SERVED;
}

int disti_last_call_file(int processes)
{
    const int fd = disti_file_memory();

    if (fd < 0)
        return -1;
    if (disti_file_truncate(fd, (uint64_t)processes * DISTI_LAST_CALL_BYTES) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0)
        return fd;
    close(fd);
    return -1;
}

static bool last_call_read(int fd, int page, uint32_t magic, struct disti_last_call *last)
{
    const off_t at = (off_t)page * DISTI_LAST_CALL_BYTES;

    return fd >= 0 && pread(fd, last, sizeof(*last), at) == (ssize_t)sizeof(*last) &&
           last->magic == magic;
}

bool disti_last_call_served(int fd, int local_ranks)
{
    struct disti_last_call last;

    return last_call_read(fd, local_ranks, DISTI_LAST_CALL_SERVED, &last);
}

bool disti_last_call_has_lost(int fd, int page)
{
    const off_t at =
        (off_t)page * DISTI_LAST_CALL_BYTES + (off_t)offsetof(struct last_call_page, has_lost);
    uint32_t has_lost = 0;

    return fd >= 0 && pread(fd, &has_lost, sizeof(has_lost), at) == (ssize_t)sizeof(has_lost) &&
           has_lost;
}

void disti_last_call_tell_clocks(int fd, int processes, int64_t number)
{
    for (int p = 0; fd >= 0 && p < processes; p++)
        (void)!pwrite(fd, &number, sizeof(number),
                      (off_t)p * DISTI_LAST_CALL_BYTES +
                          (off_t)offsetof(struct last_call_page, suspended));
}

void disti_last_call_text(int fd, int local_rank, char *text, size_t size)
{
    struct disti_last_call last;
    int length;

    text[0] = '\0';
    if (local_rank < 0 || !last_call_read(fd, local_rank, DISTI_LAST_CALL_MAGIC, &last))
        return;
    length = snprintf(text, size, "%s, call %" PRId64 " of group %" PRIu32,
                      dist_collective_string((dist_collective)last.collective), last.sequence,
                      last.group);
    if (last.collective != DIST_COLL_BARRIER && length > 0 && (size_t)length < size)
        snprintf(text + length, size - (size_t)length, ", %" PRIu64 " %s", last.count,
                 dist_dtype_string((dist_dtype)last.dtype));
}
