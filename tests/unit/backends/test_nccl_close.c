/* SPDX-License-Identifier: BSD-3-Clause */
/* Closing a group while its communicator is slow to end: the caller does not wait, all resources
 * are released, and none is used after its release. */
#include "backends/nccl/nccl.h"

#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- a fake driver and a fake NCCL that count their resources ---- */

static atomic_int contexts, resources, aborts, destroys, warnings;
static sem_t go_on, released;
static bool slow; /* comm_abort and comm_destroy wait for go_on */

static int fake_context_push(void *context)
{
    (void)context;
    return 0;
}

static int fake_context_pop(void **context)
{
    *context = NULL;
    return 0;
}

static int fake_context_release(int device)
{
    (void)device;
    contexts--;
    sem_post(&released);
    return 0;
}

static int fake_capture_mode(int *mode)
{
    (void)mode;
    return 0;
}

static int fake_destroy(void *resource)
{
    free(resource);
    resources--;
    return 0;
}

static int fake_memory_free(uintptr_t memory)
{
    return fake_destroy((void *)memory); /* NOLINT */
}

static int fake_comm_finalize(void *comm)
{
    (void)comm;
    return DISTI_NCCL_SUCCESS;
}

static int fake_comm_error(void *comm, int *error)
{
    (void)comm;
    *error = DISTI_NCCL_SUCCESS;
    return DISTI_NCCL_SUCCESS;
}

static int fake_comm_abort(void *comm)
{
    if (slow)
        sem_wait(&go_on);
    aborts++;
    return fake_destroy(comm);
}

static int fake_comm_destroy(void *comm)
{
    if (slow)
        sem_wait(&go_on);
    destroys++;
    return fake_destroy(comm);
}

static void fake_log(dist_log_level level, const char *format, ...)
{
    (void)level;
    (void)format;
    warnings++;
}

static const struct disti_driver driver = {
    .context_push = fake_context_push,
    .context_pop = fake_context_pop,
    .context_release = fake_context_release,
    .capture_mode = fake_capture_mode,
    .stream_destroy = fake_destroy,
    .event_destroy = fake_destroy,
    .memory_free = fake_memory_free,
};
static const struct disti_nccl_api api = {
    .comm_finalize = fake_comm_finalize,
    .comm_error = fake_comm_error,
    .comm_abort = fake_comm_abort,
    .comm_destroy = fake_comm_destroy,
};
static const struct dist_host host = {.log = fake_log};

static void *resource(void)
{
    resources++;
    return calloc(1, 1);
}

/* Creates an open group, allocated as the core does. */
static struct disti_nccl_state *open_group(bool is_slow)
{
    struct disti_nccl_state *nccl = calloc(1, sizeof(*nccl));

    contexts = 1;
    resources = aborts = destroys = warnings = 0;
    slow = is_slow;
    nccl->host = &host;
    nccl->driver = &driver;
    nccl->api = &api;
    nccl->comm = resource();
    nccl->gpu = calloc(1, sizeof(*nccl->gpu));
    atomic_init(&nccl->gpu->holders, 1);
    nccl->gpu->driver = &driver;
    nccl->gpu->api = &api;
    nccl->gpu->context = &contexts;
    nccl->gpu->stream = resource();
    nccl->gpu->copies = resource();
    nccl->gpu->order_event = resource();
    nccl->gpu->one = resource();
    nccl->gpu->spare[nccl->gpu->spares++] = resource();
    return nccl;
}

/* Closes and frees the group as the core does. */
static void close_group(struct disti_nccl_state *nccl)
{
    disti_nccl_close(nccl);
    memset(nccl, 0xee, sizeof(*nccl));
    free(nccl);
}

static void assert_released(void)
{
    sem_wait(&released);
    assert_int_equal(contexts, 0);
    assert_int_equal(resources, 0);
}

static void closing_a_group_releases_all_resources(void **state)
{
    (void)state;
    close_group(open_group(false));
    assert_released();
    assert_int_equal(destroys, 1);
    assert_int_equal(warnings, 0);
}

static void after_an_abort_the_close_releases_all_resources(void **state)
{
    struct disti_nccl_state *nccl = open_group(false);

    (void)state;
    disti_nccl_abort(nccl);
    assert_int_equal(aborts, 1);
    assert_int_equal(contexts, 1);
    close_group(nccl);
    assert_released();
}

static void an_abort_that_ends_after_the_close_releases_all_resources(void **state)
{
    struct disti_nccl_state *nccl = open_group(true);

    (void)state;
    disti_nccl_abort(nccl);
    assert_int_equal(warnings, 1);
    close_group(nccl);
    assert_int_equal(warnings, 1);
    assert_int_equal(contexts, 1);
    sem_post(&go_on);
    assert_released();
    assert_int_equal(aborts, 1);
}

static void an_abort_that_ends_late_leaves_resources_to_the_close(void **state)
{
    struct disti_nccl_state *nccl = open_group(true);

    (void)state;
    disti_nccl_abort(nccl);
    sem_post(&go_on);
    while (nccl->gpu->holders > 1)
        ;
    assert_int_equal(contexts, 1);
    close_group(nccl);
    assert_released();
}

static void a_close_that_ends_late_releases_all_resources(void **state)
{
    (void)state;
    close_group(open_group(true));
    assert_int_equal(warnings, 1);
    assert_int_equal(contexts, 1);
    sem_post(&go_on);
    assert_released();
    assert_int_equal(destroys, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closing_a_group_releases_all_resources),
        cmocka_unit_test(after_an_abort_the_close_releases_all_resources),
        cmocka_unit_test(an_abort_that_ends_after_the_close_releases_all_resources),
        cmocka_unit_test(an_abort_that_ends_late_leaves_resources_to_the_close),
        cmocka_unit_test(a_close_that_ends_late_releases_all_resources),
    };

    sem_init(&go_on, 0, 0);
    sem_init(&released, 0, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
