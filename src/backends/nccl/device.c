/* SPDX-License-Identifier: BSD-3-Clause */
/* Backend nccl: the group's device, streams and events. */
#include "backends/nccl/nccl.h"

/* stream_capturing: it is. */
enum { DEVICE_CAPTURE_ACTIVE = 1 };

/*
 * While some thread captures a graph, calls like cuMemAlloc or cuEventQuery would spoil it, even
 * from another thread: unless the thread says that it knows what it does.
 */
bool disti_nccl_enter(const struct disti_nccl_gpu *gpu, struct disti_nccl_visit *visit)
{
    if (!gpu || !gpu->context || gpu->driver->context_push(gpu->context) != 0)
        return false;
    visit->mode = DISTI_DRIVER_CAPTURE_RELAXED;
    gpu->driver->capture_mode(&visit->mode);
    return true;
}

void disti_nccl_exit(const struct disti_nccl_gpu *gpu, struct disti_nccl_visit *visit)
{
    void *context;

    gpu->driver->capture_mode(&visit->mode);
    gpu->driver->context_pop(&context);
}

dist_status disti_nccl_driver_fail(const struct disti_nccl_state *nccl, int error, const char *what)
{
    return nccl->host->fail(DIST_ERR_SYSTEM,
                            "rank %d cannot %s on device %d: %s. See its state (nvidia-smi)",
                            nccl->rank, what, nccl->device, disti_driver_text(nccl->driver, error));
}

dist_status disti_nccl_no_memory(const struct disti_nccl_state *nccl)
{
    return nccl->host->fail(DIST_ERR_NO_MEMORY,
                            "rank %d has no memory of the host left for backend nccl: free some",
                            nccl->rank);
}

dist_status disti_nccl_no_device(const struct disti_nccl_state *nccl)
{
    return nccl->host->fail(DIST_ERR_SYSTEM,
                            "rank %d cannot use device %d: see its state (nvidia-smi), and start "
                            "the job again",
                            nccl->rank, nccl->device);
}

dist_status disti_nccl_event_take(struct disti_nccl_state *nccl, void **event_p)
{
    int error;

    if (nccl->gpu->spares) {
        *event_p = nccl->gpu->spare[--nccl->gpu->spares];
        return DIST_OK;
    }
    error = nccl->driver->event_create(event_p, DISTI_DRIVER_EVENT_NO_TIMING);
    return error ? disti_nccl_driver_fail(nccl, error, "make an event") : DIST_OK;
}

void disti_nccl_event_drop(struct disti_nccl_state *nccl, void *event)
{
    if (!event)
        return;
    if (nccl->gpu->spares < DISTI_NCCL_EVENTS)
        nccl->gpu->spare[nccl->gpu->spares++] = event;
    else
        nccl->driver->event_destroy(event);
}

dist_status disti_nccl_follow(struct disti_nccl_state *nccl, void *later, void *earlier)
{
    int error = nccl->driver->event_record(nccl->gpu->moment, earlier);

    if (!error)
        error = nccl->driver->stream_wait(later, nccl->gpu->moment, 0);
    return error ? disti_nccl_driver_fail(nccl, error, "order two streams") : DIST_OK;
}

bool disti_nccl_capturing(const struct disti_nccl_state *nccl, void *stream)
{
    int status = 0;

    return nccl->driver->stream_capturing(stream, &status) == 0 && status == DEVICE_CAPTURE_ACTIVE;
}
