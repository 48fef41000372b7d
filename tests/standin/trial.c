/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the stand-in's own tests: loads it, and runs ranks. */
#include "trial.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Seconds after which a rank is considered hanging. */
#define TRIAL_LIMIT 30

const struct disti_driver *trial_driver;
struct trial_calls trial;

static void trial_find(void *handle, const char *name, void *call)
{
    void *symbol = dlsym(handle, name);

    if (!symbol) {
        fprintf(stderr, "there is no %s\n", name);
        exit(1);
    }
    memcpy(call, &symbol, sizeof(symbol));
}

void trial_load(const char *name)
{
    const char *folder = getenv("builddir");
    char path[4096], reason[512];
    void *handle;
    bool hip = strstr(name, "hip") != NULL;

    snprintf(path, sizeof(path), "%s/.libs/%s.so", folder ? folder : ".", name);
    setenv("DIST_GPU_DRIVER", path, 1);
    trial_driver = disti_driver_load(reason, sizeof(reason));
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!trial_driver || !handle) {
        fprintf(stderr, "%s: %s\n", path, trial_driver ? dlerror() : reason);
        exit(1);
    }
#define TRIAL_FIND(call, parameters) trial_find(handle, #call, &trial.call);
    NCCL_CALLS(TRIAL_FIND)
#undef TRIAL_FIND
    trial_find(handle, "ncclGetErrorString", &trial.ncclGetErrorString);
    trial_find(handle, "ncclGetLastError", &trial.ncclGetLastError);
    trial_find(handle, hip ? "hipStreamBeginCapture" : "cuStreamBeginCapture_v2",
               &trial.capture_begin);
    trial_find(handle, hip ? "hipStreamEndCapture" : "cuStreamEndCapture", &trial.capture_end);
    trial_find(handle, hip ? "hipGraphInstantiateWithFlags" : "cuGraphInstantiateWithFlags",
               &trial.graph_instantiate);
    trial_find(handle, hip ? "hipGraphLaunch" : "cuGraphLaunch", &trial.graph_launch);
    trial_find(handle, hip ? "hipGraphExecDestroy" : "cuGraphExecDestroy", &trial.exec_destroy);
    trial_find(handle, hip ? "hipGraphDestroy" : "cuGraphDestroy", &trial.graph_destroy);
}

void trial_device(int ordinal)
{
    void *context;

    TRIAL(trial_driver->context_retain(&context, ordinal) == 0);
    TRIAL(trial_driver->context_push(context) == 0);
}

void *trial_shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    TRIAL(memory != MAP_FAILED);
    return memory;
}

bool trial_ranks(int ranks, void (*run)(int rank, int ranks, void *arg), void *arg)
{
    pid_t *pids = calloc((size_t)ranks, sizeof(*pids));
    bool good = pids != NULL;
    int status;

    fflush(NULL);
    for (int rank = 0; rank < ranks && good; rank++) {
        pids[rank] = fork();
        if (pids[rank] == 0) {
            alarm(TRIAL_LIMIT);
            free(pids);
            run(rank, ranks, arg);
            exit(0);
        }
        good = pids[rank] > 0;
    }
    for (int rank = 0; pids && rank < ranks; rank++) {
        if (pids[rank] > 0 && waitpid(pids[rank], &status, 0) == pids[rank] && status != 0) {
            fprintf(stderr, "rank %d of %d: status 0x%x\n", rank, ranks, (unsigned)status);
            good = false;
        }
    }
    free(pids);
    return good;
}

void *trial_stream(void)
{
    void *stream;

    TRIAL(trial_driver->stream_create(&stream, DISTI_DRIVER_STREAM_NON_BLOCKING) == 0);
    return stream;
}

uintptr_t trial_memory(const void *data, size_t bytes)
{
    void *stream = trial_stream();
    uintptr_t memory;

    TRIAL(trial_driver->memory_alloc(&memory, bytes) == 0);
    TRIAL(trial_driver->copy_in(memory, data, bytes, stream) == 0);
    TRIAL(trial_driver->stream_synchronize(stream) == 0);
    TRIAL(trial_driver->stream_destroy(stream) == 0);
    return memory;
}

void trial_read(void *data, uintptr_t memory, size_t bytes, void *stream)
{
    TRIAL(trial_driver->copy_out(data, memory, bytes, stream) == 0);
    TRIAL(trial_driver->stream_synchronize(stream) == 0);
}
