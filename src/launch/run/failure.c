/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints the failure block. */
#include "launch/run/failure.h"

#include "base/net.h"
#include "base/process.h"
#include "launch/options/words.h"
#include "launch/run/error_file.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char failure_border[] = "============================================================";
static const char failure_section[] =
    "------------------------------------------------------------";

void disti_run_failure_of(const struct disti_run_round *round,
                          const struct disti_run_worker *worker, int last_calls_fd,
                          struct disti_agents_failure *failure_p)
{
    const bool signalled = WIFSIGNALED(worker->how);

    *failure_p = (struct disti_agents_failure){
        .cause = DISTI_AGENTS_WORKER_FAILED,
        .node_rank = round->node_rank,
        .rank = worker->local_rank < 0 ? -1 : round->first_rank + worker->local_rank,
        .local_rank = worker->local_rank,
        .pid = (int)worker->pid,
        .exit_code = signalled ? 0 : WEXITSTATUS(worker->how),
        .signal = signalled ? WTERMSIG(worker->how) : 0,
        .time_ms = worker->ended_at,
        .is_consequence = worker->has_lost,
        .is_out_of_memory = worker->is_out_of_memory,
    };
    disti_host_name(failure_p->host);
    disti_last_call_text(last_calls_fd, worker->local_rank, failure_p->text,
                         sizeof(failure_p->text));
}

int disti_run_exit_code(const struct disti_agents_failure *failure)
{
    return failure->signal ? 128 + failure->signal : failure->exit_code;
}

/* The more, the likelier it is the cause of the others. */
static int failure_weight(const struct disti_run_worker *worker)
{
    return 4 * !worker->has_lost + 2 * WIFSIGNALED(worker->how) + (worker->local_rank >= 0);
}

const struct disti_run_worker *disti_run_first_failure(const struct disti_run_worker *first,
                                                       const struct disti_run_worker *next)
{
    if (!disti_run_worker_has_failed(next))
        return first;
    return !first || failure_weight(next) > failure_weight(first) ? next : first;
}

/* The error file's path, if the worker has written there; torch does if its main is recorded. */
static const char *failure_file(const struct disti_run_worker *worker)
{
    if (!worker || worker->error_fd >= 0 || access(worker->error_file, R_OK) != 0)
        return "<N/A>";
    return worker->error_file;
}

/* In torchrun's format: the worker's own error file, if it has written one. */
static void failure_print_cause(const struct disti_run_options *options,
                                const struct disti_agents_failure *failure,
                                const struct disti_run_worker *worker, FILE *to)
{
    char *words = worker ? disti_run_error_text(worker->error_file) : NULL, name[16] = "";

    if (words) {
        fprintf(to, "  traceback : %s\n", words);
    } else if (failure->signal) {
        disti_run_signal_name(failure->signal, name);
        fprintf(to, "  traceback : Signal %d (%s) received by PID %d%s\n", failure->signal, name,
                failure->pid, disti_process_oom_text(failure->is_out_of_memory));
    } else if (!options->python) {
        fprintf(to, "  traceback : <N/A>: what the program printed says why; --tee 3 --log-dir DIR "
                    "keeps that in files\n");
    } else {
        fprintf(to, "  traceback : To enable traceback see: "
                    "https://pytorch.org/docs/stable/elastic/errors.html\n");
    }
    free(words);
}

/* worker is NULL on another node. */
static void failure_print_one(const struct disti_run_options *options, int index,
                              const struct disti_agents_failure *failure,
                              const struct disti_run_worker *worker, FILE *to)
{
    const time_t second = (time_t)(failure->time_ms / 1000);
    char when[32] = "", rank[16], local_rank[16];
    struct tm parts;

    disti_run_rank_name(failure->rank, rank);
    disti_run_rank_name(failure->local_rank, local_rank);

    if (localtime_r(&second, &parts))
        strftime(when, sizeof(when), "%Y-%m-%d_%H:%M:%S", &parts);
    fprintf(to,
            "[%d]:\n  time      : %s\n  host      : %s\n  rank      : %s (local_rank: %s)\n"
            "  exitcode  : %d (pid: %d)\n  error_file: %s\n",
            index, when, failure->host, rank, local_rank,
            failure->signal ? -failure->signal : failure->exit_code, failure->pid,
            failure_file(worker));
    failure_print_cause(options, failure, worker, to);
    if (failure->text[0])
        fprintf(to, "  last call : %s\n", failure->text);
}

/* Is it this node's worker? */
static bool failure_is_of(const struct disti_agents_failure *failure,
                          const struct disti_run_round *round,
                          const struct disti_run_worker *worker)
{
    return failure->node_rank == round->node_rank && failure->local_rank == worker->local_rank;
}

static void failure_print_block(const struct disti_run_options *options,
                                const struct disti_run_round *round,
                                const struct disti_run_worker *workers, int last_calls_fd,
                                const struct disti_agents_failure *first, FILE *to)
{
    const struct disti_run_worker *first_worker = NULL;
    int others = 0;

    fprintf(to, "%s\n%s FAILED\n%s\nFailures:\n", failure_border, options->program,
            failure_section);
    for (int w = 0; workers && w < round->processes; w++) {
        struct disti_agents_failure failure;

        if (failure_is_of(first, round, &workers[w])) {
            first_worker = &workers[w];
        } else if (disti_run_worker_has_failed(&workers[w]) && !workers[w].was_told) {
            disti_run_failure_of(round, &workers[w], last_calls_fd, &failure);
            failure_print_one(options, ++others, &failure, &workers[w], to);
        }
    }
    if (others == 0)
        fprintf(to, "  <NO_OTHER_FAILURES>\n");
    fprintf(to, "%s\nRoot Cause (first observed failure):\n", failure_section);
    failure_print_one(options, 0, first, first_worker, to);
    fprintf(to, "%s\n", failure_border);
}

void disti_run_failure_print(const struct disti_run_options *options,
                             const struct disti_run_round *round,
                             const struct disti_run_worker *workers, int last_calls_fd,
                             const struct disti_agents_failure *first)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);

    if (to)
        failure_print_block(options, round, workers, last_calls_fd, first, to);
    if (to && fclose(to) == 0)
        fwrite(text, 1, bytes, stderr);
    free(text);
}
