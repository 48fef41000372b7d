/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints the failure block, with the contents of a worker's error file. */
#include "launch/failure.h"
#include "base/process.h"
#include "store/store.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/*
 * Reads what torch's record() writes:
 *
 *     {"message": {"message": TEXT, "extraInfo": {"py_callstack": TEXT, "timestamp": TEXT}}}
 *
 * or {"message": TEXT}. A worker writes the file, so its contents are not trusted.
 */

enum { ERROR_FILE_MOST = 1 << 20 }; /* bytes read from the file */

/* ---- JSON: a value is represented by a pointer to its first byte ---- */

static const char *json_after_blanks(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

/* Returns the byte after the string; NULL: the string is not terminated. */
static const char *json_after_string(const char *at)
{
    for (at++; *at != '"'; at++) {
        if (*at == '\\' && at[1])
            at++;
        else if (!*at)
            return NULL;
    }
    return at + 1;
}

/* Returns the byte after the value; NULL: the value is incomplete. */
static const char *json_after(const char *at)
{
    int depth = 0;

    do {
        at = json_after_blanks(at);
        depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
        if (*at == '"')
            at = json_after_string(at);
        else if (*at && strchr("{}[],:", *at))
            at++;
        else
            at = *at ? at + strcspn(at, ",:{}[]\" \t\r\n") : NULL;
    } while (at && depth > 0);
    return at;
}

/*
 * Returns the value of a member of an object; NULL: there is no such member, or `at` is not an
 * object.
 */
static const char *json_member(const char *at, const char *name)
{
    const size_t length = strlen(name);

    at = at ? json_after_blanks(at) : "";
    at = *at == '{' ? json_after_blanks(at + 1) : "";
    while (*at == '"') {
        const char *end = json_after_string(at);
        const char *value = end ? json_after_blanks(end) : "";

        if (*value != ':')
            return NULL;
        value = json_after_blanks(value + 1);
        if ((size_t)(end - at) == length + 2 && strncmp(at + 1, name, length) == 0)
            return value;
        at = json_after(value);
        at = at ? json_after_blanks(at) : "";
        at = *at == ',' ? json_after_blanks(at + 1) : "";
    }
    return NULL;
}

/* ---- strings ---- */

/* Returns the four hexadecimal digits of a \u escape; 0: `at` is not one. */
static unsigned error_digits(const char *at)
{
    unsigned code = 0;

    return at[0] == '\\' && at[1] == 'u' && strspn(at + 2, "0123456789abcdefABCDEF") >= 4 &&
                   sscanf(at + 2, "%4x", &code) == 1
               ? code
               : 0;
}

/* Decodes the escape at a backslash into *code_p. Returns the byte after it. */
static const char *error_escape(const char *at, unsigned *code_p)
{
    static const char letters[] = "nrtbf", meant[] = "\n\r\t\b\f";
    const char *letter = strchr(letters, at[1]);
    unsigned second;

    *code_p = error_digits(at);
    if (*code_p) {
        second = *code_p >> 10 == 0x36 ? error_digits(at + 6) : 0;
        if (second >> 10 != 0x37)
            return at + 6;
        *code_p = 0x10000 + ((*code_p & 0x3ff) << 10) + (second & 0x3ff);
        return at + 12;
    }
    *code_p = letter ? (unsigned char)meant[letter - letters] : (unsigned char)at[1];
    return at + 2;
}

/*
 * Prints a string for a terminal: lines are indented, the last newline is dropped, and control
 * characters are omitted, 8-bit ones (C1) included.
 */
static void error_put_string(const char *at, FILE *to)
{
    int lines = 0;

    for (at++; *at != '"';) {
        const unsigned char first = (unsigned char)at[0], second = (unsigned char)at[1];
        const bool control = first == 0xc2 && second >= 0x80 && second < 0xa0;
        const bool byte = first != '\\' && !control; /* from 0x80 on a part of a UTF-8 sequence */
        unsigned code = control ? second : first;

        at = first == '\\' ? error_escape(at, &code) : at + 1 + control;
        if (code == '\n') {
            lines++;
            continue;
        }
        for (; lines > 0; lines--)
            fputs("\n  ", to);
        if (byte && (code == '\t' || (code >= ' ' && code != 0x7f))) {
            fputc((int)code, to);
        } else if (!byte && (code == '\t' || (code >= ' ' && code < 0x7f) || code >= 0xa0)) {
            if (code < 0x80) {
                fputc((int)code, to);
            } else if (code < 0x800) {
                fprintf(to, "%c%c", 0xc0 | code >> 6, 0x80 | (code & 0x3f));
            } else if (code < 0x10000) {
                fprintf(to, "%c%c%c", 0xe0 | code >> 12, 0x80 | (code >> 6 & 0x3f),
                        0x80 | (code & 0x3f));
            } else {
                fprintf(to, "%c%c%c%c", 0xf0 | code >> 18, 0x80 | (code >> 12 & 0x3f),
                        0x80 | (code >> 6 & 0x3f), 0x80 | (code & 0x3f));
            }
        }
    }
}

/* ---- the file ---- */

char *disti_run_error_text(const char *path)
{
    /* O_NONBLOCK: does not block if the file is a FIFO. */
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    char *text = calloc(1, ERROR_FILE_MOST + 1), *made = NULL;
    size_t bytes = 0;
    ssize_t got = fd >= 0 && text ? 1 : 0;
    const char *message, *shown;
    FILE *to = NULL;

    while (got > 0 && bytes < ERROR_FILE_MOST) {
        got = read(fd, text + bytes, ERROR_FILE_MOST - bytes);
        bytes += got > 0 ? (size_t)got : 0;
    }
    if (fd >= 0)
        close(fd);
    message = bytes > 0 ? json_member(text, "message") : NULL;
    shown = json_member(json_member(message, "extraInfo"), "py_callstack");
    if (!shown)
        shown = json_member(message, "message");
    if (!shown)
        shown = message;
    if (shown && shown[0] == '"' && shown[1] != '"' && json_after_string(shown))
        to = open_memstream(&made, &bytes);
    if (to) {
        error_put_string(shown, to);
        if (fclose(to) != 0) {
            free(made);
            made = NULL;
        }
    }
    free(text);
    return made;
}

/* Prints the failure block. */

static const char failure_border[] = "============================================================";
static const char failure_section[] =
    "------------------------------------------------------------";

void disti_run_failure_of(const struct disti_run_round *round,
                          const struct disti_run_worker *worker, int last_calls_fd,
                          struct disti_agents_failure *failure_p)
{
    const bool signalled = WIFSIGNALED(worker->wait_status);

    *failure_p = (struct disti_agents_failure){
        .cause = DISTI_AGENTS_WORKER_FAILED,
        .node_rank = round->node_rank,
        .rank = disti_run_rank(round, worker->local_rank),
        .local_rank = worker->local_rank,
        .pid = (int)worker->pid,
        .exit_code = signalled ? 0 : WEXITSTATUS(worker->wait_status),
        .signal = signalled ? WTERMSIG(worker->wait_status) : 0,
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

/* The higher the weight, the likelier the worker is the cause of the other failures. */
static int failure_weight(const struct disti_run_worker *worker)
{
    return 4 * !worker->has_lost + 2 * WIFSIGNALED(worker->wait_status) + (worker->local_rank >= 0);
}

const struct disti_run_worker *disti_run_first_failure(const struct disti_run_worker *first,
                                                       const struct disti_run_worker *next)
{
    if (!disti_run_worker_has_failed(next))
        return first;
    return !first || failure_weight(next) > failure_weight(first) ? next : first;
}

/*
 * Prints one failure in torchrun's format, with the worker's error file if it has written one.
 * worker is NULL if it is on another node.
 */
static void failure_print_one(const struct disti_run_options *options, int index,
                              const struct disti_agents_failure *failure,
                              const struct disti_run_worker *worker, FILE *to)
{
    const time_t second = (time_t)(failure->time_ms / 1000);
    /* torch writes the file if the program's main is decorated with record(). */
    const bool has_file = worker && worker->error_fd < 0 && access(worker->error_file, R_OK) == 0;
    char when[32] = "", rank[16], local_rank[16], name[16], *text;
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
            has_file ? worker->error_file : "<N/A>");
    text = worker ? disti_run_error_text(worker->error_file) : NULL;
    if (text) {
        fprintf(to, "  traceback : %s\n", text);
    } else if (failure->signal) {
        disti_run_signal_name(failure->signal, name);
        fprintf(to, "  traceback : Signal %d (%s) received by PID %d%s\n", failure->signal, name,
                failure->pid, disti_process_oom_text(failure->is_out_of_memory));
    } else if (!options->python) {
        fprintf(to, "  traceback : <N/A>: see the program's output; --tee 3 --log-dir DIR stores "
                    "it in files\n");
    } else {
        fprintf(to, "  traceback : To enable traceback see: "
                    "https://pytorch.org/docs/stable/elastic/errors.html\n");
    }
    free(text);
    if (failure->text[0])
        fprintf(to, "  last call : %s\n", failure->text);
}

void disti_run_failure_print(const struct disti_run_options *options,
                             const struct disti_run_round *round,
                             const struct disti_run_worker *workers, int last_calls_fd,
                             const struct disti_agents_failure *first)
{
    const struct disti_run_worker *first_worker = NULL;
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    int other_failures = 0;

    if (!to)
        return;
    fprintf(to, "%s\n%s FAILED\n%s\nFailures:\n", failure_border, options->program,
            failure_section);
    for (int w = 0; workers && w < round->processes; w++) {
        struct disti_agents_failure failure;

        if (first->node_rank == round->node_rank && first->local_rank == workers[w].local_rank) {
            first_worker = &workers[w];
        } else if (disti_run_worker_has_failed(&workers[w]) && !workers[w].was_signaled) {
            disti_run_failure_of(round, &workers[w], last_calls_fd, &failure);
            failure_print_one(options, ++other_failures, &failure, &workers[w], to);
        }
    }
    if (other_failures == 0)
        fprintf(to, "  <NO_OTHER_FAILURES>\n");
    fprintf(to, "%s\nRoot Cause (first observed failure):\n", failure_section);
    failure_print_one(options, 0, first, first_worker, to);
    fprintf(to, "%s\n", failure_border);
    if (fclose(to) == 0)
        fwrite(text, 1, bytes, stderr);
    free(text);
}
