/* SPDX-License-Identifier: BSD-3-Clause */
/* A module with the defect that its macros select; the library must report the defect. */
#include <dist/backend.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifndef NAME
#define NAME "bad"
#endif
#ifndef ENTRY_ABI
#define ENTRY_ABI DIST_ABI
#endif
#ifndef ENTRY_SIZE
#define ENTRY_SIZE sizeof(struct dist_module)
#endif
#ifndef BACKEND_ABI
#define BACKEND_ABI DIST_ABI
#endif
#ifndef BACKEND_SIZE
#define BACKEND_SIZE sizeof(struct dist_backend)
#endif

#ifdef CALLS
void CALLS(void);
#endif

__attribute__((constructor)) static void bad_load(void)
{
#ifdef CRASH_LOAD
    signal(SIGSEGV, SIG_DFL); /* remove a sanitizer's handler */
    raise(SIGSEGV);
#endif
#ifdef EXIT_LOAD
    _exit(3);
#endif
#ifdef CALLS
    CALLS();
#endif
}

static dist_status bad_probe(char *reason, size_t size)
{
    (void)reason;
    (void)size;
#ifdef CRASH_PROBE
    signal(SIGBUS, SIG_DFL);
    raise(SIGBUS);
#endif
#ifdef HANG_PROBE
    for (;;)
        pause();
#endif
#ifdef PROBE
    return (dist_status)PROBE;
#else
    snprintf(reason, size, "it is for no machine");
    return DIST_ERR_UNSUPPORTED;
#endif
}

#ifndef ENTRY_NONE
static dist_status bad_query(const void *state, dist_collective collective, dist_dtype dtype,
                             dist_op op)
{
    (void)state;
    (void)collective;
    (void)dtype;
    (void)op;
    return DIST_ERR_UNSUPPORTED;
}

static dist_status bad_open(void *state, const struct dist_backend_config *config)
{
    (void)state;
    return config->host->fail(DIST_ERR_UNSUPPORTED, "it opens nothing");
}

static void bad_close(void *state)
{
    (void)state;
}

static dist_status bad_post(void *state, const struct dist_call *call, struct dist_ticket *ticket)
{
    (void)state;
    (void)call;
    (void)ticket;
    return DIST_ERR_UNSUPPORTED;
}

static int bad_progress(void *state)
{
    (void)state;
    return 0;
}

static const struct dist_backend bad_backend = {
    .abi = BACKEND_ABI,
    .size = BACKEND_SIZE,
    .name = NAME,
    .summary = "wrong on purpose",
    .state_size = 1,
    .probe = bad_probe,
    .query = bad_query,
    .open = bad_open,
    .close = bad_close,
#ifndef NO_POST
    .post = bad_post,
#endif
    .progress = bad_progress,
    .abort = bad_close,
};
static const struct dist_transport bad_transport = {
    .abi = DIST_ABI,
    .size = sizeof(struct dist_transport),
    .name = NAME,
    .probe = bad_probe,
};
static const struct dist_transport *const bad_transports[] = {&bad_transport, NULL};

DIST_API const struct dist_module dist_module_entry = {
    .abi = ENTRY_ABI,
    .size = ENTRY_SIZE,
#ifdef TRANSPORT
    .transports = bad_transports,
#elif !defined(NEITHER)
    .backend = &bad_backend,
#endif
};
/* Some of these functions are unused, depending on the macros. */
__attribute__((used)) static const void *const bad_all[] = {&bad_backend, bad_transports,
                                                            (const void *)bad_post};
#else
dist_status (*bad_all)(char *reason, size_t size) = bad_probe;
#ifdef ENTRY_NULL
__asm__(".globl dist_module_entry\ndist_module_entry = 0");
#endif
#endif
