/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages of the store about ranks that have ended, and memory of groups that have ended. All
 * clients are in this process. */
#include "ranks.h"

#include "base/log.h"
#include "store/store.h"

#include <sys/prctl.h>
#include <sys/syscall.h>

#define WAIT_MS 20000
#define SIZE 3
#define COPIES 20
#define COPIES_NAP_NS (5 * 1000 * 1000)

static struct disti_store_server *serve(int holder)
{
    struct disti_store_server *server;

    assert_int_equal(disti_store_server_listen("127.0.0.1", 0, SIZE, 0, &server), DIST_OK);
    server->holder = holder;
    assert_int_equal(disti_store_server_run(server), DIST_OK);
    return server;
}

static struct disti_store *join(const struct disti_store_server *server, int rank)
{
    struct disti_store *store = NULL;

    assert_int_equal(
        ranks_connect("127.0.0.1", disti_store_server_port(server), rank, SIZE, WAIT_MS, &store),
        DIST_OK);
    return store;
}

static dist_status meet(struct disti_store *store, int timeout_ms)
{
    return disti_store_all_gather(store, NULL, "meet", NULL, NULL, 0, timeout_ms);
}

/* Rank 0 reports a failure and leaves before all ranks have joined: rank 1, which joins later, gets
 * the reason. */
static void test_a_late_rank_gets_an_earlier_failure(void **state)
{
    struct disti_store_server *server = serve(-1);
    struct disti_store *first = join(server, 0), *late;

    (void)state;
    disti_store_report(first, NULL, DIST_ERR_SYSTEM, "no interface is named nosuch");
    disti_store_close(first);
    late = join(server, 1);
    assert_int_equal(meet(late, WAIT_MS), DIST_ERR_PEER_LOST);
    assert_true(ranks_say((const char *[]){"rank 0 ", "failed: no interface", NULL}));
    disti_store_close(late);
    disti_store_server_stop(server, 1000);
}

/* Rank 2 is lost, so rank 0, which holds the store, leaves: rank 1's error names rank 2. */
static void test_the_first_rank_to_end_is_named(void **state)
{
    struct disti_store_server *server = serve(0);
    struct disti_store *holder = join(server, 0), *one = join(server, 1), *lost = join(server, 2);

    (void)state;
    disti_store_client_free(lost);
    assert_int_equal(meet(holder, WAIT_MS), DIST_ERR_PEER_LOST);
    disti_store_close(holder);
    disti_store_server_stop(server, 0);
    assert_int_equal(meet(one, WAIT_MS), DIST_ERR_PEER_LOST);
    assert_true(ranks_say((const char *[]){"rank 0 ", "holds the store, has left the job",
                                           "; the first to exit was: rank 2 ", NULL}));
    disti_store_close(one);
}

/* Rank 0, which holds the store, leaves first: the error names no other rank. */
static void test_no_other_rank_is_named_if_the_holder_left_first(void **state)
{
    struct disti_store_server *server = serve(0);
    struct disti_store *holder = join(server, 0), *one = join(server, 1), *two = join(server, 2);
    const char *message;

    (void)state;
    disti_store_close(holder);
    disti_store_close(two);
    disti_store_server_stop(server, 0);
    assert_int_equal(meet(one, WAIT_MS), DIST_ERR_PEER_LOST);
    message = strstr(dist_last_error(), "has left the job");
    assert_non_null(message);
    assert_null(strstr(message + 1, "has left the job"));
    disti_store_close(one);
}

static const int both[] = {0, 1};
static const struct disti_party group = {.group = 7, .ranks = both, .count = 2};

/* Called in a thread, where cmocka assertions cannot fail, so it returns the status. */
static void *leave(void *store)
{
    return (void *)(intptr_t)disti_store_leave(store, &group, "leave", NULL, NULL, 0, WAIT_MS, NULL,
                                               NULL);
}

static void *gather(void *store)
{
    return (void *)(intptr_t)disti_store_all_gather(store, &group, "after", NULL, NULL, 0, WAIT_MS);
}

static void together(struct disti_store *one, struct disti_store *other, void *(*fn)(void *))
{
    pthread_t thread;
    void *status;

    assert_int_equal(pthread_create(&thread, NULL, fn, other), 0);
    assert_int_equal((intptr_t)fn(one), DIST_OK);
    pthread_join(thread, &status);
    assert_int_equal((intptr_t)status, DIST_OK);
}

/* The message that a rank is leaving may arrive after it has left: the store keeps nothing of
 * it. */
static void test_nothing_is_kept_of_an_ended_group(void **state)
{
    struct disti_store_server *server = serve(-1);
    struct disti_store *zero = join(server, 0), *one = join(server, 1);

    (void)state;
    together(zero, one, leave);
    disti_store_tell_leaving(zero, &group, 0);
    together(zero, one, gather);
    disti_store_close(zero);
    disti_store_close(one);
    disti_store_server_stop(server, 1000);
}

static const struct disti_party world = {.group = 0, .count = SIZE};

static void tell_leaving(void *store)
{
    disti_store_tell_leaving(store, &world, 3);
}

static void *leave_world(void *store)
{
    return (void *)(intptr_t)disti_store_leave(store, &world, "leave", NULL, NULL, 0, WAIT_MS,
                                               tell_leaving, store);
}

/* Waits for the next notice; text "": none within the timeout. */
static struct disti_notice next_notice(struct disti_store *store)
{
    const int64_t until = disti_deadline_ms(WAIT_MS);
    struct disti_notice notice = {.rank = -1};

    while (!disti_store_notice(store, &notice) && !disti_expired(until))
        disti_sleep_ns(1000000);
    return notice;
}

/* Rank 0 has begun to leave the world, which then fails. Operations of other rank sets do not wait
 * for it. */
static void test_a_leaving_rank_of_a_failed_world_is_not_waited_for(void **state)
{
    const struct disti_party others = {.group = DISTI_NO_GROUP, .ranks = both, .count = 2};
    struct disti_store_server *server = serve(-1);
    struct disti_store *stores[SIZE];
    pthread_t thread;
    void *status;

    (void)state;
    for (int r = 0; r < SIZE; r++)
        stores[r] = join(server, r);
    assert_int_equal(pthread_create(&thread, NULL, leave_world, stores[0]), 0);
    assert_true(next_notice(stores[1]).leaving);
    disti_store_report(stores[2], &world, DIST_ERR_MISMATCH, "broken");
    assert_int_equal(next_notice(stores[1]).rank, 2);
    pthread_join(thread, &status);
    assert_int_equal((intptr_t)status, DIST_ERR_MISMATCH);
    assert_int_equal(
        disti_store_all_gather(stores[1], &others, "other", NULL, NULL, 0, 3000 * unit_patience()),
        DIST_ERR_PEER_LOST);
    assert_true(ranks_say((const char *[]){"rank 0 ", "has left the group", NULL}));
    for (int r = SIZE; r-- > 0;)
        disti_store_close(stores[r]);
    disti_store_server_stop(server, 1000);
}

/* The first rank to report a failure of a group gets the second report too, which may name the
 * cause. */
static void test_a_second_report_reaches_the_first_reporter(void **state)
{
    struct disti_store_server *server = serve(-1);
    struct disti_store *stores[SIZE];
    struct disti_notice notice;

    (void)state;
    for (int r = 0; r < SIZE; r++)
        stores[r] = join(server, r);
    disti_store_report(stores[0], &world, DIST_ERR_TIMEOUT, "waited for rank 1");
    assert_int_equal(next_notice(stores[0]).rank, 0); /* its own report was the first */
    assert_int_equal(next_notice(stores[1]).status, DIST_ERR_TIMEOUT);
    disti_store_report(stores[1], &world, DIST_ERR_TIMEOUT, "waited for rank 2");
    notice = next_notice(stores[0]);
    assert_int_equal(notice.rank, 1);
    assert_non_null(strstr(notice.text, "waited for rank 2"));
    assert_int_equal(next_notice(stores[2]).rank, 0);
    assert_false(disti_store_notice(stores[2], &notice));
    for (int r = SIZE; r-- > 0;)
        disti_store_close(stores[r]);
    disti_store_server_stop(server, 1000);
}

/* A line of the store's log, written by its thread. */
static struct {
    pthread_mutex_t lock;
    char line[512];
} store_log = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void keep_line(void *arg, dist_log_level level, const char *line)
{
    (void)arg, (void)level;
    pthread_mutex_lock(&store_log.lock);
    if (strstr(line, "rejected a connection"))
        snprintf(store_log.line, sizeof(store_log.line), "%s", line);
    pthread_mutex_unlock(&store_log.lock);
}

/* Sends something that is no hello, and closes the connection with a reset before the server reads
 * it. Returns the local port. */
static int call_and_reset(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct linger at_once = {.l_onoff = 1};
    socklen_t size = sizeof(to);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const char junk[128] = "GET / HTTP/1.1";

    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&to, &size), 0);
    assert_int_equal(send(fd, junk, sizeof(junk), MSG_NOSIGNAL), sizeof(junk));
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    close(fd);
    return ntohs(to.sin_port);
}

/* The refused client is named although its address can no longer be read from the socket. */
static void test_a_refused_client_that_reset_is_named(void **state)
{
    const struct disti_log log = {.fn = keep_line, .level = DIST_LOG_WARN};
    struct disti_store_server *server;
    const int64_t until = disti_deadline_ms(WAIT_MS);
    char caller[64];
    bool named = false;

    (void)state;
    assert_int_equal(disti_store_server_listen("127.0.0.1", 0, SIZE, 0, &server), DIST_OK);
    snprintf(caller, sizeof(caller), "127.0.0.1 port %d",
             call_and_reset(disti_store_server_port(server)));
    disti_log_use(&log);
    assert_int_equal(disti_store_server_run(server), DIST_OK);
    disti_log_use(NULL);
    while (!named && !disti_expired(until)) {
        disti_sleep_ns(1000000);
        pthread_mutex_lock(&store_log.lock);
        named = store_log.line[0];
        pthread_mutex_unlock(&store_log.lock);
    }
    disti_store_server_stop(server, 0);
    if (!strstr(store_log.line, caller))
        fail_msg("no \"%s\" in \"%s\"", caller, store_log.line);
}

/* A child made by clone, without fork handlers, has copies of descriptors that the server
 * closes. */
static void test_copies_of_descriptors_in_a_child_do_no_harm(void **state)
{
    struct disti_store_server *server = serve(0);
    int fds[COPIES];
    pid_t child;

    (void)state;
    for (int i = 0; i < COPIES; i++)
        fds[i] = ranks_open_connection(server);
    disti_sleep_ns(COPIES * COPIES_NAP_NS); /* the server has accepted them */
    child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* if the test is killed */
        for (;;)
            pause();
    }
    assert_true(child > 0);
    for (int i = 0; i < COPIES; i++) {
        assert_int_equal(send(fds[i], "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL), 18);
        disti_sleep_ns(COPIES_NAP_NS); /* the server closes its descriptor, but the copy stays */
        assert_int_equal(send(fds[i], "still there?", 12, MSG_NOSIGNAL), 12);
    }
    disti_sleep_ns(COPIES_NAP_NS);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    for (int i = 0; i < COPIES; i++)
        close(fds[i]);
    disti_store_close(join(server, 0));
    disti_store_server_stop(server, WAIT_MS);
}

/* Runs a server in its own process, which can be stopped. Returns its pid. */
static pid_t serve_in_child(int *port_p)
{
    struct disti_store_server *server;
    int pipes[2], port;
    pid_t child;

    assert_int_equal(pipe(pipes), 0);
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* if the test is killed */
        server = serve(-1);
        port = disti_store_server_port(server);
        CHECK(write(pipes[1], &port, sizeof(port)) == sizeof(port));
        for (;;)
            pause();
    }
    assert_true(child > 0);
    assert_int_equal(read(pipes[0], port_p, sizeof(*port_p)), sizeof(*port_p));
    close(pipes[0]);
    close(pipes[1]);
    return child;
}

static atomic_bool has_sent;

/* Sends more than the sockets can buffer. */
static void *send_much(void *store)
{
    static unsigned char much[DISTI_VALUE_MAX];
    struct disti_party self = {.group = DISTI_NO_GROUP, .ranks = both, .count = 1};
    dist_status status =
        disti_store_all_gather(store, &self, "much", much, NULL, sizeof(much), WAIT_MS);

    atomic_store(&has_sent, true);
    return (void *)(intptr_t)status;
}

/* If the store does not read, a thread that sends much to it does not block the other threads of
 * its rank. */
static void test_a_stopped_store_blocks_only_the_sender(void **state)
{
    struct disti_store *store = NULL;
    pthread_t thread;
    void *status;
    pid_t child;
    int port;

    (void)state;
    child = serve_in_child(&port);
    assert_int_equal(ranks_connect("127.0.0.1", port, 0, SIZE, WAIT_MS, &store), DIST_OK);
    kill(child, SIGSTOP);
    assert_int_equal(pthread_create(&thread, NULL, send_much, store), 0);
    disti_sleep_ns(100 * 1000 * 1000); /* it is sending */
    assert_int_equal(meet(store, 100), DIST_ERR_TIMEOUT);
    assert_false(atomic_load(&has_sent));
    kill(child, SIGCONT);
    pthread_join(thread, &status);
    assert_int_equal((intptr_t)status, DIST_OK);
    disti_store_close(store);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_late_rank_gets_an_earlier_failure),
        cmocka_unit_test(test_the_first_rank_to_end_is_named),
        cmocka_unit_test(test_no_other_rank_is_named_if_the_holder_left_first),
        cmocka_unit_test(test_nothing_is_kept_of_an_ended_group),
        cmocka_unit_test(test_a_leaving_rank_of_a_failed_world_is_not_waited_for),
        cmocka_unit_test(test_a_second_report_reaches_the_first_reporter),
        cmocka_unit_test(test_a_refused_client_that_reset_is_named),
        cmocka_unit_test(test_copies_of_descriptors_in_a_child_do_no_harm),
        cmocka_unit_test(test_a_stopped_store_blocks_only_the_sender),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
