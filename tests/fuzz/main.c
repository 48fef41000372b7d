/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One program for all targets, with libFuzzer's interface: --target=NAME selects one, --list lists
 * them.
 */
#include "tests/fuzz/fuzz.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAIN_MOST_NS 1000000000 /* CPU time of this process for one input */

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct {
    const char *name;
    fuzz_target *run;
} main_targets[] = {
    {"agents_client", fuzz_agents_client},
    {"agents_server", fuzz_agents_server},
    {"baseline", fuzz_baseline},
    {"checkpoint", fuzz_checkpoint},
    {"cifar10", fuzz_cifar10},
    {"command", fuzz_command},
    {"hostfile", fuzz_hostfile},
    {"idx", fuzz_idx},
    {"launch", fuzz_launch},
    {"module", fuzz_module},
    {"secret", fuzz_secret},
    {"settings", fuzz_settings},
    {"shm", fuzz_shm},
    {"store_client", fuzz_store_client},
    {"store_server", fuzz_store_server},
    {"tcp", fuzz_tcp},
    {"tuning", fuzz_tuning},
    {"url", fuzz_url},
};
#define MAIN_TARGETS (sizeof(main_targets) / sizeof(main_targets[0]))

static fuzz_target *main_run;

_Noreturn void fuzz_fail(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: the condition is false: %s\n", file, line, what);
    abort();
}

static void main_list(void)
{
    for (size_t i = 0; i < MAIN_TARGETS; i++)
        puts(main_targets[i].name);
    exit(0);
}

/* libFuzzer ignores options with two dashes. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const char option[] = "--target=";

    signal(SIGPIPE, SIG_IGN);
    for (int a = 1; a < *argc; a++) {
        if (strcmp((*argv)[a], "--list") == 0)
            main_list();
        for (size_t i = 0; i < MAIN_TARGETS; i++) {
            if (strncmp((*argv)[a], option, sizeof(option) - 1) == 0 &&
                strcmp((*argv)[a] + sizeof(option) - 1, main_targets[i].name) == 0)
                main_run = main_targets[i].run;
        }
    }
    if (main_run)
        return 0;
    fprintf(stderr, "missing --target=NAME (--list prints the names)\n");
    exit(2);
}

/* Returns this process's CPU time. Elapsed time would depend on what other processes do. */
static int64_t main_cpu_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    int64_t begin = main_cpu_ns();

    main_run(&input);
    FUZZ_MUST(main_cpu_ns() - begin < MAIN_MOST_NS);
    return 0;
}
