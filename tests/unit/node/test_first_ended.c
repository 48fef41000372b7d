/* SPDX-License-Identifier: BSD-3-Clause */
/* Doorbells and segments of a process whose first thread has ended, and from within it. */
#include "unit.h"

#include "../base/first_ended.h"
#include "node/state.h"

#include <stdatomic.h>

#define SOME ((size_t)5 << 20)

/* Memory that both processes see. */
static void *shared_note(size_t bytes)
{
    void *note = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(note, MAP_FAILED);
    return note;
}

/* Once there is one: not 0. */
static int shared_answer(atomic_int *answer)
{
    while (atomic_load(answer) == 0)
        usleep(1000);
    return atomic_load(answer);
}

/* ---- its segment is opened ---- */

static void test_segment_there(void **state)
{
    struct unit_segment own = unit_segment(SOME);
    struct disti_segment_name theirs = own.name; /* the child has the same descriptor */
    int fd;

    (void)state;
    theirs.pid = (int32_t)first_ended_fork(first_ended_rests, NULL);
    assert_int_equal(disti_segment_file_open(&theirs, &fd), DIST_OK);
    close(fd);
    first_ended_kill(theirs.pid);
    unit_segment_free(&own);
}

/* ---- it opens another's ---- */

struct segment_note {
    struct disti_segment_name name;
    atomic_int opened; /* 1: so it is; -1: it cannot be */
};

static void *segment_opens(void *arg)
{
    struct segment_note *note = arg;
    int status, fd;

    while (!disti_process_first_ends((int)getpid(), &status))
        usleep(1000);
    status = disti_segment_file_open(&note->name, &fd);
    atomic_store(&note->opened, status == DIST_OK ? 1 : -1);
    return first_ended_rests(NULL);
}

static void test_segment_here(void **state)
{
    struct segment_note *note = shared_note(sizeof(*note));
    struct unit_segment own = unit_segment(SOME);
    pid_t pid;

    (void)state;
    note->name = own.name;
    pid = first_ended_fork(segment_opens, note);
    assert_int_equal(shared_answer(&note->opened), 1);
    first_ended_kill(pid);
    unit_segment_free(&own);
    munmap(note, sizeof(*note));
}

/* ---- its doorbell is rung ---- */

struct doorbell_note {
    struct disti_node_hello hello;
    atomic_int made; /* 1: so it is; -1: it cannot be */
};

static void *doorbell_makes(void *arg)
{
    static struct disti_node node;
    struct doorbell_note *note = arg;

    note->hello.pid = (int32_t)getpid();
    atomic_store(&note->made, disti_node_doorbell_open(&node, &note->hello) == DIST_OK ? 1 : -1);
    return first_ended_rests(NULL);
}

static void test_doorbell(void **state)
{
    struct doorbell_note *note = shared_note(sizeof(*note));
    struct node_peer peer = {.doorbell = NULL};
    struct disti_node node = {.ranks = 1, .peers = &peer};
    pid_t pid;

    (void)state;
    pid = first_ended_fork(doorbell_makes, note);
    assert_int_equal(shared_answer(&note->made), 1);
    node.hellos = &note->hello;
    disti_node_doorbell_ring(&node, 0);
    assert_non_null(peer.doorbell);
    disti_node_doorbell_close(&node);
    first_ended_kill(pid);
    munmap(note, sizeof(*note));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_segment_there),
                                       cmocka_unit_test(test_segment_here),
                                       cmocka_unit_test(test_doorbell)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
