/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints the failure block. */
#include "launch/run/failure.h"

#include "base/net/socket.h"
#include "launch/options/words.h"

#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char failure_border[] = "============================================================";
static const char failure_section[] =
    "------------------------------------------------------------";

int disti_run_exit_code(const struct disti_run_worker *worker)
{
    return WIFSIGNALED(worker->how) ? 128 + WTERMSIG(worker->how) : WEXITSTATUS(worker->how);
}

const struct disti_run_worker *disti_run_first_failure(struct disti_run_worker *const *ended,
                                                       int count)
{
    const struct disti_run_worker *first = NULL;

    for (int i = 0; i < count; i++) {
        if (disti_run_worker_has_failed(ended[i]) &&
            (!first || (WIFSIGNALED(ended[i]->how) && !WIFSIGNALED(first->how))))
            first = ended[i];
    }
    return first;
}

/* The error file's path, if the worker has written there; torch does if its main is recorded. */
static const char *failure_file(const struct disti_run_worker *worker)
{
    if (worker->error_fd >= 0 || access(worker->error_file, R_OK) != 0)
        return "<N/A>";
    return worker->error_file;
}

static void failure_print_one(int index, const struct disti_run_round *round,
                              const struct disti_run_worker *worker, FILE *to)
{
    const time_t second = (time_t)(worker->ended_at / 1000);
    const bool signalled = WIFSIGNALED(worker->how);
    char when[32] = "", host[64], name[16] = "";
    struct tm parts;

    if (localtime_r(&second, &parts))
        strftime(when, sizeof(when), "%Y-%m-%d_%H:%M:%S", &parts);
    disti_host_name(host);
    if (signalled)
        disti_run_signal_name(WTERMSIG(worker->how), name);
    fprintf(to,
            "[%d]:\n  time      : %s\n  host      : %s\n  rank      : %d (local_rank: %d)\n"
            "  exitcode  : %d (pid: %d)\n  error_file: %s\n",
            index, when, host, round->first_rank + worker->local_rank, worker->local_rank,
            signalled ? -WTERMSIG(worker->how) : WEXITSTATUS(worker->how), (int)worker->pid,
            failure_file(worker));
    if (signalled)
        fprintf(to, "  traceback : Signal %d (%s) received by PID %d\n", WTERMSIG(worker->how),
                name, (int)worker->pid);
    else
        fprintf(to, "  traceback : To enable traceback see: "
                    "https://pytorch.org/docs/stable/elastic/errors.html\n");
}

void disti_run_failure_print(const char *program, const struct disti_run_round *round,
                             const struct disti_run_worker *workers,
                             const struct disti_run_worker *first, FILE *to)
{
    int others = 0;

    fprintf(to, "%s\n%s FAILED\n%s\nFailures:\n", failure_border, program, failure_section);
    for (int w = 0; w < round->workers; w++) {
        const struct disti_run_worker *worker = &workers[w];

        if (worker != first && disti_run_worker_has_failed(worker) && !worker->was_told)
            failure_print_one(++others, round, worker, to);
    }
    if (others == 0)
        fprintf(to, "  <NO_OTHER_FAILURES>\n");
    fprintf(to, "%s\nRoot Cause (first observed failure):\n", failure_section);
    failure_print_one(0, round, first, to);
    fprintf(to, "%s\n", failure_border);
    fflush(to);
}
