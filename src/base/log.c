/* SPDX-License-Identifier: BSD-3-Clause */
/* Log lines and error texts. */
#include "base/log.h"

#include <dist/backend.h>

#include "base/ascii.h"
#include "base/file.h"
#include "base/net.h"
#include "base/settings/config.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOG_TEXT_MAX 2048
#define LOG_LINE_MAX (LOG_TEXT_MAX + 128)

static const char *const log_names[] = {"ERROR", "WARN", "INFO", "TRACE"};

/* Valid names for DIST_DEBUG_SUBSYS: directories of src/, and "modules". */
static const char *const log_subsystems[] = {
    "backends",   "base",  "core",     "device",     "endpoint", "engine", "node",
    "rendezvous", "store", "topology", "transports", "tuning",   "call",   "flight",
    "group",      "work",  "mpi",      "shm",        "tcp",      "ucx",    "modules"};
#define LOG_MODULES "src/modules/"

/* The subsystems of directory core, with their files. */
static const struct {
    const char *name, *files;
} log_core_parts[] = {
    {"call", " calls.c memory.c public.c "},
    {"flight", " flight.c "},
    {"group", " failure.c group.c groups.c world.c "},
    {"work", " progress.c stage.c work.c "},
};

static _Thread_local char log_last_error[LOG_TEXT_MAX];
static _Thread_local const struct disti_log *log_used;
static _Thread_local bool log_tries;
static _Thread_local unsigned log_failures;

const char *dist_last_error(void)
{
    return log_last_error;
}

unsigned disti_failures(void)
{
    return log_failures;
}

dist_status dist_set_last_error(dist_status status, const char *text)
{
    disti_fail_unlogged(text ? text : "");
    return status;
}

void disti_fail_unlogged(const char *text)
{
    snprintf(log_last_error, sizeof(log_last_error), "%s", text);
    log_failures++;
}

void disti_log_use(const struct disti_log *log)
{
    log_used = log;
}

const struct disti_log *disti_log_current(void)
{
    return log_used;
}

dist_status disti_log_init(struct disti_log *log, dist_log_fn fn, void *arg)
{
    struct disti_log made = {.fn = fn, .arg = arg, .level = DIST_LOG_INFO, .rank = -1};
    const char *level = disti_env("DIST_DEBUG");
    const char *file = disti_env("DIST_DEBUG_FILE");
    const char *wanted = disti_env("DIST_DEBUG_SUBSYS");
    int known = DIST_LOG_ERROR;
    char subsystem[32];

    while (level && known <= DIST_LOG_TRACE && !disti_ascii_same(level, log_names[known]))
        known++;
    if (!level || strcmp(level, "0") == 0)
        made.silent = !fn;
    else if (known <= DIST_LOG_TRACE)
        made.level = (dist_log_level)known;
    else
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "DIST_DEBUG is \"%.64s\": set it to 0, error, warn, info or trace",
                          level);
    made.mute = level && (made.silent || made.level < DIST_LOG_WARN);
    if (file && strlen(file) >= sizeof(made.file))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "DIST_DEBUG_FILE is too long: give at most %zu characters",
                          sizeof(made.file) - 1);
    if (file)
        strcpy(made.file, file);
    *log = made;
    for (int i = 0; wanted && disti_list_item(wanted, ',', i, subsystem, sizeof(subsystem)); i++) {
        size_t r = 0;

        while (r < sizeof(log_subsystems) / sizeof(log_subsystems[0]) &&
               strcmp(subsystem, log_subsystems[r]) != 0)
            r++;
        if (r == sizeof(log_subsystems) / sizeof(log_subsystems[0]))
            return disti_fail(
                DIST_ERR_INVALID_ARGUMENT,
                "DIST_DEBUG_SUBSYS contains \"%s\": use any of backends, base, core, "
                "device, endpoint, engine, node, rendezvous, store, topology, "
                "transports, tuning; call, flight, group, work; mpi, shm, tcp, ucx; modules",
                subsystem);
    }
    if (wanted && strlen(wanted) >= sizeof(log->subsystems))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "DIST_DEBUG_SUBSYS is too long: give at most %zu characters",
                          sizeof(log->subsystems) - 1);
    if (wanted)
        strcpy(log->subsystems, wanted);
    return DIST_OK;
}

static void log_emit(dist_log_level level, const char *text)
{
    const struct disti_log *log = log_used;
    char line[LOG_LINE_MAX + 1], host[DISTI_HOST_SIZE], rank[16], name[512];
    int length, held, file = -1;

    disti_host_short(host);
    disti_file_name("%r", log->rank, rank, sizeof(rank));
    length = snprintf(line, LOG_LINE_MAX, "%s:%ld [%s] dist %s %s", host, (long)getpid(), rank,
                      log_names[level], text);
    if (length >= LOG_LINE_MAX)
        length = LOG_LINE_MAX - 1;
    /*
     * Texts may quote data of a peer or the environment: replace line breaks and escape
     * characters.
     */
    for (char *c = line; *c; c++) {
        if ((unsigned char)*c < ' ' || *c == '\x7f')
            *c = ' ';
    }
    if (log->fn) {
        log->fn(log->arg, level, line);
        return;
    }
    /* Write each line with one call, so that lines of different processes do not mix. */
    held = disti_cancel_hold(); /* the caller may hold a lock */
    if (log->file[0]) {
        disti_file_name(log->file, log->rank, name, sizeof(name));
        file = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0644);
    }
    line[length] = '\n';
    if (disti_file_write(file >= 0 ? file : STDERR_FILENO, line, (size_t)length + 1) < 0)
        errno = 0; /* the error cannot be reported anywhere */
    if (file >= 0)
        close(file);
    disti_cancel_let(held);
}

static bool log_is_enabled(dist_log_level level)
{
    return log_used && !log_used->silent && level <= log_used->level;
}

/* True if the path contains a directory that DIST_DEBUG_SUBSYS names. */
static bool log_is_chosen(const char *path)
{
    char subsystem[34] = "/";
    char file[32]; /* name of a file of core; the files of core belong to several subsystems */
    bool is_core;

    for (const char *at = strstr(path, "src/"); at; at = strstr(path, "src/"))
        path = at + strlen("src"); /* finally "/core/calls.c", after the last "src" */
    is_core = strncmp(path, "/core/", strlen("/core/")) == 0;
    snprintf(file, sizeof(file), " %s ", is_core ? path + strlen("/core/") : "");
    for (int i = 0;
         disti_list_item(log_used->subsystems, ',', i, subsystem + 1, sizeof(subsystem) - 2); i++) {
        for (size_t p = 0; is_core && p < sizeof(log_core_parts) / sizeof(log_core_parts[0]); p++)
            if (strcmp(subsystem + 1, log_core_parts[p].name) == 0 &&
                strstr(log_core_parts[p].files, file))
                return true;
        strcat(subsystem, "/");
        if (strstr(path, subsystem))
            return true;
    }
    return !log_used->subsystems[0];
}

/*
 * Truncates the text after a word, appends "..." and returns the new length. A word that is longer
 * than half of the text may be cut anywhere.
 */
static size_t log_cut(char *text, size_t size)
{
    static const char dots[] = "...";
    size_t most = size > sizeof(dots) ? size - sizeof(dots) : 0, at = most;

    if (size < sizeof(dots)) /* no room for the dots; the text is already truncated */
        return size ? size - 1 : 0;
    while (at > most / 2 && text[at - 1] != ' ')
        at--;
    if (at && text[at - 1] != ' ')
        at = most;
    return at + (size_t)snprintf(text + at, size - at, "%s", dots);
}

static size_t log_format(char *text, size_t size, const char *format, va_list args)
{
    int length = vsnprintf(text, size, format, args);

    if (length < 0)
        length = snprintf(text, size, "%s", format);
    return (size_t)length < size ? (size_t)length : log_cut(text, size);
}

size_t disti_text(char *text, size_t size, const char *format, ...)
{
    size_t length;
    va_list args;

    va_start(args, format);
    length = log_format(text, size, format, args);
    va_end(args);
    return length;
}

bool disti_log_trying(bool trying)
{
    bool before = log_tries;

    log_tries = trying;
    return before;
}

/*
 * Warnings and errors are written for all subsystems, info and trace lines only for the selected
 * ones. Preserves errno.
 */
static void log_write(const char *path, dist_log_level level, const char *format, va_list args)
{
    int saved = errno;
    char text[LOG_TEXT_MAX];

    if (!log_is_enabled(level) || (level > DIST_LOG_WARN && !log_is_chosen(path)))
        return;
    log_format(text, sizeof(text), format, args);
    log_emit(level, text);
    errno = saved;
}

void disti_log_from(const char *path, dist_log_level level, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    log_write(path, level, format, args);
    va_end(args);
}

void disti_log_line(dist_log_level level, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    log_write(LOG_MODULES, level, format, args);
    va_end(args);
}

void disti_notice(const char *format, ...)
{
    const int saved = errno;
    char text[LOG_TEXT_MAX];
    va_list args;

    if (!log_used || log_used->mute)
        return;
    va_start(args, format);
    log_format(text, sizeof(text), format, args);
    va_end(args);
    log_emit(DIST_LOG_WARN, text);
    errno = saved;
}

/*
 * Stores and writes an error. If `cause` is nonzero, appends ": strerror(errno)", which is never
 * truncated. The arguments may quote the last error itself, so the text is formatted in a separate
 * buffer and then copied.
 */
static void log_fail(bool cause, const char *format, va_list args)
{
    const dist_log_level level = log_tries ? DIST_LOG_INFO : DIST_LOG_ERROR;
    const int saved = errno;
    const char *why = cause ? strerror(saved) : "", *colon = cause ? ": " : "";
    char text[LOG_TEXT_MAX];

    log_format(text, sizeof(text) - strlen(colon) - strlen(why), format, args);
    sprintf(text + strlen(text), "%s%s", colon, why);
    strcpy(log_last_error, text);
    log_failures++;
    if (log_is_enabled(level))
        log_emit(level, text);
    errno = saved;
}

dist_status disti_fail(dist_status status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    log_fail(false, format, args);
    va_end(args);
    return status;
}

dist_status disti_fail_transition(const char *machine, int from, int to)
{
    return disti_fail(DIST_ERR_INTERNAL, "%s cannot go from state %d to %d", machine, from, to);
}

dist_status disti_fail_errno(dist_status status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    log_fail(true, format, args);
    va_end(args);
    return status;
}
