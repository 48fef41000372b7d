/* SPDX-License-Identifier: BSD-3-Clause */
/* Every method of rendezvous, with forked ranks, and errors in its settings. */
#include "ranks.h"

#include "base/descriptor.h"
#include "base/log.h"
#include "base/net.h"
#include "launchers.h"
#include "rendezvous/rendezvous.h"

#include <fcntl.h>
#include <sys/stat.h>

#define WAIT_MS 30000

static char directory[] = "/tmp/dist-test-XXXXXX";
static char path[64];

static int clean(void **state)
{
    (void)state;
    launchers_clear();
    return 0;
}

static int make_directory(void **state)
{
    (void)state;
    if (!mkdtemp(directory))
        return -1;
    snprintf(path, sizeof(path), "%s/meet", directory);
    return 0;
}

static int remove_directory(void **state)
{
    (void)state;
    unlink(path);
    /* Fails if a temporary file was left. */
    return rmdir(directory);
}

/* Returns a port that was free just now. */
static int free_port(void)
{
    int fd, port;

    assert_int_equal(disti_listen("127.0.0.1", 0, 0, &fd, &port), DIST_OK);
    disti_descriptor_close(fd);
    return port;
}

static void set_int(const char *name, int value)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", value);
    setenv(name, text, 1);
}

/* Joins, checks that all ranks have joined, and leaves. */
static void meet(const struct dist_options *options, int rank, int ranks)
{
    struct disti_bootstrap bootstrap;
    char jobs[RANKS_MAX][128];
    int seen[RANKS_MAX];

    CHECK(disti_rendezvous(options, WAIT_MS, &bootstrap) == DIST_OK);
    CHECK(bootstrap.rank == rank && bootstrap.world_size == ranks);
    CHECK(bootstrap.bind_host[0] && bootstrap.job[0]);
    CHECK((bootstrap.store != NULL) == (ranks > 1));
    if (bootstrap.store) {
        CHECK(disti_store_all_gather(bootstrap.store, NULL, "ranks", &rank, seen, sizeof(rank),
                                     WAIT_MS) == DIST_OK);
        CHECK(disti_store_all_gather(bootstrap.store, NULL, "jobs", bootstrap.job, jobs,
                                     sizeof(jobs[0]), WAIT_MS) == DIST_OK);
        for (int r = 0; r < ranks; r++)
            CHECK(seen[r] == r && strcmp(jobs[r], bootstrap.job) == 0);
    }
    disti_bootstrap_close(&bootstrap, WAIT_MS);
    CHECK(!bootstrap.store && !bootstrap.server);
}

static void rank_by_env(int rank, void *arg)
{
    int *ranks = arg;

    set_int("RANK", rank);
    set_int("WORLD_SIZE", *ranks);
    for (int i = 0; i < 3; i++)
        meet(NULL, rank, *ranks);
}

static void test_ranks_meet_by_environment(void **state)
{
    int counts[] = {1, 2, 3, 8};

    (void)state;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        setenv("MASTER_ADDR", i % 2 ? "localhost" : "127.0.0.1", 1);
        set_int("MASTER_PORT", free_port());
        ranks_run(counts[i], rank_by_env, &counts[i]);
    }
}

static void rank_by_local_rank(int rank, void *arg)
{
    (void)arg;
    set_int("LOCAL_RANK", rank);
    meet(NULL, rank, 3);
}

static void test_ranks_meet_by_local_rank(void **state)
{
    (void)state;
    set_int("MASTER_PORT", free_port());
    set_int("WORLD_SIZE", 3);
    ranks_run(3, rank_by_local_rank, NULL);
}

struct by_url {
    char url[128];
    int ranks, times;
    bool late; /* rank 0 is the last to join */
};

static void rank_by_url(int rank, void *arg)
{
    struct by_url *by = arg;
    struct dist_options options = DIST_OPTIONS_INIT;

    options.init_method = by->url;
    options.rank = rank;
    options.world_size = by->ranks;
    if (by->late && rank == 0)
        disti_sleep_ns(500000000);
    for (int i = 0; i < by->times; i++)
        meet(&options, rank, by->ranks);
}

static void test_ranks_meet_by_tcp(void **state)
{
    struct by_url by = {.ranks = 8, .times = 1};

    (void)state;
    snprintf(by.url, sizeof(by.url), "tcp://127.0.0.1:%d", free_port());
    ranks_run(by.ranks, rank_by_url, &by);
    by.late = true;
    ranks_run(by.ranks, rank_by_url, &by);
}

static void test_ranks_meet_by_tcp_over_IPv6(void **state)
{
    struct by_url by = {.ranks = 2, .times = 1};
    int fd, port;

    (void)state;
    if (disti_listen("::1", 0, 0, &fd, &port) != DIST_OK)
        skip();
    close(fd);
    snprintf(by.url, sizeof(by.url), "tcp://[::1]:%d", port);
    ranks_run(by.ranks, rank_by_url, &by);
}

static void rank_by_query(int rank, void *arg)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    char url[128];

    snprintf(url, sizeof(url), "tcp://127.0.0.1:%d?rank=%d&world_size=2", *(int *)arg, rank);
    options.init_method = url;
    meet(&options, rank, 2);
}

static void test_ranks_meet_by_tcp_with_parameters(void **state)
{
    int port = free_port();

    (void)state;
    ranks_run(2, rank_by_query, &port);
}

static void test_ranks_meet_by_file(void **state)
{
    struct by_url by = {.ranks = 4, .times = 1};
    struct stat info;

    (void)state;
    snprintf(by.url, sizeof(by.url), "file://%s", path);
    ranks_run(by.ranks, rank_by_url, &by);
    assert_int_equal(stat(path, &info), -1);
    by.times = 3;
    ranks_run(by.ranks, rank_by_url, &by);
    assert_int_equal(stat(path, &info), -1);
}

static void write_file(const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Starts a store in its own process: this process must have no threads when it forks ranks. */
static pid_t start_other_store(int *port_p)
{
    struct disti_store_server *other;
    int ends[2];
    pid_t pid;

    assert_int_equal(pipe(ends), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int port = -1;

        if (ranks_serve("127.0.0.1", 0, 3, &other) == DIST_OK)
            port = disti_store_server_port(other);
        if (write(ends[1], &port, sizeof(port)) == sizeof(port))
            pause();
        _exit(0);
    }
    assert_int_equal(read(ends[0], port_p, sizeof(*port_p)), sizeof(*port_p));
    close(ends[0]);
    close(ends[1]);
    assert_true(*port_p > 0);
    return pid;
}

/* Contents of the file that earlier runs or other programs may have left. */
static void test_stale_files_are_replaced(void **state)
{
    struct by_url by = {.ranks = 3, .times = 1, .late = true};
    char text[256];
    pid_t other;
    int port;

    (void)state;
    snprintf(by.url, sizeof(by.url), "file://%s", path);
    write_file("");
    ranks_run(by.ranks, rank_by_url, &by);
    write_file("junk\n");
    ranks_run(by.ranks, rank_by_url, &by);
    /* A port without a listener. */
    snprintf(text, sizeof(text), "libdist 1\n127.0.0.1\n%d\nabc\n", free_port());
    write_file(text);
    ranks_run(by.ranks, rank_by_url, &by);
    /* A running store, but of another job. */
    other = start_other_store(&port);
    snprintf(text, sizeof(text), "libdist 1\n127.0.0.1\n%d\nabc\n", port);
    write_file(text);
    ranks_run(by.ranks, rank_by_url, &by);
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
}

static void test_bad_files_are_errors(void **state)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    struct disti_bootstrap bootstrap;

    (void)state;
    options.world_size = 2;
    options.rank = 0;
    options.init_method = "file:///no/such/directory/file";
    assert_int_equal(disti_rendezvous(&options, 1000, &bootstrap), DIST_ERR_RENDEZVOUS);
    assert_non_null(strstr(dist_last_error(), "/no/such/directory/file"));
    options.rank = 1;
    assert_int_equal(disti_rendezvous(&options, 200, &bootstrap), DIST_ERR_RENDEZVOUS);
    assert_non_null(strstr(dist_last_error(), "no such file"));
    options.init_method = "file:///dev/null";
    assert_int_equal(disti_rendezvous(&options, 1000, &bootstrap), DIST_ERR_RENDEZVOUS);
}

/* The ranks share only the name of the job, as under mpirun. */
static void rank_by_job(int rank, void *arg)
{
    int *ranks = arg;

    set_int("OMPI_COMM_WORLD_RANK", rank);
    set_int("OMPI_COMM_WORLD_LOCAL_RANK", rank);
    set_int("OMPI_COMM_WORLD_SIZE", *ranks);
    set_int("OMPI_COMM_WORLD_LOCAL_SIZE", *ranks);
    if (rank == 0)
        disti_sleep_ns(100000000);
    for (int i = 0; i < 5; i++)
        meet(NULL, rank, *ranks);
}

static void test_ranks_meet_by_job_name(void **state)
{
    int counts[] = {2, 5, 8};

    (void)state;
    set_int("OMPI_MCA_ess_base_jobid", getpid());
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        ranks_run(counts[i], rank_by_job, &counts[i]);
}

/* Two jobs at the same time do not interfere. */
static void test_two_jobs_do_not_interfere(void **state)
{
    struct ranks first, second;
    int count = 3;

    (void)state;
    setenv("PMIX_NAMESPACE", "dist-test-first", 1);
    ranks_start(&first, count, rank_by_job, &count);
    setenv("PMIX_NAMESPACE", "dist-test-second", 1);
    ranks_start(&second, count, rank_by_job, &count);
    ranks_finish(&first);
    ranks_finish(&second);
    for (int r = 0; r < count; r++)
        assert_int_equal(first.codes[r] + second.codes[r], 0);
}

/* Without rank 0, another rank times out and names rank 0. */
static void test_a_missing_rank_0_is_named(void **state)
{
    struct disti_bootstrap bootstrap;
    int64_t begin = disti_now_ns();

    (void)state;
    LAUNCHED("OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=1",
             "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_NAMESPACE=dist-test-alone");
    assert_int_equal(disti_rendezvous(NULL, 300, &bootstrap), DIST_ERR_RENDEZVOUS);
    assert_non_null(strstr(dist_last_error(), "rank 1 waited 300 ms for rank 0"));
    assert_true(disti_now_ns() - begin < UNIT_SOON_NS);
}

/* An all-gather of the program: here with pipes through the parent process. */
struct oob {
    int ranks;
    int up[RANKS_MAX][2], down[RANKS_MAX][2];
    int rank;
    bool fails;
};

static int oob_gather(void *arg, const void *in, void *out, size_t bytes)
{
    struct oob *oob = arg;
    size_t got = 0;

    if (oob->fails)
        return 7;
    if (write(oob->up[oob->rank][1], in, bytes) != (ssize_t)bytes)
        return 1;
    while (got < bytes * (size_t)oob->ranks) {
        ssize_t n =
            read(oob->down[oob->rank][0], (char *)out + got, bytes * (size_t)oob->ranks - got);

        if (n <= 0)
            return 1;
        got += (size_t)n;
    }
    return 0;
}

/* Forwards the data of each rank to all ranks, in rank order. */
static void oob_exchange(struct oob *oob)
{
    char bytes[4096];

    for (int r = 0; r < oob->ranks; r++) {
        ssize_t n = read(oob->up[r][0], bytes, sizeof(bytes));

        assert_true(n > 0);
        for (int other = 0; other < oob->ranks; other++)
            assert_int_equal(write(oob->down[other][1], bytes, (size_t)n), n);
    }
}

static void rank_by_oob(int rank, void *arg)
{
    struct oob oob = *(struct oob *)arg;
    struct dist_options options = DIST_OPTIONS_INIT;

    oob.rank = rank;
    options.rank = rank;
    options.world_size = oob.ranks;
    options.oob_all_gather = oob_gather;
    options.oob_arg = &oob;
    meet(&options, rank, oob.ranks);
}

static void test_ranks_meet_by_the_programs_all_gather(void **state)
{
    struct oob oob = {.ranks = 4};
    struct ranks ranks;

    (void)state;
    for (int r = 0; r < oob.ranks; r++)
        assert_int_equal(pipe(oob.up[r]) + pipe(oob.down[r]), 0);
    ranks_start(&ranks, oob.ranks, rank_by_oob, &oob);
    oob_exchange(&oob);
    oob_exchange(&oob);
    ranks_finish(&ranks);
    for (int r = 0; r < oob.ranks; r++)
        assert_int_equal(ranks.codes[r], 0);
}

static void test_a_failed_all_gather_of_the_program_is_reported(void **state)
{
    struct oob oob = {.ranks = 2, .fails = true};
    struct dist_options options = DIST_OPTIONS_INIT;
    struct disti_bootstrap bootstrap;

    (void)state;
    options.oob_all_gather = oob_gather;
    options.oob_arg = &oob;
    assert_int_equal(disti_rendezvous(&options, 1000, &bootstrap), DIST_ERR_RENDEZVOUS);
    options.rank = 0;
    options.world_size = 2;
    assert_int_equal(disti_rendezvous(&options, 1000, &bootstrap), DIST_ERR_RENDEZVOUS);
    assert_non_null(strstr(dist_last_error(), "returned 7"));
}

static void test_a_world_of_one_needs_no_store(void **state)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    struct disti_bootstrap bootstrap;

    (void)state;
    assert_int_equal(disti_rendezvous(NULL, 1000, &bootstrap), DIST_OK);
    assert_int_equal(bootstrap.rank, 0);
    assert_int_equal(bootstrap.world_size, 1);
    assert_string_equal(bootstrap.launcher, "none");
    assert_null(bootstrap.store);
    disti_bootstrap_close(&bootstrap, 0);
    options.world_size = 1;
    options.init_method = "tcp://192.0.2.77:1";
    assert_int_equal(disti_rendezvous(&options, 1000, &bootstrap), DIST_OK);
    disti_bootstrap_close(&bootstrap, 0);
}

/* Missing variables are named immediately. */
static void expect_failure(const char *init_method, dist_status status, const char *const *parts)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    struct disti_bootstrap bootstrap;
    int64_t begin = disti_now_ns();

    options.init_method = init_method;
    assert_int_equal(disti_rendezvous(&options, WAIT_MS, &bootstrap), status);
    assert_true(ranks_say(parts));
    assert_true(disti_now_ns() - begin < UNIT_SOON_NS);
}
#define EXPECT_FAILURE(init_method, status, ...)                                                   \
    expect_failure(init_method, status, (const char *[]){__VA_ARGS__, NULL})

static void test_missing_variables_are_named(void **state)
{
    (void)state;
    EXPECT_FAILURE("env://", DIST_ERR_RENDEZVOUS, "RANK", "WORLD_SIZE");
    EXPECT_FAILURE("tcp://127.0.0.1:1", DIST_ERR_RENDEZVOUS, "RANK", "WORLD_SIZE");
    LAUNCHED("WORLD_SIZE=4");
    EXPECT_FAILURE(NULL, DIST_ERR_RENDEZVOUS, "set RANK", "0 to 3");
    LAUNCHED("RANK=1");
    EXPECT_FAILURE(NULL, DIST_ERR_RENDEZVOUS, "rank 1", "MASTER_ADDR", "MASTER_PORT", "29500");
    EXPECT_FAILURE("env://", DIST_ERR_RENDEZVOUS, "MASTER_ADDR");
    EXPECT_FAILURE("mpi://", DIST_ERR_RENDEZVOUS, "mpi://");
    unsetenv("WORLD_SIZE");
    EXPECT_FAILURE("env://", DIST_ERR_RENDEZVOUS, "rank 1", "WORLD_SIZE");
}

static void test_ranks_out_of_range_are_rejected(void **state)
{
    (void)state;
    LAUNCHED("RANK=4", "WORLD_SIZE=4", "MASTER_ADDR=127.0.0.1");
    EXPECT_FAILURE(NULL, DIST_ERR_INVALID_ARGUMENT, "rank 4 (environment)", "world size is 4",
                   "0 to 3");
    EXPECT_FAILURE("tcp://127.0.0.1:1?rank=9", DIST_ERR_INVALID_ARGUMENT,
                   "rank 9 (from the init method)");
    LAUNCHED("RANK=3", "LOCAL_RANK=4");
    EXPECT_FAILURE(NULL, DIST_ERR_INVALID_ARGUMENT, "local rank 4");
    LAUNCHED("RANK=-1");
    EXPECT_FAILURE(NULL, DIST_ERR_INVALID_ARGUMENT, "RANK");
}

static void test_a_port_in_use_is_reported(void **state)
{
    char port[16], url[64];
    int fd, number;

    (void)state;
    assert_int_equal(disti_listen("127.0.0.1", 0, 0, &fd, &number), DIST_OK);
    snprintf(port, sizeof(port), "%d", number);
    snprintf(url, sizeof(url), "tcp://127.0.0.1:%d?rank=0&world_size=2", number);
    EXPECT_FAILURE(url, DIST_ERR_ADDRESS_IN_USE, "127.0.0.1", port, "MASTER_PORT");
    close(fd);
}

static void test_addresses_of_other_hosts_are_reported(void **state)
{
    (void)state;
    EXPECT_FAILURE("tcp://192.0.2.77:29999?rank=0&world_size=2", DIST_ERR_RENDEZVOUS, "192.0.2.77",
                   "not an address of this machine");
    EXPECT_FAILURE("tcp://no-such-host.invalid:1?rank=0&world_size=2", DIST_ERR_RENDEZVOUS,
                   "no-such-host.invalid");
}

/* srun -m arbitrary without MASTER_ADDR: rank 1 is the first task of the first node, and holds the
 * store. */
static void rank_by_slurm(int rank, void *arg)
{
    struct disti_bootstrap bootstrap;

    (void)arg;
    set_int("SLURM_PROCID", rank);
    set_int("SLURM_NODEID", !rank);
    CHECK(disti_rendezvous(NULL, WAIT_MS, &bootstrap) == DIST_OK);
    CHECK((bootstrap.server != NULL) == (rank == 1));
    CHECK(disti_store_holder(bootstrap.store) == 1);
    CHECK(disti_store_all_gather(bootstrap.store, NULL, "ranks", NULL, NULL, 0, WAIT_MS) ==
          DIST_OK);
    disti_bootstrap_close(&bootstrap, WAIT_MS);
}

static void test_the_first_task_of_the_first_node_holds_the_store(void **state)
{
    (void)state;
    LAUNCHED("SLURM_JOB_ID=42", "SLURM_STEP_ID=0", "SLURM_NTASKS=2", "SLURM_LOCALID=0",
             "SLURM_STEP_TASKS_PER_NODE=1(x2)", "SLURM_STEP_NODELIST=127.0.0.1,127.0.0.2");
    set_int("MASTER_PORT", free_port());
    ranks_run(2, rank_by_slurm, NULL);
}

static void test_IPv4_mapped_addresses_are_accepted(void **state)
{
    static const char *const hosts[] = {"::ffff:127.0.0.1", "[::ffff:7f00:1]"};
    int ranks = 2;

    (void)state;
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        setenv("MASTER_ADDR", hosts[i], 1);
        set_int("MASTER_PORT", free_port());
        ranks_run(ranks, rank_by_env, &ranks);
    }
}

static void test_a_link_local_address_needs_a_zone(void **state)
{
    (void)state;
    EXPECT_FAILURE("tcp://[fe80::1]:29999?rank=0&world_size=2", DIST_ERR_RENDEZVOUS,
                   "fe80::1%eth0");
    EXPECT_FAILURE("tcp://[fe80::1]:29999?rank=1&world_size=2", DIST_ERR_RENDEZVOUS,
                   "fe80::1%eth0");
}

static char warned[1024];

static void keep_warning(void *arg, dist_log_level level, const char *line)
{
    (void)arg;
    if (level == DIST_LOG_WARN)
        snprintf(warned, sizeof(warned), "%s", line);
}

/* MASTER_ADDR=localhost in a job on two hosts: rank 1 warns before its timeout. */
static void test_localhost_on_two_hosts_causes_a_warning(void **state)
{
    struct disti_bootstrap bootstrap;
    struct disti_log log;

    (void)state;
    LAUNCHED("RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1",
             "MASTER_ADDR=localhost");
    set_int("MASTER_PORT", free_port());
    assert_int_equal(disti_log_init(&log, keep_warning, NULL), DIST_OK);
    disti_log_use(&log);
    assert_int_equal(disti_rendezvous(NULL, 300, &bootstrap), DIST_ERR_RENDEZVOUS);
    disti_log_use(NULL);
    assert_non_null(strstr(dist_last_error(), "that host is this machine itself"));
    assert_non_null(strstr(warned, "that host is this machine itself"));
    assert_non_null(strstr(warned, "gives up in"));
}

/* Rank 1 connects to the store but has no address to listen on: rank 0 is notified of the
 * reason. */
static void rank_without_interface(int rank, void *arg)
{
    const struct by_url *by = arg;
    struct dist_options options = DIST_OPTIONS_INIT;
    struct disti_bootstrap bootstrap;

    options.init_method = by->url;
    options.rank = rank;
    options.world_size = by->ranks;
    if (rank == 1) {
        setenv("DIST_SOCKET_IFNAME", "nosuch", 1);
        CHECK(disti_rendezvous(&options, WAIT_MS, &bootstrap) < 0);
        return;
    }
    CHECK(disti_rendezvous(&options, WAIT_MS, &bootstrap) == DIST_OK);
    CHECK(disti_store_all_gather(bootstrap.store, NULL, "ranks", NULL, NULL, 0, WAIT_MS) ==
          DIST_ERR_PEER_LOST);
    CHECK_SAYS("rank 1 ", "failed: ", "nosuch");
    disti_bootstrap_close(&bootstrap, WAIT_MS);
}

static void test_a_rank_without_an_interface_is_reported(void **state)
{
    struct by_url by = {.ranks = 2};

    (void)state;
    snprintf(by.url, sizeof(by.url), "tcp://127.0.0.1:%d", free_port());
    ranks_run(2, rank_without_interface, &by);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_ranks_meet_by_environment, clean),
        cmocka_unit_test_setup(test_ranks_meet_by_local_rank, clean),
        cmocka_unit_test_setup(test_ranks_meet_by_tcp, clean),
        cmocka_unit_test_setup(test_ranks_meet_by_tcp_over_IPv6, clean),
        cmocka_unit_test_setup(test_ranks_meet_by_tcp_with_parameters, clean),
        cmocka_unit_test_setup(test_ranks_meet_by_file, clean),
        cmocka_unit_test_setup(test_stale_files_are_replaced, clean),
        cmocka_unit_test_setup(test_bad_files_are_errors, clean),
        cmocka_unit_test_setup(test_ranks_meet_by_job_name, clean),
        cmocka_unit_test_setup(test_two_jobs_do_not_interfere, clean),
        cmocka_unit_test_setup(test_a_missing_rank_0_is_named, clean),
        cmocka_unit_test_setup(test_ranks_meet_by_the_programs_all_gather, clean),
        cmocka_unit_test_setup(test_a_failed_all_gather_of_the_program_is_reported, clean),
        cmocka_unit_test_setup(test_a_world_of_one_needs_no_store, clean),
        cmocka_unit_test_setup(test_missing_variables_are_named, clean),
        cmocka_unit_test_setup(test_ranks_out_of_range_are_rejected, clean),
        cmocka_unit_test_setup(test_a_port_in_use_is_reported, clean),
        cmocka_unit_test_setup(test_addresses_of_other_hosts_are_reported, clean),
        cmocka_unit_test_setup(test_a_rank_without_an_interface_is_reported, clean),
        cmocka_unit_test_setup(test_the_first_task_of_the_first_node_holds_the_store, clean),
        cmocka_unit_test_setup(test_IPv4_mapped_addresses_are_accepted, clean),
        cmocka_unit_test_setup(test_a_link_local_address_needs_a_zone, clean),
        cmocka_unit_test_setup(test_localhost_on_two_hosts_causes_a_warning, clean),
    };

    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
