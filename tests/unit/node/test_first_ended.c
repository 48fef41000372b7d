/* SPDX-License-Identifier: BSD-3-Clause */
/* Segments and doorbells of a process whose first thread has ended, used by another process and by
 * that process itself. */
#include "unit.h"

#include "../base/first_ended.h"
#include "node/state.h"

#include <stdatomic.h>

#define SOME ((size_t)5 << 20)

/* Allocates memory that a forked process shares with this one. */
static void *shared_alloc(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory;
}

/* Waits until the value is not 0, and returns it. */
static int shared_wait(atomic_int *value)
{
    while (atomic_load(value) == 0)
        usleep(1000);
    return atomic_load(value);
}

/* ---- another process opens a segment of a process whose first thread has ended ---- */

static void test_its_segment_can_be_opened(void **state)
{
    struct unit_segment own = unit_segment(SOME);
    struct disti_segment_name theirs = own.name; /* the child has the same descriptor */
    int fd;

    (void)state;
    theirs.pid = (int32_t)first_ended_fork(first_ended_sleep, NULL);
    assert_int_equal(disti_segment_file_open(&theirs, &fd), DIST_OK);
    close(fd);
    first_ended_kill(theirs.pid);
    unit_segment_free(&own);
}

/* ---- a process whose first thread has ended opens a segment of another process ---- */

struct segment_result {
    struct disti_segment_name name;
    atomic_int opened; /* 1: yes; -1: that failed; 0: not tried yet */
};

static void *segment_open(void *arg)
{
    struct segment_result *result = arg;
    int status, fd;

    while (!disti_process_first_ends((int)getpid(), &status))
        usleep(1000);
    status = disti_segment_file_open(&result->name, &fd);
    atomic_store(&result->opened, status == DIST_OK ? 1 : -1);
    return first_ended_sleep(NULL);
}

static void test_it_opens_a_segment(void **state)
{
    struct segment_result *result = shared_alloc(sizeof(*result));
    struct unit_segment own = unit_segment(SOME);
    pid_t pid;

    (void)state;
    result->name = own.name;
    pid = first_ended_fork(segment_open, result);
    assert_int_equal(shared_wait(&result->opened), 1);
    first_ended_kill(pid);
    unit_segment_free(&own);
    munmap(result, sizeof(*result));
}

/* ---- another process rings the doorbell of a process whose first thread has ended ---- */

struct doorbell_result {
    struct disti_node_hello hello;
    atomic_int made; /* 1: yes; -1: that failed; 0: not tried yet */
};

static void *doorbell_make(void *arg)
{
    static struct disti_node node;
    struct doorbell_result *result = arg;

    result->hello.pid = (int32_t)getpid();
    atomic_store(&result->made,
                 disti_node_doorbell_open(&node, &result->hello) == DIST_OK ? 1 : -1);
    return first_ended_sleep(NULL);
}

static void test_its_doorbell_can_be_rung(void **state)
{
    struct doorbell_result *result = shared_alloc(sizeof(*result));
    struct node_peer peer = {.doorbell = NULL};
    struct disti_node node = {.ranks = 1, .peers = &peer};
    pid_t pid;

    (void)state;
    pid = first_ended_fork(doorbell_make, result);
    assert_int_equal(shared_wait(&result->made), 1);
    node.hellos = &result->hello;
    disti_node_doorbell_ring(&node, 0);
    assert_non_null(peer.doorbell);
    disti_node_doorbell_close(&node);
    first_ended_kill(pid);
    munmap(result, sizeof(*result));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_its_segment_can_be_opened),
                                       cmocka_unit_test(test_it_opens_a_segment),
                                       cmocka_unit_test(test_its_doorbell_can_be_rung)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
