/* SPDX-License-Identifier: BSD-3-Clause */
/* What the store says of ranks that have ended, and keeps of groups that have. Its clients are all
 * in this process. */
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

/* Rank 0 gives up, says why, and leaves before all have come: rank 1, which is late, is told. */
static void test_who_gave_up(void **state)
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

/* Rank 2 is lost, and so rank 0 leaves, with the store: rank 1 is to hear of rank 2. */
static void test_who_began_it(void **state)
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

/* Rank 0 leaves with the store, and nobody before it: whoever ends then explains nothing. */
static void test_holder_began_it(void **state)
{
    struct disti_store_server *server = serve(0);
    struct disti_store *holder = join(server, 0), *one = join(server, 1), *two = join(server, 2);
    const char *said_once;

    (void)state;
    disti_store_close(holder);
    disti_store_close(two);
    disti_store_server_stop(server, 0);
    assert_int_equal(meet(one, WAIT_MS), DIST_ERR_PEER_LOST);
    said_once = strstr(dist_last_error(), "has left the job");
    assert_non_null(said_once);
    assert_null(strstr(said_once + 1, "has left the job"));
    disti_store_close(one);
}

static const int both[] = {0, 1};
static const struct disti_party group = {.group = 7, .ranks = both, .count = 2};

/* In a thread, where cmocka cannot fail: the status is the result. */
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

/* That a rank waits to leave may come when it has left: nothing is kept of that. */
static void test_ended_group_is_forgotten(void **state)
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

/* The next piece of news; text "": none has come. */
static struct disti_notice news(struct disti_store *store)
{
    const int64_t until = disti_deadline_ms(WAIT_MS);
    struct disti_notice notice = {.rank = -1};

    while (!disti_store_notice(store, &notice) && !disti_expired(until))
        disti_sleep_ns(1000000);
    return notice;
}

/* Rank 0 has begun to leave the world, which then fails. It comes to no other group for that. */
static void test_leaver_of_failed_world(void **state)
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
    assert_true(news(stores[1]).leaving);
    disti_store_report(stores[2], &world, DIST_ERR_MISMATCH, "broken");
    assert_int_equal(news(stores[1]).rank, 2);
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

/* Who says first that a group failed hears what the next says: that may name the one to blame. */
static void test_second_report(void **state)
{
    struct disti_store_server *server = serve(-1);
    struct disti_store *stores[SIZE];
    struct disti_notice notice;

    (void)state;
    for (int r = 0; r < SIZE; r++)
        stores[r] = join(server, r);
    disti_store_report(stores[0], &world, DIST_ERR_TIMEOUT, "waited for rank 1");
    assert_int_equal(news(stores[0]).rank, 0); /* it was the first */
    assert_int_equal(news(stores[1]).status, DIST_ERR_TIMEOUT);
    disti_store_report(stores[1], &world, DIST_ERR_TIMEOUT, "waited for rank 2");
    notice = news(stores[0]);
    assert_int_equal(notice.rank, 1);
    assert_non_null(strstr(notice.text, "waited for rank 2"));
    assert_int_equal(news(stores[2]).rank, 0);
    assert_false(disti_store_notice(stores[2], &notice));
    for (int r = SIZE; r-- > 0;)
        disti_store_close(stores[r]);
    disti_store_server_stop(server, 1000);
}

/* A line of the store's log, as its thread writes it. */
static struct {
    pthread_mutex_t lock;
    char line[512];
} said = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void note(void *arg, dist_log_level level, const char *line)
{
    (void)arg, (void)level;
    pthread_mutex_lock(&said.lock);
    if (strstr(line, "rejected a connection"))
        snprintf(said.line, sizeof(said.line), "%s", line);
    pthread_mutex_unlock(&said.lock);
}

/* Sends what is no hello, and is gone, with a reset, before anybody looks. Returns its port. */
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

/* Who was refused is named though the socket has forgotten him. */
static void test_reset_caller_is_named(void **state)
{
    const struct disti_log log = {.fn = note, .level = DIST_LOG_WARN};
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
        pthread_mutex_lock(&said.lock);
        named = said.line[0];
        pthread_mutex_unlock(&said.lock);
    }
    disti_store_server_stop(server, 0);
    if (!strstr(said.line, caller))
        fail_msg("no \"%s\" in \"%s\"", caller, said.line);
}

/* A child that no handler of fork knows of has copies of what the server hangs up on. */
static void test_copies_in_a_child(void **state)
{
    struct disti_store_server *server = serve(0);
    int fds[COPIES];
    pid_t child;

    (void)state;
    for (int i = 0; i < COPIES; i++)
        fds[i] = ranks_stranger(server);
    disti_sleep_ns(COPIES * COPIES_NAP_NS); /* the server has accepted them */
    child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* should the test be killed */
        for (;;)
            pause();
    }
    assert_true(child > 0);
    for (int i = 0; i < COPIES; i++) {
        assert_int_equal(send(fds[i], "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL), 18);
        disti_sleep_ns(COPIES_NAP_NS); /* the server hangs up, but for the copy */
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

/* Serves in a process of its own, which can be stopped. Returns its id. */
static pid_t serve_elsewhere(int *port_p)
{
    struct disti_store_server *server;
    int pipes[2], port;
    pid_t child;

    assert_int_equal(pipe(pipes), 0);
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* should the test be killed */
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

static atomic_bool told;

/* More than the sockets take. */
static void *tell_much(void *store)
{
    static unsigned char much[DISTI_VALUE_MAX];
    struct disti_party self = {.group = DISTI_NO_GROUP, .ranks = both, .count = 1};
    dist_status status =
        disti_store_all_gather(store, &self, "much", much, NULL, sizeof(much), WAIT_MS);

    atomic_store(&told, true);
    return (void *)(intptr_t)status;
}

/* A store that does not read: who has much to tell it holds up no other thread of its rank. */
static void test_stopped_store(void **state)
{
    struct disti_store *store = NULL;
    pthread_t thread;
    void *status;
    pid_t child;
    int port;

    (void)state;
    child = serve_elsewhere(&port);
    assert_int_equal(ranks_connect("127.0.0.1", port, 0, SIZE, WAIT_MS, &store), DIST_OK);
    kill(child, SIGSTOP);
    assert_int_equal(pthread_create(&thread, NULL, tell_much, store), 0);
    disti_sleep_ns(100 * 1000 * 1000); /* it has begun */
    assert_int_equal(meet(store, 100), DIST_ERR_TIMEOUT);
    assert_false(atomic_load(&told));
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
        cmocka_unit_test(test_who_gave_up),
        cmocka_unit_test(test_who_began_it),
        cmocka_unit_test(test_holder_began_it),
        cmocka_unit_test(test_ended_group_is_forgotten),
        cmocka_unit_test(test_leaver_of_failed_world),
        cmocka_unit_test(test_second_report),
        cmocka_unit_test(test_reset_caller_is_named),
        cmocka_unit_test(test_copies_in_a_child),
        cmocka_unit_test(test_stopped_store),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
