/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests of the stand-in's driver: memory, the order on streams, contexts and devices. */
#include "trial.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define BYTES ((size_t)100000)

static const char *test_library = "standin_cuda";

static void test_start(void)
{
    trial_load(test_library);
    trial_device(0);
}

static bool test_all_are(const unsigned char *data, unsigned char value)
{
    for (size_t i = 0; i < BYTES; i++) {
        if (data[i] != value)
            return false;
    }
    return true;
}

/* Returns device memory in which all bytes have the value. */
static uintptr_t test_filled(unsigned char value)
{
    unsigned char *data = malloc(BYTES);
    uintptr_t memory;

    TRIAL(data);
    memset(data, value, BYTES);
    memory = trial_memory(data, BYTES);
    free(data);
    return memory;
}

/* ---- memory ---- */

/* Returns the signal that kills a process which reads this address, or 0. */
static int test_touch(uintptr_t address)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        _exit(*(volatile unsigned char *)address == 77 ? 0 : 1);
    }
    TRIAL(pid > 0 && waitpid(pid, &status, 0) == pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

static void run_guard(int rank, int ranks, void *arg)
{
    uintptr_t memory;

    (void)rank, (void)ranks, (void)arg;
    test_start();
    memory = test_filled(77);
    TRIAL(test_touch(memory) == SIGSEGV);
    TRIAL(trial_driver->memory_free(memory) == 0);
    setenv("STANDIN_GUARD", "0", 1);
    memory = test_filled(77);
    TRIAL(test_touch(memory) == 0);
    TRIAL(trial_driver->memory_free(memory) == 0);
}

static void run_kinds(int rank, int ranks, void *arg)
{
    uintptr_t memory;
    void *pinned, *found = NULL, *context = NULL;
    unsigned type = 7;
    int attribute = 2; /* the memory's type */
    void *data = &type;

    (void)rank, (void)ranks, (void)arg;
    test_start();
    memory = test_filled(1);
    TRIAL(trial_driver->host_alloc(&pinned, BYTES, 0) == 0);
    TRIAL(disti_driver_owns(trial_driver, (void *)memory));
    TRIAL(disti_driver_owns(trial_driver, (void *)(memory + BYTES - 1)));
    TRIAL(!disti_driver_owns(trial_driver, pinned));
    TRIAL(!disti_driver_owns(trial_driver, &type));
    TRIAL(trial_driver->pointer_attributes(1, &attribute, &data, (uintptr_t)&type) == 0 && !type);
    attribute = 1, data = &found;
    TRIAL(trial_driver->pointer_attributes(1, &attribute, &data, memory) == 0);
    TRIAL(trial_driver->context_retain(&context, 0) == 0 && found == context);
    TRIAL(trial_driver->copy_in(memory, pinned, BYTES + 1, NULL) == ERROR_INVALID_VALUE);
    TRIAL(trial_driver->memory_free(memory + 1) == ERROR_INVALID_VALUE);
    TRIAL(trial_driver->host_free(pinned) == 0 && trial_driver->memory_free(memory) == 0);
    TRIAL(trial_driver->memory_free(memory) == ERROR_INVALID_VALUE);
}

static void run_exhausted(int rank, int ranks, void *arg)
{
    uintptr_t memory;

    (void)rank, (void)ranks, (void)arg;
    setenv("STANDIN_FAULT", "memory@0:1", 1);
    test_start();
    TRIAL(trial_driver->memory_alloc(&memory, 1) == 0);
    TRIAL(trial_driver->memory_free(memory) == 0);
    TRIAL(trial_driver->memory_alloc(&memory, 1) == ERROR_OUT_OF_MEMORY);
}

/* ---- ordering ---- */

/* Enqueues five operations, each of which is delayed. After the last, all bytes are `value`. */
static void test_fill_slowly(uintptr_t memory, unsigned char value, void *stream)
{
    for (int left = 4; left >= 0; left--)
        TRIAL(trial_driver->fill(memory, (unsigned char)(value + left), BYTES, stream) == 0);
}

/* A copy on a second stream sees the results of the first stream only if it waits for them. */
static void run_events(int rank, int ranks, void *arg)
{
    unsigned char *data = malloc(BYTES);
    void *first, *second, *event;
    uintptr_t a, b;

    (void)rank, (void)ranks, (void)arg;
    test_start();
    a = test_filled(1);
    b = test_filled(2);
    first = trial_stream();
    second = trial_stream();
    TRIAL(data && trial_driver->event_create(&event, DISTI_DRIVER_EVENT_NO_TIMING) == 0);
    TRIAL(trial_driver->event_query(event) == 0);
    setenv("STANDIN_DELAY_US", "100000", 1);
    for (int waits = 0; waits <= 1; waits++) {
        test_fill_slowly(a, (unsigned char)(20 + 10 * waits), first);
        TRIAL(trial_driver->event_record(event, first) == 0);
        TRIAL(trial_driver->event_query(event) == DISTI_DRIVER_NOT_READY);
        if (waits)
            TRIAL(trial_driver->stream_wait(second, event, 0) == 0);
        TRIAL(trial_driver->copy_within(b, a, BYTES, second) == 0);
        TRIAL(trial_driver->stream_synchronize(second) == 0);
        TRIAL((trial_driver->event_query(event) == 0) == (waits == 1));
        TRIAL(trial_driver->stream_synchronize(first) == 0);
        TRIAL(trial_driver->event_query(event) == 0);
        trial_read(data, b, BYTES, second);
        TRIAL(test_all_are(data, (unsigned char)(20 + 10 * waits)) == (waits == 1));
    }
    TRIAL(trial_driver->event_destroy(event) == 0);
    TRIAL(trial_driver->stream_destroy(first) == 0 && trial_driver->stream_destroy(second) == 0);
    free(data);
}

/* The default stream waits for blocking streams, not for nonblocking ones. */
static void run_default_stream(int rank, int ranks, void *arg)
{
    unsigned char *data = malloc(BYTES);
    void *stream;
    uintptr_t memory;

    (void)rank, (void)ranks, (void)arg;
    test_start();
    memory = test_filled(1);
    TRIAL(trial_driver->fill(memory, 2, BYTES, NULL) == 0);
    trial_read(data, memory, BYTES, NULL);
    for (unsigned free_of_it = 0; free_of_it <= 1; free_of_it++) {
        TRIAL(trial_driver->stream_create(&stream, free_of_it) == 0);
        setenv("STANDIN_DELAY_US", "100000", 1);
        test_fill_slowly(memory, (unsigned char)(20 + 10 * free_of_it), stream);
        trial_read(data, memory, BYTES, NULL);
        TRIAL(test_all_are(data, (unsigned char)(20 + 10 * free_of_it)) == !free_of_it);
        TRIAL(trial_driver->stream_destroy(stream) == 0);
    }
    free(data);
}

/* Pageable memory can be reused when the call returns; pinned memory cannot. */
static void run_pageable(int rank, int ranks, void *arg)
{
    unsigned char *plain = malloc(BYTES), *result = malloc(BYTES);
    void *pinned, *stream;
    uintptr_t memory;

    (void)rank, (void)ranks, (void)arg;
    test_start();
    memory = test_filled(1);
    stream = trial_stream();
    TRIAL(plain && result && trial_driver->host_alloc(&pinned, BYTES, 0) == 0);
    setenv("STANDIN_DELAY_US", "100000", 1);
    for (int is_pinned = 0; is_pinned <= 1; is_pinned++) {
        unsigned char *from = is_pinned ? pinned : plain;

        memset(from, 3, BYTES);
        TRIAL(trial_driver->copy_in(memory, from, BYTES, stream) == 0);
        memset(from, 4, BYTES);
        trial_read(result, memory, BYTES, stream);
        TRIAL(test_all_are(result, is_pinned ? 4 : 3));
    }
    TRIAL(trial_driver->host_free(pinned) == 0);
    TRIAL(trial_driver->stream_destroy(stream) == 0);
    free(plain);
    free(result);
}

/* ---- contexts and devices ---- */

static void *test_thread(void *arg)
{
    uintptr_t memory;
    void *context;
    int error = trial_driver->memory_alloc(&memory, 1);

    TRIAL(error == *(int *)arg);
    TRIAL(trial_driver->context_pop(&context) == ERROR_INVALID_CONTEXT);
    trial_device(1);
    TRIAL(trial_driver->memory_alloc(&memory, 1) == 0);
    TRIAL(trial_driver->memory_free(memory) == 0);
    TRIAL(trial_driver->context_pop(&context) == 0);
    return NULL;
}

/* A thread does not have another thread's context; with HIP it starts on device 0. */
static void run_contexts(int rank, int ranks, void *arg)
{
    int expected = strstr(test_library, "hip") ? ERROR_OK : ERROR_INVALID_CONTEXT;
    pthread_t thread;

    (void)rank, (void)ranks, (void)arg;
    test_start();
    TRIAL(pthread_create(&thread, NULL, test_thread, &expected) == 0);
    TRIAL(pthread_join(thread, NULL) == 0);
}

static void run_devices(int rank, int ranks, void *arg)
{
    char first[32], second[32];
    void *context;
    int count, device;

    (void)rank, (void)ranks, (void)arg;
    setenv("STANDIN_DEVICES", "4", 1);
    setenv("CUDA_VISIBLE_DEVICES", "3,1", 1);
    setenv("HIP_VISIBLE_DEVICES", "3,1,9,0", 1); /* up to the first device that does not exist */
    test_start();
    TRIAL(trial_driver->device_count(&count) == 0 && count == 2);
    TRIAL(trial_driver->device_get(&device, 1) == 0);
    TRIAL(trial_driver->device_bus(first, sizeof(first), 0) == 0);
    TRIAL(trial_driver->device_bus(second, sizeof(second), device) == 0);
    TRIAL(strcmp(first, "0000:13:00.0") == 0 && strcmp(second, "0000:11:00.0") == 0);
    TRIAL(trial_driver->context_retain(&context, 2) == ERROR_INVALID_DEVICE);
}

#define TEST(name)                                                                                 \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        assert_true(trial_ranks(1, run_##name, NULL));                                             \
    }

TEST(guard)
TEST(kinds)
TEST(exhausted)
TEST(events)
TEST(default_stream)
TEST(pageable)
TEST(contexts)
TEST(devices)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(guard),    cmocka_unit_test(kinds),          cmocka_unit_test(exhausted),
        cmocka_unit_test(events),   cmocka_unit_test(default_stream), cmocka_unit_test(pageable),
        cmocka_unit_test(contexts), cmocka_unit_test(devices),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);

    test_library = "standin_hip";
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
