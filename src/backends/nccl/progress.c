/* SPDX-License-Identifier: BSD-3-Clause */
/* Backend nccl: finding out what has ended, and what has failed. */
#include "backends/nccl/nccl.h"
#include "base/clock.h"
#include "base/collective.h"

#include <stdio.h>

/* NCCL is asked for errors so often: its answer takes longer than a look at an event. */
#define PROGRESS_LOOK_NS (10 * 1000 * 1000)

/* 1: the device is done with it, 0: not yet; below 0: a failure. */
static int progress_ask(struct disti_nccl_state *nccl, struct disti_nccl_call *c)
{
    char what[128];
    int error = nccl->driver->event_query(c->end);

    if (error == DISTI_DRIVER_NOT_READY)
        return 0;
    if (error == 0) {
        c->done = true;
        return 1;
    }
    disti_nccl_describe_call(nccl, &c->call, what, sizeof(what));
    return nccl->host->fail(DIST_ERR_SYSTEM,
                            "rank %d: %s failed: %s. The device may be lost: see nvidia-smi",
                            nccl->rank, what, disti_driver_text(nccl->driver, error));
}

/* 1: it has ended, 0: not yet; below 0: a failure. */
static int progress_move(struct disti_nccl_state *nccl, struct disti_nccl_call *c)
{
    int done = c->done ? 1 : progress_ask(nccl, c);

    if (done == 1 && c->stage)
        done = disti_nccl_stage_out(nccl, c);
    return done;
}

static void progress_end(struct disti_nccl_state *nccl, struct disti_nccl_call *c)
{
    struct dist_ticket *ticket = c->ticket;

    disti_nccl_call_free(nccl, c);
    if (!ticket)
        return;
    ticket->own = NULL;
    ticket->status = DIST_OK;
}

/* Collectives end one after the other: behind the first that has not, only others are asked. */
static int progress_issued(struct disti_nccl_state *nccl)
{
    struct disti_nccl_call **entry = &nccl->issued.first, *last = NULL, *c;
    bool blocked = false;
    int moved = 0;

    while ((c = *entry)) {
        int done =
            blocked && !disti_collective_pair(c->call.collective) ? 0 : progress_move(nccl, c);

        if (done < 0)
            return done;
        if (done) {
            *entry = c->next;
            progress_end(nccl, c);
            moved++;
            continue;
        }
        blocked = blocked || !disti_collective_pair(c->call.collective);
        last = c;
        entry = &c->next;
    }
    nccl->issued.last = last;
    return moved;
}

static dist_status progress_look(struct disti_nccl_state *nccl)
{
    int64_t now = disti_now_ns();
    int error = DISTI_NCCL_SUCCESS, result;
    char what[128] = "a call";

    if (now < nccl->look_ns)
        return DIST_OK;
    nccl->look_ns = now + PROGRESS_LOOK_NS;
    result = nccl->api->comm_error(nccl->comm, &error);
    if (result == DISTI_NCCL_SUCCESS)
        result = error;
    if (result == DISTI_NCCL_SUCCESS || result == DISTI_NCCL_IN_PROGRESS)
        return DIST_OK;
    if (nccl->issued.first)
        disti_nccl_describe_call(nccl, &nccl->issued.first->call, what, sizeof(what));
    return disti_nccl_fail(nccl, result, what);
}

static dist_status progress_held(struct disti_nccl_state *nccl)
{
    if (!nccl->held.first || nccl->batch || disti_now_ns() < nccl->quiet_ns)
        return DIST_OK;
    return disti_nccl_flush(nccl);
}

int disti_nccl_progress(void *state)
{
    struct disti_nccl_state *nccl = state;
    struct disti_nccl_visit visit;
    int moved;

    if (!nccl->comm || (!nccl->issued.first && !nccl->held.first))
        return 0;
    if (!disti_nccl_enter(nccl->gpu, &visit))
        return disti_nccl_no_device(nccl);
    moved = progress_held(nccl);
    if (moved == DIST_OK)
        moved = progress_issued(nccl);
    if (moved == 0)
        moved = progress_look(nccl);
    disti_nccl_exit(nccl->gpu, &visit);
    return moved;
}

void disti_nccl_describe(const void *state, char *text, size_t size)
{
    const struct disti_nccl_state *nccl = state;
    const struct disti_nccl_call *c = nccl->issued.first ? nccl->issued.first : nccl->held.first;

    c = c ? c : nccl->parcels.first;
    if (size)
        text[0] = '\0';
    if (c && c->call.root >= 0 && disti_collective_pair(c->call.collective))
        snprintf(text, size, "rank %d (on device %d)", c->call.root, nccl->device);
    else if (c)
        snprintf(text, size, "ranks that NCCL does not name, on device %d", nccl->device);
}
