/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs the battery: each case with new ranks and a time limit. */
#include "transport_battery.h"

#include "base/clock.h"
#include "transport_battery_rank.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define BATTERY_CASE_MS 300000
#define BATTERY_RANKS 4
#define BATTERY_BRIEF_RANKS 3

/* A running case. */
struct battery_run {
    const struct battery_case *the_case;
    struct battery_rank ranks[TRANSPORT_BATTERY_RANKS_MAX];
    pid_t pids[TRANSPORT_BATTERY_RANKS_MAX];
    pthread_t threads[TRANSPORT_BATTERY_RANKS_MAX];
    int count;
};

static bool battery_run_rank(const struct battery_case *the_case, struct battery_rank *rank)
{
    bool ok = !the_case->opened || battery_open(rank);

    ok = ok && the_case->run(rank);
    ok = ok && (!the_case->opened || battery_meet(rank));
    if (!ok)
        atomic_fetch_add(&rank->shared->failures, 1);
    /* Unfinished requests point to memory of the case, which has been freed, so the state is not
     * closed. */
    else if (the_case->opened)
        battery_close(rank);
    return ok;
}

static void *battery_thread(void *argument)
{
    struct battery_rank *rank = argument;
    const struct battery_run *run =
        (const void *)((char *)(rank - rank->rank) - offsetof(struct battery_run, ranks));

    battery_run_rank(run->the_case, rank);
    return NULL;
}

/* Waits in threads have time limits, so that all threads end. */
static void battery_run_threads(struct battery_run *run)
{
    for (int i = 0; i < run->count; i++) {
        if (pthread_create(&run->threads[i], NULL, battery_thread, &run->ranks[i]) != 0)
            abort();
    }
    for (int i = 0; i < run->count; i++)
        pthread_join(run->threads[i], NULL);
}

/* True if the rank ended as the case requires. */
static bool battery_has_succeeded(const struct battery_run *run, int rank, int status)
{
    if (rank < run->the_case->killed)
        return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Waits for all ranks, and kills the remaining ones after the time limit. False: a rank failed or
 * was killed. */
static bool battery_wait_processes(struct battery_run *run)
{
    int64_t deadline = disti_deadline_ms(BATTERY_CASE_MS);
    bool ok = true, late = false;
    int left = run->count;

    while (left > 0) {
        for (int i = 0; i < run->count; i++) {
            int status;

            if (run->pids[i] <= 0 || waitpid(run->pids[i], &status, WNOHANG) != run->pids[i])
                continue;
            if (!battery_has_succeeded(run, i, status)) {
                fprintf(stderr, "    rank %d failed (status 0x%x)\n", i, status);
                ok = false;
            }
            run->pids[i] = 0;
            left--;
        }
        if (left && !late && disti_expired(deadline)) {
            late = true;
            for (int i = 0; i < run->count; i++) {
                if (run->pids[i] > 0)
                    kill(run->pids[i], SIGKILL);
            }
        }
        if (left)
            disti_sleep_ns(1000 * 1000);
    }
    return ok && !late;
}

/* Resets signal handlers that the child has inherited from the test program. */
static void battery_default_signals(void)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS};

    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        signal(signals[i], SIG_DFL);
}

static bool battery_run_processes(struct battery_run *run)
{
    fflush(NULL);
    for (int i = 0; i < run->count; i++) {
        run->pids[i] = fork();
        if (run->pids[i] < 0)
            abort();
        if (run->pids[i] == 0) {
            battery_default_signals();
            _exit(battery_run_rank(run->the_case, &run->ranks[i]) ? 0 : 1);
        }
    }
    return battery_wait_processes(run);
}

static bool is_brief(const struct transport_battery_options *options)
{
    return options->brief && !getenv("CHECK_LONG");
}

bool battery_brief(const struct battery_rank *rank)
{
    return is_brief(rank->options);
}

static int ranks_of(const struct battery_case *the_case,
                    const struct transport_battery_options *options)
{
    if (the_case->ranks)
        return the_case->ranks;
    if (options->ranks)
        return options->ranks;
    return is_brief(options) ? BATTERY_BRIEF_RANKS : BATTERY_RANKS;
}

static bool battery_run_case(const struct dist_transport *transport,
                             const struct transport_battery_options *options,
                             const struct battery_case *the_case)
{
    struct battery_shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct battery_run run = {.the_case = the_case};
    bool ok = true;

    if (shared == MAP_FAILED)
        abort();
    run.count = ranks_of(the_case, options);
    for (int i = 0; i < run.count; i++)
        run.ranks[i] = (struct battery_rank){.transport = transport,
                                             .options = options,
                                             .shared = shared,
                                             .rank = i,
                                             .ranks = run.count,
                                             .lost = -1};
    if (options->threads)
        battery_run_threads(&run);
    else
        ok = battery_run_processes(&run);
    ok = ok && atomic_load(&shared->failures) == 0;
    munmap(shared, sizeof(*shared));
    return ok;
}

static int battery_run_cases(const struct dist_transport *transport,
                             const struct transport_battery_options *options,
                             const struct battery_case *cases)
{
    int failed = 0;

    for (; cases->name; cases++) {
        int64_t start = disti_now_ns();
        bool ok;

        if ((options->only && strcmp(options->only, cases->name) != 0) ||
            (options->threads && cases->processes))
            continue;
        ok = battery_run_case(transport, options, cases);
        fprintf(stderr, "  %s %s %s: %s (%lld ms)\n", transport->name,
                options->threads ? "threads" : "processes", cases->name, ok ? "pass" : "FAIL",
                (long long)((disti_now_ns() - start) / 1000000));
        failed += !ok;
    }
    return failed;
}

int transport_battery_run(const struct dist_transport *transport,
                          const struct transport_battery_options *options)
{
    return battery_run_cases(transport, options, battery_data_cases) +
           battery_run_cases(transport, options, battery_ahead_cases) +
           battery_run_cases(transport, options, battery_reduce_cases) +
           battery_run_cases(transport, options, battery_probe_cases) +
           battery_run_cases(transport, options, battery_cancel_cases) +
           battery_run_cases(transport, options, battery_fault_cases);
}
