/* SPDX-License-Identifier: BSD-3-Clause */
/* The store with more connections at once than it can process, or has descriptors for. */
#include "base/clock.h"
#include "base/log.h"
#include "ranks.h"

#include "rendezvous/meet.h"
#include "store/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define WAIT_MS 20000
#define SLOW_RANKS 2000

/* Raises the limit on descriptors: both ends of all connections are in this process. */
static void raise_limit(void)
{
    struct rlimit files;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_cur < 2 * SLOW_RANKS + 100)
        skip();
}

/* ---- silent clients ---- */
/* Many silent connections cannot keep ranks out: the server closes the oldest ones. */
static void test_silent_clients_do_not_keep_ranks_out(void **state)
{
    const int64_t deadline = disti_deadline_ms(WAIT_MS);
    struct pollfd crowd[400];
    struct disti_store_server *server;
    struct disti_store *store;
    int closed = 0;

    (void)state;
    assert_int_equal(ranks_serve("127.0.0.1", 0, 1, &server), DIST_OK);
    for (int i = 0; i < 400; i++)
        crowd[i] = (struct pollfd){.fd = ranks_open_connection(server), .events = POLLIN};
    assert_int_equal(
        ranks_connect("127.0.0.1", disti_store_server_port(server), 0, 1, WAIT_MS, &store),
        DIST_OK);
    while (closed < 100 && !disti_expired(deadline)) { /* a loaded machine may be slow */
        closed = poll(crowd, 400, 10);
        disti_sleep_ns(10 * 1000 * 1000);
    }
    for (int i = 0; i < 400; i++)
        close(crowd[i].fd);
    disti_store_close(store);
    disti_store_server_stop(server, 1000);
    assert_in_range(closed, 100, 200);
}

/* ---- slow clients ---- */

/* All ranks connect before the store accepts the first connection. */
static void call_all(const struct disti_store_server *server, int *fds)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)disti_store_server_port(server)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    for (int r = 0; r < SLOW_RANKS; r++) {
        fds[r] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        assert_true(fds[r] >= 0);
        assert_true(connect(fds[r], (struct sockaddr *)&address, sizeof(address)) == 0 ||
                    errno == EINPROGRESS);
    }
}

/* Waits until the connection is established, and makes the socket blocking. */
static void wait_connected(int fd)
{
    struct pollfd made = {.fd = fd, .events = POLLOUT};
    int error = -1;
    socklen_t size = sizeof(error);

    assert_int_equal(poll(&made, 1, WAIT_MS), 1);
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size), 0);
    assert_int_equal(error, 0);
    assert_int_equal(fcntl(fd, F_SETFL, 0), 0);
}

/* All ranks are connected before the first of them sends its hello: none of them is
 * disconnected. */
static void test_slow_ranks_are_not_disconnected(void **state)
{
    unsigned char welcome[DISTI_WIRE_WELCOME];
    struct disti_wire_handshake handshake = {0};
    struct disti_store_server *server;
    size_t bytes;
    int fds[SLOW_RANKS];

    (void)state;
    raise_limit();
    assert_int_equal(disti_store_server_listen("127.0.0.1", 0, SLOW_RANKS, 0, &server), DIST_OK);
    call_all(server, fds);
    assert_int_equal(disti_store_server_run(server), DIST_OK);
    for (int r = 0; r < SLOW_RANKS; r++)
        wait_connected(fds[r]);
    for (int r = 0; r < SLOW_RANKS; r++)
        ranks_send_hello(fds[r], &handshake, r, SLOW_RANKS);
    for (int r = 0; r < SLOW_RANKS; r++) {
        ranks_pack_hello(&handshake, r, SLOW_RANKS);
        assert_true(ranks_read_challenge(fds[r], &handshake));
        ranks_send_proof(fds[r], &handshake);
        assert_int_equal(ranks_read_reply(fds[r], welcome, sizeof(welcome), &bytes), DIST_OK);
    }
    disti_store_server_stop(server, 0);
    for (int r = 0; r < SLOW_RANKS; r++)
        close(fds[r]);
}

/* ---- many ranks at once ---- */

#define CROWD_FORKS 4

struct crowd {
    struct disti_store_server *server;
    int ranks, silent; /* clients that connect before the ranks and send nothing */
    int *silent_fds;   /* sockets of the silent clients */
    atomic_int *connected;
};

struct member {
    pthread_t thread;
    const struct crowd *crowd;
    int rank;
};

static void *member_joins(void *arg)
{
    const struct member *member = arg;
    const struct crowd *crowd = member->crowd;
    struct disti_store *store;

    atomic_fetch_add(crowd->connected, 1);
    CHECK(ranks_connect("127.0.0.1", disti_store_server_port(crowd->server), member->rank,
                        crowd->ranks, RANKS_LIMIT_MS, &store) == DIST_OK);
    CHECK(disti_store_all_gather(store, NULL, "all", NULL, NULL, 0, RANKS_LIMIT_MS) == DIST_OK);
    disti_store_close(store);
    return NULL;
}

/* Runs a part of the ranks as threads, because a process for each rank would be slow. */
static void members_join(int part, void *arg)
{
    const struct crowd *crowd = arg;
    int count = crowd->ranks / CROWD_FORKS;
    struct member *members = calloc((size_t)count, sizeof(*members));
    pthread_attr_t small;

    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 * 1024);
    for (int i = 0; i < count; i++) {
        members[i].crowd = crowd;
        members[i].rank = part * count + i;
        CHECK(pthread_create(&members[i].thread, &small, member_joins, &members[i]) == 0);
    }
    for (int i = 0; i < count; i++)
        pthread_join(members[i].thread, NULL);
    free(members);
}

/* All connections are waiting when the server starts to accept. */
static void crowd_joins(int ranks, int silent)
{
    struct crowd crowd = {.ranks = ranks, .silent = silent};
    int64_t until = disti_deadline_ms(20000);
    struct ranks parts;

    crowd.silent_fds = silent ? calloc((size_t)silent, sizeof(*crowd.silent_fds)) : NULL;
    crowd.connected = mmap(NULL, sizeof(*crowd.connected), PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(crowd.connected != MAP_FAILED);
    assert_int_equal(disti_store_server_listen("127.0.0.1", 0, ranks, 0, &crowd.server), DIST_OK);
    for (int i = 0; i < silent; i++)
        crowd.silent_fds[i] = ranks_open_connection(crowd.server);
    ranks_start(&parts, CROWD_FORKS, members_join, &crowd);
    while (atomic_load(crowd.connected) < ranks && !disti_expired(until))
        disti_sleep_ns(10 * 1000 * 1000);
    disti_sleep_ns(200 * 1000 * 1000);
    assert_int_equal(disti_store_server_run(crowd.server), DIST_OK);
    ranks_finish(&parts);
    for (int i = 0; i < CROWD_FORKS; i++)
        assert_int_equal(parts.codes[i], 0);
    for (int i = 0; i < silent; i++)
        close(crowd.silent_fds[i]);
    disti_store_server_stop(crowd.server, 1000);
    munmap(crowd.connected, sizeof(*crowd.connected));
    free(crowd.silent_fds);
}

/* No rank is disconnected, although all connect before the first hello has been read. */
static void test_all_ranks_may_connect_at_once(void **state)
{
    (void)state;
    raise_limit();
    if (unit_patience() > 1) { /* under valgrind, threads run one at a time */
        crowd_joins(32, 0);
        crowd_joins(16, 700);
        return;
    }
    crowd_joins(600, 0);
    crowd_joins(400, 700);
    crowd_joins(16, 2000);
    if (getenv("CHECK_LONG"))
        crowd_joins(1000, 700);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_silent_clients_do_not_keep_ranks_out),
        cmocka_unit_test(test_slow_ranks_are_not_disconnected),
        cmocka_unit_test(test_all_ranks_may_connect_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
