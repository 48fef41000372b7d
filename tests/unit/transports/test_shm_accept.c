/* SPDX-License-Identifier: BSD-3-Clause */
/* Accepting connections in transport shm: slow callers, many callers, and processes without free
 * descriptors. */
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "tests/unit/base/unit.h"
#include "transports/shm/shm.h"
#include "transports/shm/state.h"

#include <dist/backend.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#define JOB "accept"
#define CLIENTS 100
#define LIMIT_MS 20000

static const struct dist_transport *const shm = &disti_transport_shm;

static dist_status accept_fail(dist_status status, const char *format, ...)
{
    (void)format;
    return status;
}

static const struct dist_host host = {.fail = accept_fail};

struct accept_rank {
    void *state;
    struct shm_address address;
};

static void rank_open(struct accept_rank *rank, int number)
{
    const struct dist_transport_config config = {.size = sizeof(config),
                                                 .rank = number,
                                                 .world_size = 2,
                                                 .timeout_ms = 60000,
                                                 .job = JOB,
                                                 .local_ranks = 2,
                                                 .host = &host};
    size_t bytes;

    rank->state = calloc(1, shm->state_size);
    assert_non_null(rank->state);
    assert_int_equal(shm->open(rank->state, &config), DIST_OK);
    assert_int_equal(shm->address(rank->state, &rank->address, &bytes), DIST_OK);
    assert_int_equal(bytes, sizeof(rank->address));
}

static void rank_close(struct accept_rank *rank)
{
    shm->close(rank->state);
    free(rank->state);
}

/* Calls progress once, as a rank does that sleeps between its calls of progress. */
static void rank_drive(struct accept_rank *rank)
{
    shm->arm(rank->state);
    shm->disarm(rank->state);
    assert_true(shm->progress(rank->state) >= 0);
}

static int call(const struct shm_address *address)
{
    struct sockaddr_un name;
    socklen_t size = disti_shm_machine_socket(address, &name);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&name, size), 0);
    return fd;
}

/* Sends the hello of rank 0. */
static void send_hello(int fd)
{
    const size_t fifo_bytes = SHM_FIFO_MIN;
    struct shm_hello hello;
    struct shm_pair *pair;
    int fds[2];

    disti_shm_hello_init(&hello, SHM_CALL, 0, 1, disti_hash_text(DISTI_HASH_START, JOB));
    hello.key = 1;
    hello.fifo_bytes = fifo_bytes;
    assert_int_equal(disti_shm_memory_make(fifo_bytes, &fds[0], &pair), DIST_OK);
    fds[1] = eventfd(0, EFD_CLOEXEC);
    assert_true(disti_shm_hello_send(fd, &hello, fds, 2));
    disti_shm_memory_unmap(pair, fifo_bytes);
    close(fds[0]);
    close(fds[1]);
}

/* Returns the word of the called rank's reply; 0: it closed the connection. */
static uint32_t answer(struct accept_rank *rank, int fd)
{
    int64_t deadline = disti_deadline_ms(LIMIT_MS);
    struct shm_hello hello = {0};
    int fds[SHM_HELLO_FDS], result;

    while ((result = disti_shm_hello_receive(fd, &hello, fds)) == 0 && !disti_expired(deadline))
        rank_drive(rank);
    for (int i = 0; i < SHM_HELLO_FDS; i++) {
        if (result == 1 && fds[i] >= 0)
            close(fds[i]);
    }
    return result == 1 ? hello.kind : 0;
}

static void test_a_slow_caller_is_accepted_among_silent_clients(void **state)
{
    struct accept_rank rank;
    int clients[CLIENTS], slow;

    (void)state;
    rank_open(&rank, 1);
    slow = call(&rank.address);
    for (int i = 0; i < 4; i++)
        rank_drive(&rank);
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = call(&rank.address);
        rank_drive(&rank);
    }
    send_hello(slow);
    assert_int_equal(answer(&rank, slow), SHM_ACCEPT);
    close(slow);
    for (int i = 0; i < CLIENTS; i++)
        close(clients[i]);
    rank_close(&rank);
}

/* Accepts the next call, and makes progress on the calling rank meanwhile. */
static int accept_call(struct accept_rank *caller, int listener)
{
    int64_t deadline = disti_deadline_ms(LIMIT_MS);
    int fd;

    while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) < 0 && !disti_expired(deadline))
        rank_drive(caller);
    assert_true(fd >= 0);
    return fd;
}

static void test_a_caller_whose_connection_is_closed_calls_again(void **state)
{
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct dist_request send = {
        .status = DIST_IN_PROGRESS, .peer = 1, .envelope = {.tag = 1, .bytes = 1}, .data = "x"};
    struct accept_rank rank;
    struct shm_address address;
    struct sockaddr_un name;
    socklen_t size;

    (void)state;
    rank_open(&rank, 0);
    address = rank.address;
    assert_true(disti_shm_machine_random(address.name, sizeof(address.name)));
    size = disti_shm_machine_socket(&address, &name);
    assert_int_equal(bind(listener, (struct sockaddr *)&name, size), 0);
    assert_int_equal(listen(listener, 8), 0);
    assert_int_equal(shm->connect(rank.state, 1, &address, sizeof(address)), DIST_OK);
    shm->send(rank.state, &send);
    for (int i = 0; i < 3; i++) {
        close(accept_call(&rank, listener));
        assert_int_equal(send.status, DIST_IN_PROGRESS);
    }
    close(listener); /* further calls fail */
    for (int64_t deadline = disti_deadline_ms(LIMIT_MS);
         send.status == DIST_IN_PROGRESS && !disti_expired(deadline);)
        rank_drive(&rank);
    assert_int_equal(send.status, DIST_ERR_PEER_LOST);
    rank_close(&rank);
}

/* Uses up all descriptors, so that none can be opened. Returns the former limit. */
static rlim_t use_up_descriptors(void)
{
    int lowest = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
    struct rlimit limit;
    rlim_t was;

    assert_true(lowest >= 0);
    close(lowest);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    was = limit.rlim_cur;
    limit.rlim_cur = (rlim_t)lowest;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    return was;
}

static void restore_descriptors(rlim_t was)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = was;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* Calls progress `polls` times. Returns for how many of them the descriptor to sleep on was
 * ready. */
static int count_busy_polls(struct accept_rank *rank, int polls)
{
    int busy = 0;

    for (int i = 0; i < polls; i++) {
        struct pollfd event = {.fd = shm->arm(rank->state), .events = POLLIN};

        busy += event.fd < 0 || poll(&event, 1, 0) > 0;
        shm->disarm(rank->state);
        assert_true(shm->progress(rank->state) >= 0);
    }
    return busy;
}

/* Descriptors run out before the connection is accepted, or after that and before its hello
 * arrives. */
static void descriptors_run_out(bool accepted)
{
    struct accept_rank rank;
    rlim_t was;
    int caller, busy;

    rank_open(&rank, 1);
    caller = call(&rank.address);
    if (accepted)
        rank_drive(&rank);
    send_hello(caller);
    was = use_up_descriptors();
    busy = count_busy_polls(&rank, 1000);
    restore_descriptors(was);
    assert_in_range(busy, 0, 500);
    assert_int_equal(answer(&rank, caller), SHM_ACCEPT);
    close(caller);
    rank_close(&rank);
}

static void test_accepting_waits_for_descriptors_without_spinning(void **state)
{
    (void)state;
    if (unit_patience() > 1)
        skip(); /* valgrind allows descriptors beyond the limit */
    descriptors_run_out(false);
}

static void test_a_hello_waits_for_descriptors_without_spinning(void **state)
{
    (void)state;
    descriptors_run_out(true);
}

/* The caller has no free descriptor; it calls when there is one. */
static void test_a_call_waits_for_descriptors(void **state)
{
    struct dist_request send = {
        .status = DIST_IN_PROGRESS, .peer = 1, .envelope = {.tag = 1, .bytes = 1}, .data = "x"};
    struct accept_rank rank[2];
    rlim_t was;

    (void)state;
    rank_open(&rank[0], 0);
    rank_open(&rank[1], 1);
    assert_int_equal(shm->connect(rank[0].state, 1, &rank[1].address, sizeof(rank[1].address)),
                     DIST_OK);
    was = use_up_descriptors();
    shm->send(rank[0].state, &send);
    for (int i = 0; i < 100; i++)
        rank_drive(&rank[0]);
    restore_descriptors(was);
    assert_int_equal(send.status, DIST_IN_PROGRESS);
    for (int64_t deadline = disti_deadline_ms(LIMIT_MS);
         send.status == DIST_IN_PROGRESS && !disti_expired(deadline);) {
        rank_drive(&rank[0]);
        rank_drive(&rank[1]);
    }
    assert_int_equal(send.status, DIST_OK);
    rank_close(&rank[0]);
    rank_close(&rank[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_slow_caller_is_accepted_among_silent_clients),
        cmocka_unit_test(test_a_caller_whose_connection_is_closed_calls_again),
        cmocka_unit_test(test_accepting_waits_for_descriptors_without_spinning),
        cmocka_unit_test(test_a_hello_waits_for_descriptors_without_spinning),
        cmocka_unit_test(test_a_call_waits_for_descriptors),
    };

    setenv("DIST_SHM_CMA", "0", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
