/* SPDX-License-Identifier: BSD-3-Clause */
/* Detection of the launcher from environment variables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <sys/socket.h>

#include "base/descriptor.h"
#include "base/log.h"
#include "launchers.h"
#include "rendezvous/meet.h"
#include "rendezvous/rendezvous.h"
#include "store/store.h"

static char warnings[2000];

static void keep_warning(void *arg, dist_log_level level, const char *line)
{
    (void)arg;
    if (level == DIST_LOG_WARN && strlen(warnings) + strlen(line) < sizeof(warnings))
        strcat(warnings, line);
}

static int clean(void **state)
{
    (void)state;
    launchers_clear();
    warnings[0] = 0;
    return 0;
}

static struct disti_launch detect(void)
{
    struct disti_log log = {.fn = keep_warning, .level = DIST_LOG_WARN, .rank = -1};
    struct disti_launch launch;

    warnings[0] = 0;
    disti_log_use(&log);
    assert_int_equal(disti_launch_detect(&launch), DIST_OK);
    disti_log_use(NULL);
    return launch;
}

static void expect(const struct disti_launch *launch, const char *launcher, int rank,
                   int world_size, int local_rank, int local_world_size)
{
    assert_string_equal(launch->launcher, launcher);
    assert_int_equal(launch->rank, rank);
    assert_int_equal(launch->world_size, world_size);
    assert_int_equal(launch->local_rank, local_rank);
    assert_int_equal(launch->local_world_size, local_world_size);
}

static void test_without_variables_there_is_no_launcher(void **state)
{
    struct disti_launch launch = detect();

    (void)state;
    expect(&launch, "none", -1, -1, -1, -1);
    assert_string_equal(launch.host, "");
    assert_string_equal(launch.job, "");
    assert_int_equal(launch.port, DISTI_PORT_DEFAULT);
    assert_false(launch.agent_store);
}

static void set_torchrun(void)
{
    LAUNCHED("TORCHELASTIC_RUN_ID=none", "RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1",
             "LOCAL_WORLD_SIZE=4", "MASTER_ADDR=node1", "MASTER_PORT=1234");
}

static void test_torchrun_is_detected(void **state)
{
    struct disti_launch launch;

    (void)state;
    set_torchrun();
    launch = detect();
    expect(&launch, "torchrun", 5, 8, 1, 4);
    assert_string_equal(launch.host, "node1");
    assert_int_equal(launch.port, 1234);
    /* The agent uses the port itself. */
    LAUNCHED("TORCHELASTIC_USE_AGENT_STORE=True");
    launch = detect();
    assert_int_equal(launch.port, 1235);
    assert_false(launch.agent_store);
    LAUNCHED("MASTER_PORT=65535");
    assert_int_equal(detect().port, 65534);
    /* If the agent is distrun, the port is the store's. */
    LAUNCHED("MASTER_PORT=1234", "DIST_AGENT_STORE=1");
    launch = detect();
    assert_int_equal(launch.port, 1234);
    assert_true(launch.agent_store);
    assert_string_equal(launch.host, "node1");
}

/* The launcher's process is the nearest ancestor without its variable; for a shell no process is
 * looked for. */
static void test_the_process_of_a_launcher_is_found(void **state)
{
    char name[DISTI_PROCESS_NAME] = "";
    int pid = 0, fd = disti_launcher_process("DIST_TEST_NOBODY_HAS_IT", &pid, name);

    (void)state;
    if (getppid() > 1 && fd >= 0) { /* fails only on kernels before 5.3 */
        assert_int_equal(pid, getppid());
        assert_string_not_equal(name, "");
        disti_descriptor_close(fd);
    }
    set_torchrun();
    assert_string_equal(detect().mark, "TORCHELASTIC_RUN_ID");
    LAUNCHED("DIST_LAUNCHER_WATCH=0");
    assert_null(detect().mark);
    launchers_clear();
    LAUNCHED("RANK=0", "WORLD_SIZE=2");
    assert_null(detect().mark);
}

/* The launcher inside a worker of distrun is detected, not distrun around it. */
static void test_a_launcher_inside_distrun_is_detected(void **state)
{
    struct disti_launch launch;

    (void)state;
    set_torchrun();
    LAUNCHED("DIST_AGENT_STORE=127.0.0.1:4321", "DIST_AGENT_LAST_CALL=/proc/1/fd/9",
             "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2");
    launch = detect();
    expect(&launch, "Open MPI", 1, 2, -1, -1);
    assert_false(launch.agent_store);
    assert_true(launch.inside);
    assert_string_equal(warnings, "");
    launchers_clear();
    set_torchrun();
    assert_false(detect().inside);
    LAUNCHED("TORCHELASTIC_USE_AGENT_STORE=True", "DIST_AGENT_STORE=127.0.0.1:4321");
    assert_false(detect().agent_store);
}

/* distrun leaves MASTER_PORT to the program and sets the address of its own store. */
static void test_distruns_store_is_found(void **state)
{
    char path[] = "/tmp/dist-test-XXXXXX", variable[64];
    int fd = mkstemp(path);
    struct disti_launch launch;

    (void)state;
    set_torchrun();
    LAUNCHED("TORCHELASTIC_USE_AGENT_STORE=False", "DIST_AGENT_STORE=127.0.0.1:4321");
    launch = detect();
    assert_true(launch.agent_store);
    assert_string_equal(launch.host, "127.0.0.1");
    assert_int_equal(launch.port, 4321);
    assert_string_equal(launch.agent_secret, "");
    assert_int_equal(write(fd, "word\n", 5), 5);
    snprintf(variable, sizeof(variable), "DIST_AGENT_STORE_SECRET=%s", path);
    LAUNCHED(variable);
    assert_string_equal(detect().agent_secret, "word");
    unlink(path);
    close(fd);
    assert_int_equal(disti_launch_detect(&launch), DIST_ERR_RENDEZVOUS);
    LAUNCHED("DIST_AGENT_STORE=:1");
    assert_int_equal(disti_launch_detect(&launch), DIST_ERR_INVALID_ARGUMENT);
    LAUNCHED("DIST_AGENT_STORE=host:0");
    assert_int_equal(disti_launch_detect(&launch), DIST_ERR_INVALID_ARGUMENT);
}

/* The file with the secret is found by its inherited descriptor, or by its path if that leads to
 * it; the descriptor number and the path of another file are rejected. */
static void test_an_inherited_secret_is_read(void **state)
{
    int fd = disti_handed_secret("sealed word"), other = disti_handed_secret("another one");
    char name[DISTI_HANDED_TEXT], files[64], path[64], other_path[64];
    struct disti_launch launch;

    (void)state;
    set_torchrun();
    disti_handed_name(fd, name);
    snprintf(files, sizeof(files), "DIST_AGENT_FILES=%s", name);
    snprintf(path, sizeof(path), "DIST_AGENT_STORE_SECRET=/proc/self/fd/%d", fd);
    snprintf(other_path, sizeof(other_path), "DIST_AGENT_STORE_SECRET=/proc/self/fd/%d", other);
    LAUNCHED("DIST_AGENT_STORE=127.0.0.1:4321", files, "DIST_AGENT_STORE_SECRET=/nowhere");
    assert_string_equal(detect().agent_secret, "sealed word");
    assert_int_equal(pwrite(fd, "x", 1, 0), -1);
    /* The descriptor number now belongs to another file. */
    snprintf(files, sizeof(files), "DIST_AGENT_FILES=%d%s", other, strchr(name, ':'));
    LAUNCHED(files, path);
    assert_string_equal(detect().agent_secret, "sealed word");
    LAUNCHED(other_path);
    assert_int_equal(disti_launch_detect(&launch), DIST_ERR_RENDEZVOUS);
    assert_non_null(strstr(dist_last_error(), "is another file in this PID namespace"));
    close(fd);
    LAUNCHED(path);
    assert_int_equal(disti_launch_detect(&launch), DIST_ERR_RENDEZVOUS);
    assert_non_null(strstr(dist_last_error(), "has closed descriptor"));
    close(other);
}

/* distrun --role mindspore: workers are detected as usual; the process without a rank is the
 * scheduler, which holds the store. */
static void test_roles_of_distrun_are_detected(void **state)
{
    struct disti_launch launch;

    (void)state;
    set_torchrun();
    LAUNCHED("TORCHELASTIC_USE_AGENT_STORE=False", "DIST_AGENT_STORE=127.0.0.1:4321",
             "MS_ROLE=MS_WORKER", "MS_SCHED_HOST=127.0.0.1", "MS_SCHED_PORT=4320",
             "MS_CLUSTER_TIMEOUT=30");
    launch = detect();
    assert_string_equal(launch.launcher, "torchrun");
    assert_int_equal(launch.scheduler, DISTI_SCHEDULER_NONE);
    assert_int_equal(launch.port, 4321);
    assert_int_equal(launch.timeout_ms, 30000);
    LAUNCHED("MS_ROLE=MS_SCHED");
    assert_int_equal(detect().scheduler, DISTI_SCHEDULER_NONE);
    unsetenv("RANK");
    unsetenv("LOCAL_RANK");
    launch = detect();
    assert_int_equal(launch.scheduler, DISTI_SCHEDULER_SELF);
    assert_int_equal(launch.rank, -1);
    assert_true(launch.world_size > 0);
    assert_int_equal(launch.port, 4321);
    assert_string_equal(warnings, "");
}

static void test_Open_MPI_is_detected(void **state)
{
    struct disti_launch launch;

    (void)state;
    LAUNCHED("OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=3",
             "OMPI_COMM_WORLD_LOCAL_SIZE=4");
    launch = detect();
    expect(&launch, "Open MPI", 3, 4, 3, 4);
    assert_string_equal(launch.job, "");
    LAUNCHED("OMPI_MCA_ess_base_jobid=77", "OMPI_MCA_orte_precondition_transports=abc-def");
    assert_string_equal(detect().job, "ompi.77.abc-def");
    LAUNCHED("PMIX_NAMESPACE=88");
    assert_string_equal(detect().job, "ompi.88.abc-def");
}

/* PMIx is detected if the server's address is set too, unless DIST_PMIX disables it. */
static void test_PMIx_is_detected(void **state)
{
    struct disti_launch launch;

    (void)state;
    LAUNCHED("PMIX_RANK=2", "PMIX_NAMESPACE=space");
    assert_string_equal(detect().launcher, "none");
    LAUNCHED("PMIX_SERVER_URI41=space.0;tcp4://127.0.0.1:1");
    launch = detect();
    expect(&launch, "PMIx", 2, -1, -1, -1);
    assert_string_equal(launch.job, "pmix.space");
    assert_true(launch.pmix);
    assert_false(launch.pmix_always);
    LAUNCHED("DIST_PMIX=1");
    assert_true(detect().pmix_always);
    LAUNCHED("DIST_PMIX=0");
    assert_string_equal(detect().launcher, "none");
    LAUNCHED("DIST_PMIX=2");
    assert_int_equal(disti_launch_detect(&launch), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "DIST_PMIX"));
}

/* PMIx is not used for the ranks of another launcher, as with torchrun inside mpirun. */
static void test_PMIx_of_another_launcher_is_ignored(void **state)
{
    (void)state;
    LAUNCHED("PMIX_RANK=1", "PMIX_NAMESPACE=space", "PMIX_SERVER_URI3=space.0;tcp4://127.0.0.1:1",
             "RANK=1", "WORLD_SIZE=2");
    assert_string_equal(detect().launcher, "PMIx");
    LAUNCHED("SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_NODEID=1",
             "SLURM_STEP_TASKS_PER_NODE=1(x2)", "SLURM_STEP_NODELIST=n[1-2]");
    assert_true(detect().pmix && detect().guessed);
    LAUNCHED("MASTER_ADDR=n1");
    assert_false(detect().guessed);
    LAUNCHED("OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2");
    assert_true(detect().pmix);
    assert_string_equal(warnings, "");
    LAUNCHED("TORCHELASTIC_RUN_ID=x");
    assert_false(detect().pmix);
}

static void test_MPICH_is_detected(void **state)
{
    struct disti_launch launch;
    char fd[32], job[32];
    int pair[2];

    (void)state;
    LAUNCHED("PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2");
    launch = detect();
    expect(&launch, "MPICH", 1, 2, 1, 2);
    assert_string_equal(launch.job, "");
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    snprintf(fd, sizeof(fd), "%d", pair[0]);
    setenv("PMI_FD", fd, 1);
    snprintf(job, sizeof(job), "mpich.%d", (int)getpid());
    assert_string_equal(detect().job, job);
    close(pair[0]);
    close(pair[1]);
    assert_string_equal(detect().job, "");
}

static void test_srun_is_detected(void **state)
{
    struct disti_launch launch;

    (void)state;
    /* A batch script has these variables too, but is no task. */
    LAUNCHED("SLURM_JOB_ID=42", "SLURM_PROCID=0", "SLURM_NTASKS=7", "SLURM_LOCALID=0");
    expect((launch = detect(), &launch), "none", -1, -1, -1, -1);
    LAUNCHED("SLURM_STEP_ID=4294967290");
    expect((launch = detect(), &launch), "none", -1, -1, -1, -1);
    LAUNCHED("SLURM_STEP_ID=0", "SLURM_PROCID=6", "SLURM_NODEID=3",
             "SLURM_STEP_TASKS_PER_NODE=2(x3),1", "SLURM_STEP_NODELIST=n[01-03,7]");
    launch = detect();
    expect(&launch, "srun", 6, 7, 0, 1);
    assert_string_equal(launch.job, "slurm.42.0");
    assert_string_equal(launch.host, "n01");
    assert_in_range(launch.port, 20000, 29499);
    LAUNCHED("MASTER_PORT=30000");
    assert_int_equal(detect().port, 30000);
    LAUNCHED("MASTER_ADDR=m1");
    assert_string_equal(detect().host, "m1");
}

/* srun -m arbitrary: rank 0 may run on any node; the first task of node 0 holds the store. */
static void test_srun_with_arbitrary_distribution_is_detected(void **state)
{
    (void)state;
    LAUNCHED("SLURM_JOB_ID=42", "SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_NTASKS=4",
             "SLURM_LOCALID=0", "SLURM_NODEID=2", "SLURM_STEP_TASKS_PER_NODE=1(x2),2",
             "SLURM_STEP_NODELIST=n[1-3]");
    assert_false(detect().serves);
    assert_string_equal(detect().host, "n1");
    LAUNCHED("SLURM_PROCID=1", "SLURM_NODEID=0");
    assert_true(detect().serves);
    LAUNCHED("SLURM_PROCID=2", "SLURM_LOCALID=1");
    assert_false(detect().serves);
}

static void test_srun_on_one_node_is_detected(void **state)
{
    struct disti_launch launch;

    (void)state;
    LAUNCHED("SLURM_JOB_ID=42", "SLURM_STEP_ID=1", "SLURM_PROCID=1", "SLURM_NTASKS=2",
             "SLURM_LOCALID=1", "SLURM_NODEID=0", "SLURM_STEP_TASKS_PER_NODE=2",
             "SLURM_STEP_NODELIST=n1");
    launch = detect();
    expect(&launch, "srun", 1, 2, 1, 2);
    assert_string_equal(launch.host, "");
    LAUNCHED("SLURM_STEP_TASKS_PER_NODE=2(");
    assert_int_equal(disti_launch_detect(&launch), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "SLURM_STEP_TASKS_PER_NODE"));
}

static void test_plain_variables_are_detected(void **state)
{
    struct disti_launch launch;

    (void)state;
    LAUNCHED("RANK=1", "WORLD_SIZE=2");
    expect((launch = detect(), &launch), "environment", 1, 2, -1, -1);
    assert_string_equal(launch.host, "");
    LAUNCHED("LOCAL_RANK=0");
    expect((launch = detect(), &launch), "environment", 1, 2, 0, -1);
    /* A shell loop that sets only LOCAL_RANK. */
    unsetenv("RANK");
    expect((launch = detect(), &launch), "environment", 0, 2, 0, 2);
    assert_string_equal(launch.host, "127.0.0.1");
    LAUNCHED("LOCAL_WORLD_SIZE=1");
    expect((launch = detect(), &launch), "environment", -1, 2, 0, 1);
    launchers_clear();
    LAUNCHED("WORLD_SIZE=1");
    expect((launch = detect(), &launch), "environment", 0, 1, -1, -1);
    LAUNCHED("WORLD_SIZE=3");
    expect((launch = detect(), &launch), "environment", -1, 3, -1, -1);
    launchers_clear();
    LAUNCHED("RANK=2");
    expect((launch = detect(), &launch), "environment", 2, -1, -1, -1);
}

static void test_MindSpore_is_detected(void **state)
{
    struct disti_launch launch;

    (void)state;
    LAUNCHED("MS_WORKER_NUM=8", "MS_NODE_ID=2", "MS_ROLE=MS_WORKER", "MS_SCHED_HOST=10.0.0.1",
             "MS_SCHED_PORT=8118");
    launch = detect();
    expect(&launch, "MindSpore", 2, 8, -1, -1);
    assert_string_equal(launch.host, "10.0.0.1");
    assert_int_equal(launch.port, 8119);
    assert_int_equal(launch.scheduler, DISTI_SCHEDULER_EXPECTED);
    assert_int_equal(launch.timeout_ms, -1);
    LAUNCHED("MS_ROLE=MS_SCHED", "MS_CLUSTER_TIMEOUT=30");
    launch = detect();
    expect(&launch, "MindSpore", -1, 8, -1, -1);
    assert_int_equal(launch.scheduler, DISTI_SCHEDULER_SELF);
    assert_int_equal(launch.timeout_ms, 30000);
    LAUNCHED("MS_ROLE=MS_PSERVER");
    assert_int_equal(disti_launch_detect(&launch), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "MS_ROLE"));
    launchers_clear();
    LAUNCHED("MS_ROLE=MS_WORKER");
    assert_int_equal(disti_launch_detect(&launch), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "MS_WORKER_NUM"));
}

/* srun --mpi=pmi2, and MPICH's mpirun inside a step. */
static void test_PMI_inside_Slurm_is_detected(void **state)
{
    struct disti_launch launch;

    (void)state;
    LAUNCHED("SLURM_JOB_ID=42", "SLURM_STEP_ID=1", "SLURM_PROCID=1", "SLURM_NTASKS=2",
             "SLURM_LOCALID=0", "SLURM_NODEID=1", "SLURM_STEP_TASKS_PER_NODE=1(x2)",
             "SLURM_STEP_NODELIST=n[1-2]", "PMI_RANK=1", "PMI_SIZE=2", "PMI_JOBID=42.1");
    launch = detect();
    expect(&launch, "srun", 1, 2, 0, 1);
    assert_string_equal(launch.host, "n1");
    LAUNCHED("MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2");
    launch = detect();
    expect(&launch, "MPICH", 1, 2, 1, 2);
}

static void test_launchers_have_a_precedence(void **state)
{
    (void)state;
    LAUNCHED("MS_WORKER_NUM=2", "MS_NODE_ID=0");
    assert_string_equal(detect().launcher, "MindSpore");
    LAUNCHED("RANK=1", "WORLD_SIZE=3");
    assert_string_equal(detect().launcher, "environment");
    LAUNCHED("SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_NTASKS=4");
    assert_string_equal(detect().launcher, "srun");
    LAUNCHED("PMI_RANK=0", "PMI_SIZE=5");
    assert_string_equal(detect().launcher, "MPICH");
    LAUNCHED("OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=6");
    assert_string_equal(detect().launcher, "Open MPI");
    LAUNCHED("TORCHELASTIC_RUN_ID=x");
    assert_string_equal(detect().launcher, "torchrun");
}

static void test_inconsistent_variables_cause_a_warning(void **state)
{
    (void)state;
    LAUNCHED("OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2");
    assert_int_equal(detect().rank, 1);
    assert_string_equal(warnings, "");
    LAUNCHED("RANK=1", "WORLD_SIZE=2");
    detect();
    assert_string_equal(warnings, "");
    LAUNCHED("RANK=0");
    assert_int_equal(detect().rank, 1);
    assert_non_null(strstr(warnings, "OMPI_COMM_WORLD_RANK=1"));
    assert_non_null(strstr(warnings, "RANK=0"));
    assert_null(strstr(warnings, "WORLD_SIZE=2"));
    /* mpirun inside a Slurm step is no inconsistency. */
    LAUNCHED("RANK=1", "SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_NTASKS=1");
    detect();
    assert_string_equal(warnings, "");
}

/* For each variable of each launcher and each kind of invalid value, the error names the
 * variable. */
static void test_invalid_numbers_are_named(void **state)
{
    static const struct {
        const char *mark, *numbers[5];
    } launchers[] = {
        {"TORCHELASTIC_RUN_ID=x", {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}},
        {"OMPI_COMM_WORLD_RANK=0",
         {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
          "OMPI_COMM_WORLD_LOCAL_SIZE"}},
        {"PMI_RANK=0", {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_FD"}},
        {"SLURM_STEP_ID=0", {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NODEID"}},
        {"WORLD_SIZE=2", {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT"}},
        {"MS_WORKER_NUM=2", {"MS_NODE_ID", "MS_WORKER_NUM", "MS_SCHED_PORT"}},
    };
    static const char *const nonsense[] = {"abc", "-1", "1x", " 1", "99999999999", "0x1", "1.0"};
    struct disti_launch launch, before;

    (void)state;
    memset(&launch, 7, sizeof(launch));
    before = launch;
    for (size_t l = 0; l < sizeof(launchers) / sizeof(launchers[0]); l++) {
        for (size_t i = 0; i < 5 && launchers[l].numbers[i]; i++) {
            for (size_t n = 0; n < sizeof(nonsense) / sizeof(nonsense[0]); n++) {
                launchers_clear();
                LAUNCHED(launchers[l].mark, "SLURM_PROCID=0", "SLURM_NTASKS=1");
                setenv(launchers[l].numbers[i], nonsense[n], 1);
                if (disti_launch_detect(&launch) != DIST_ERR_INVALID_ARGUMENT)
                    fail_msg("%s=%s was accepted", launchers[l].numbers[i], nonsense[n]);
                assert_non_null(strstr(dist_last_error(), launchers[l].numbers[i]));
                assert_memory_equal(&launch, &before, sizeof(launch));
            }
        }
    }
}

static void test_zero_is_no_world_size_and_no_port(void **state)
{
    struct disti_launch launch;

    (void)state;
    LAUNCHED("RANK=0", "WORLD_SIZE=0");
    assert_int_equal(disti_launch_detect(&launch), DIST_ERR_INVALID_ARGUMENT);
    LAUNCHED("WORLD_SIZE=1", "MASTER_PORT=0");
    assert_int_equal(disti_launch_detect(&launch), DIST_ERR_INVALID_ARGUMENT);
    LAUNCHED("MASTER_PORT=65536");
    assert_int_equal(disti_launch_detect(&launch), DIST_ERR_INVALID_ARGUMENT);
}

static bool needs_mpi(const char *init_method)
{
    struct dist_options options = DIST_OPTIONS_INIT;

    options.init_method = init_method;
    return disti_rendezvous_needs_mpi(&options);
}

static void test_jobs_that_need_MPI_are_detected(void **state)
{
    (void)state;
    assert_false(disti_rendezvous_needs_mpi(NULL));
    assert_true(needs_mpi("mpi://"));
    LAUNCHED("OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=0",
             "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_NAMESPACE=1");
    assert_true(needs_mpi(NULL));
    assert_false(needs_mpi("env://"));
    LAUNCHED("OMPI_COMM_WORLD_LOCAL_SIZE=4");
    assert_false(needs_mpi(NULL));
    unsetenv("PMIX_NAMESPACE");
    assert_true(needs_mpi(NULL));
    LAUNCHED("MASTER_ADDR=n1");
    assert_false(needs_mpi(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_without_variables_there_is_no_launcher, clean),
        cmocka_unit_test_setup(test_torchrun_is_detected, clean),
        cmocka_unit_test_setup(test_the_process_of_a_launcher_is_found, clean),
        cmocka_unit_test_setup(test_a_launcher_inside_distrun_is_detected, clean),
        cmocka_unit_test_setup(test_distruns_store_is_found, clean),
        cmocka_unit_test_setup(test_an_inherited_secret_is_read, clean),
        cmocka_unit_test_setup(test_roles_of_distrun_are_detected, clean),
        cmocka_unit_test_setup(test_Open_MPI_is_detected, clean),
        cmocka_unit_test_setup(test_PMIx_is_detected, clean),
        cmocka_unit_test_setup(test_PMIx_of_another_launcher_is_ignored, clean),
        cmocka_unit_test_setup(test_MPICH_is_detected, clean),
        cmocka_unit_test_setup(test_srun_with_arbitrary_distribution_is_detected, clean),
        cmocka_unit_test_setup(test_srun_is_detected, clean),
        cmocka_unit_test_setup(test_srun_on_one_node_is_detected, clean),
        cmocka_unit_test_setup(test_plain_variables_are_detected, clean),
        cmocka_unit_test_setup(test_MindSpore_is_detected, clean),
        cmocka_unit_test_setup(test_PMI_inside_Slurm_is_detected, clean),
        cmocka_unit_test_setup(test_launchers_have_a_precedence, clean),
        cmocka_unit_test_setup(test_inconsistent_variables_cause_a_warning, clean),
        cmocka_unit_test_setup(test_invalid_numbers_are_named, clean),
        cmocka_unit_test_setup(test_zero_is_no_world_size_and_no_port, clean),
        cmocka_unit_test_setup(test_jobs_that_need_MPI_are_detected, clean),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
