/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests of the stand-in's graphs: captures, launches, and functions forbidden meanwhile. */
#include "trial.h"

#include <pthread.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { MODE_GLOBAL, MODE_THREAD_LOCAL, MODE_RELAXED };

static const char *test_library = "standin_cuda";

/* Two streams, an event, and two numbers in device memory. */
struct scene {
    void *stream, *other, *event, *graph;
    uintptr_t a, b;
};

static struct scene test_scene(void)
{
    const int numbers[2] = {1, 2};
    struct scene s = {0};

    trial_load(test_library);
    trial_device(0);
    s.stream = trial_stream();
    s.other = trial_stream();
    TRIAL(trial_driver->event_create(&s.event, DISTI_DRIVER_EVENT_NO_TIMING) == 0);
    s.a = trial_memory(&numbers[0], sizeof(int));
    s.b = trial_memory(&numbers[1], sizeof(int));
    return s;
}

static int test_number(const struct scene *s, uintptr_t at)
{
    int number;

    trial_read(&number, at, sizeof(number), s->stream);
    return number;
}

static void test_copy(const struct scene *s, void *stream)
{
    TRIAL(trial_driver->copy_within(s->b, s->a, sizeof(int), stream) == 0);
}

/* Capturing executes nothing; each launch executes the operations with the data of that time. */
static void run_launches(int rank, int ranks, void *arg)
{
    struct scene s = test_scene();
    void *exec;
    int is;

    (void)rank, (void)ranks, (void)arg;
    TRIAL(trial.capture_begin(s.stream, MODE_GLOBAL) == 0);
    TRIAL(trial_driver->stream_capturing(s.stream, &is) == 0 && is == 1);
    test_copy(&s, s.stream);
    TRIAL(trial.capture_end(s.stream, &s.graph) == 0);
    TRIAL(trial_driver->stream_capturing(s.stream, &is) == 0 && is == 0);
    TRIAL(test_number(&s, s.b) == 2);
    TRIAL(trial.graph_instantiate(&exec, s.graph, 0) == 0);
    TRIAL(trial.graph_destroy(s.graph) == 0);
    TRIAL(trial.graph_launch(exec, s.stream) == 0);
    TRIAL(test_number(&s, s.b) == 1);
    TRIAL(trial_driver->fill(s.a, 0, sizeof(int), s.stream) == 0);
    TRIAL(trial.graph_launch(exec, s.stream) == 0);
    TRIAL(test_number(&s, s.b) == 0);
    TRIAL(trial.exec_destroy(exec) == 0);
}

/* Another stream joins the capture by an event, and must join the origin stream again by an event.
 */
static void run_forks(int rank, int ranks, void *arg)
{
    struct scene s = test_scene();

    (void)rank, (void)ranks, (void)arg;
    for (int joins = 0; joins <= 1; joins++) {
        TRIAL(trial.capture_begin(s.stream, MODE_GLOBAL) == 0);
        TRIAL(trial_driver->event_record(s.event, s.stream) == 0);
        TRIAL(trial_driver->stream_wait(s.other, s.event, 0) == 0);
        test_copy(&s, s.other);
        if (joins) {
            TRIAL(trial_driver->event_record(s.event, s.other) == 0);
            TRIAL(trial_driver->stream_wait(s.stream, s.event, 0) == 0);
        }
        TRIAL(trial.capture_end(s.stream, &s.graph) == (joins ? ERROR_OK : ERROR_CAPTURE_UNJOINED));
    }
    TRIAL(trial.graph_destroy(s.graph) == 0);
    TRIAL(trial_driver->event_query(s.event) == ERROR_CAPTURED_EVENT);
    TRIAL(trial_driver->event_record(s.event, s.stream) == 0);
    TRIAL(trial_driver->stream_synchronize(s.stream) == 0);
    TRIAL(trial_driver->event_query(s.event) == 0);
}

/* Allocates memory while the thread has this capture mode. Returns the result. */
static int test_allocates(int mode)
{
    uintptr_t memory;
    int error;

    TRIAL(trial_driver->capture_mode(&mode) == 0);
    error = trial_driver->memory_alloc(&memory, 1);
    TRIAL(trial_driver->capture_mode(&mode) == 0);
    return error;
}

static void *test_thread(void *arg)
{
    int *mode = arg;

    trial_device(0);
    *mode = test_allocates(*mode);
    return NULL;
}

/* As test_allocates, in another thread. */
static int test_allocates_elsewhere(int mode)
{
    pthread_t thread;

    TRIAL(pthread_create(&thread, NULL, test_thread, &mode) == 0);
    TRIAL(pthread_join(thread, NULL) == 0);
    return mode;
}

/*
 * The modes of the capture and of the calling thread determine whether an allocation invalidates
 * the capture, which then ends with an error.
 */
static void run_unsafe(int rank, int ranks, void *arg)
{
    static const struct {
        int capture, thread;
        bool elsewhere, spoils;
    } cases[] = {{MODE_GLOBAL, MODE_GLOBAL, false, true},
                 {MODE_GLOBAL, MODE_GLOBAL, true, true},
                 {MODE_GLOBAL, MODE_THREAD_LOCAL, true, false},
                 {MODE_GLOBAL, MODE_RELAXED, false, false},
                 {MODE_GLOBAL, MODE_RELAXED, true, false},
                 {MODE_THREAD_LOCAL, MODE_GLOBAL, false, true},
                 {MODE_THREAD_LOCAL, MODE_GLOBAL, true, false},
                 {MODE_RELAXED, MODE_GLOBAL, false, false},
                 {MODE_RELAXED, MODE_GLOBAL, true, false}};
    struct scene s = test_scene();

    (void)rank, (void)ranks, (void)arg;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int error;

        TRIAL(trial.capture_begin(s.stream, cases[i].capture) == 0);
        error = cases[i].elsewhere ? test_allocates_elsewhere(cases[i].thread)
                                   : test_allocates(cases[i].thread);
        TRIAL(error == (cases[i].spoils ? ERROR_CAPTURE_UNSUPPORTED : ERROR_OK));
        TRIAL(trial.capture_end(s.stream, &s.graph) ==
              (cases[i].spoils ? ERROR_CAPTURE_INVALIDATED : ERROR_OK));
        TRIAL((s.graph == NULL) == cases[i].spoils);
        if (s.graph)
            TRIAL(trial.graph_destroy(s.graph) == 0);
    }
}

/*
 * A capture is also invalidated if a program waits for the capturing stream, or if that stream
 * waits for an event outside the capture.
 */
static void run_waits(int rank, int ranks, void *arg)
{
    struct scene s = test_scene();

    (void)rank, (void)ranks, (void)arg;
    TRIAL(trial.capture_begin(s.stream, MODE_RELAXED) == 0);
    TRIAL(trial_driver->stream_synchronize(s.stream) == ERROR_CAPTURE_UNSUPPORTED);
    TRIAL(trial.capture_end(s.stream, &s.graph) == ERROR_CAPTURE_INVALIDATED);
    TRIAL(trial_driver->event_record(s.event, s.other) == 0);
    TRIAL(trial.capture_begin(s.stream, MODE_RELAXED) == 0);
    TRIAL(trial_driver->stream_wait(s.stream, s.event, 0) == ERROR_CAPTURE_ISOLATION);
    TRIAL(trial.capture_end(s.stream, &s.graph) == ERROR_CAPTURE_INVALIDATED);
    TRIAL(trial.capture_end(s.stream, &s.graph) == ERROR_ILLEGAL_STATE);
    TRIAL(trial.capture_begin(NULL, MODE_RELAXED) == ERROR_CAPTURE_UNSUPPORTED);
}

#define TEST(name)                                                                                 \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        assert_true(trial_ranks(1, run_##name, NULL));                                             \
    }

TEST(launches)
TEST(forks)
TEST(unsafe)
TEST(waits)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launches),
        cmocka_unit_test(forks),
        cmocka_unit_test(unsafe),
        cmocka_unit_test(waits),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);

    test_library = "standin_hip";
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
