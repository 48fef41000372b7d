/* SPDX-License-Identifier: BSD-3-Clause */
/* The call that a rank made last, where its launcher can read it though the rank was killed. */
#ifndef DISTI_STORE_LAST_CALL_H
#define DISTI_STORE_LAST_CALL_H

#include <dist/backend.h>

#include <stdbool.h>
#include <stddef.h>

#define DISTI_LAST_CALL_BYTES 4096 /* each local rank's part of the file, and a scheduler's */

/* What stands there. */
struct disti_last_call {
    uint32_t magic; /* DISTI_LAST_CALL_MAGIC: there was a call; ..._SERVED: a job was served */
    uint32_t group;
    int32_t collective, dtype, op, root;
    int64_t sequence;
    uint64_t count;
};
#define DISTI_LAST_CALL_MAGIC UINT32_C(0x6c617374)
#define DISTI_LAST_CALL_SERVED UINT32_C(0x73727664)

/* This process's; NULL: no launcher asked for it. Stays mapped until the process ends. */
extern struct disti_last_call *disti_last_call;

/*
 * Maps this rank's part, if DIST_AGENT_LAST_CALL names a file. Without it nothing is told; that is
 * no error. May be called again, by one thread at a time.
 */
void disti_last_call_open(int local_rank);

/* Keeps the call. On every call's way, so it does nothing else. */
static inline void disti_last_call_note(uint32_t group, const struct dist_call *call)
{
    struct disti_last_call *last = disti_last_call;

    if (!last)
        return;
    *last = (struct disti_last_call){DISTI_LAST_CALL_MAGIC, group,      call->collective,
                                     call->dtype,           call->op,   call->root,
                                     call->sequence,        call->count};
}

/* Keeps that another process's end has ended what this one, rank or scheduler, does: if it fails
 * now, that is no cause. */
void disti_last_call_note_loss(void);

/* Keeps that this process was the job's scheduler, and has served it well. What its program makes
 * of that, which may know of no schedulers, is no matter to the launcher then. */
void disti_last_call_note_served(int local_ranks);

/* ---- the launcher's side ---- */

/* A memfd for so many processes, which cannot shrink; -1: errno says why. The caller closes it. */
int disti_last_call_file(int processes);

/* "all_reduce, call 12 of group 0, 1024 float32"; "": none was made. */
void disti_last_call_text(int fd, int local_rank, char *text, size_t size);

/*
 * Suspends the clocks of the job's processes, or resumes them (disti_clock_suspend). *number_p is
 * the launcher's copy of the number that they follow, 0 at first.
 */
void disti_last_call_suspend(int fd, int processes, int64_t *number_p);
void disti_last_call_resume(int fd, int processes, int64_t *number_p);

/* Has the scheduler of so many local ranks served them well? */
bool disti_last_call_served(int fd, int local_ranks);

/* Has the process of that page, a local rank or behind them the scheduler, noted a loss? */
bool disti_last_call_has_lost(int fd, int page);

#endif
