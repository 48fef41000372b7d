/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs the battery on transport shm, with and without CMA, with processes and with threads. */
#include "transport_battery.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#include <cmocka.h>

#include "transports/shm/shm.h"

/* Sizes of the first line of a frame, a message in one frame, a message read by CMA, a piece, the
 * ring, and the data of one progress call. */
static const size_t boundaries[] = {24,    64,    4032,   8192,   16320,   16384,
                                    65472, 65536, 131072, 262144, 1048576, 0};

static int run(const char *cma, struct transport_battery_options options)
{
    options.boundaries = boundaries;
    options.kept = (size_t)8 << 20; /* 1 MiB of messages and control frames */
    options.only = getenv("DIST_TEST_ONLY");
    setenv("DIST_SHM_CMA", cma, 1);
    return transport_battery_run(&disti_transport_shm, &options);
}

/* Every FAULT_EVERY-th read of a peer's memory fails with fault_errno; 0: no read fails. */
#define FAULT_EVERY 2
static int fault_errno, fault_reads;

/* Replaces the function of libc. Reads of up to 8 bytes never fail: with them, shm tests whether
 * CMA works. */
ssize_t process_vm_readv(pid_t pid, const struct iovec *here, unsigned long here_count,
                         const struct iovec *there, unsigned long there_count, unsigned long flags)
{
    if (fault_errno && pid != getpid() && there->iov_len > sizeof(uint64_t) &&
        ++fault_reads % FAULT_EVERY == 0) {
        errno = fault_errno;
        return -1;
    }
    return syscall(SYS_process_vm_readv, pid, here, here_count, there, there_count, flags);
}

static void test_battery_with_processes_and_cma(void **state)
{
    (void)state;
    assert_int_equal(run("1", (struct transport_battery_options){.ranks = 4}), 0);
}

static void test_battery_with_processes_without_cma(void **state)
{
    (void)state;
    assert_int_equal(run("0", (struct transport_battery_options){.ranks = 4}), 0);
}

/* Reads fail as for memory of a device, in the cases in which the pieces of one message use
 * different methods. */
static void test_battery_with_failing_cma(void **state)
{
    static const char *const cases[] = {"reduce", "early", "cancel_halfway"};
    struct transport_battery_options options = {.ranks = 3, .brief = true};

    (void)state;
    setenv("DIST_SHM_CMA", "1", 1);
    fault_errno = EFAULT;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        options.only = cases[i];
        assert_int_equal(transport_battery_run(&disti_transport_shm, &options), 0);
    }
    fault_errno = 0;
}

static void test_battery_with_threads_and_cma(void **state)
{
    (void)state;
    assert_int_equal(
        run("1", (struct transport_battery_options){.ranks = 3, .threads = true, .brief = true}),
        0);
}

static void test_battery_with_threads_without_cma(void **state)
{
    (void)state;
    assert_int_equal(
        run("0", (struct transport_battery_options){.ranks = 3, .threads = true, .brief = true}),
        0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_battery_with_processes_and_cma),
        cmocka_unit_test(test_battery_with_processes_without_cma),
        cmocka_unit_test(test_battery_with_failing_cma),
        cmocka_unit_test(test_battery_with_threads_and_cma),
        cmocka_unit_test(test_battery_with_threads_without_cma),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
