/* SPDX-License-Identifier: BSD-3-Clause */
/* Log lines, and errors for dist_last_error. */
#ifndef DISTI_BASE_LOG_H
#define DISTI_BASE_LOG_H

#include <dist/dist.h>

/* Destination and level of log lines. One per group; constant after the group is open. */
struct disti_log {
    dist_log_fn fn; /* NULL: stderr */
    void *arg;
    dist_log_level level; /* the least severe level that is written */
    bool silent;          /* only notices are written (the default without DIST_DEBUG) */
    bool mute;            /* notices are not written either (DIST_DEBUG=0 or error) */
    int rank;             /* -1: unknown */
    char file[256];       /* DIST_DEBUG_FILE: lines go there if fn is NULL; "": stderr */
    char subsystems[128]; /* DIST_DEBUG_SUBSYS: subsystems that write INFO and TRACE; "": all */
};

/*
 * Fills *log from the options, DIST_DEBUG (unset or 0: silent unless fn is given; error, warn,
 * info, trace), DIST_DEBUG_SUBSYS, and DIST_DEBUG_FILE, in which %h is the host, %p the process id
 * and %r the rank. fn without DIST_DEBUG gets levels INFO and above. ERR_INVALID_ARGUMENT names an
 * unknown value.
 */
dist_status disti_log_init(struct disti_log *log, dist_log_fn fn, void *arg);

/*
 * Sets and returns the log of this thread's current call; NULL: errors are only stored for
 * dist_last_error.
 */
void disti_log_use(const struct disti_log *log);
const struct disti_log *disti_log_current(void);

/*
 * Writes a line of a loadable module, whose source is not in src/. DIST_DEBUG_SUBSYS=modules
 * selects these lines.
 */
void disti_log_line(dist_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/*
 * Writes a line from the source file `path`. The line's subsystems are the directories of that path
 * below src/, and for files of src/core also call, flight, group or work.
 */
void disti_log_from(const char *path, dist_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * Formats into text[size], for text that quotes other text. Truncates after a word and appends
 * "...". Never fails; returns the length.
 */
size_t disti_text(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * Writes a warning that is shown by default: at most one line per job, about a probable mistake of
 * the user. DIST_DEBUG=0 or error disables it.
 */
void disti_notice(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define disti_warn(...) disti_log_from(__FILE__, DIST_LOG_WARN, __VA_ARGS__)
#define disti_info(...) disti_log_from(__FILE__, DIST_LOG_INFO, __VA_ARGS__)
#define disti_trace(...) disti_log_from(__FILE__, DIST_LOG_TRACE, __VA_ARGS__)

/*
 * Call where an error is detected first; code that passes an error on must not call it. Stores the
 * text for dist_last_error, writes it at level ERROR, returns status. The text names the rank or
 * peer, the cause, and the fix.
 */
dist_status disti_fail(dist_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/*
 * After a call with `true`, this thread's failures are written at level INFO, because the caller
 * can do without the operation. After a call with `false`, they are written at level ERROR again.
 * Returns the previous value, which the caller restores.
 */
bool disti_log_trying(bool trying);

/* As disti_fail, with ": strerror(errno)" appended. */
dist_status disti_fail_errno(dist_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/*
 * Reports that a state machine has no such transition, and returns ERR_INTERNAL. Cold, so that the
 * caller's check is one branch not taken.
 */
dist_status disti_fail_transition(const char *machine, int from, int to) __attribute__((cold));

/*
 * Returns the number of failures that this thread has reported. A caller can compare it before and
 * after a call.
 */
unsigned disti_failures(void);

/* Sets the text of dist_last_error for an error that another thread has logged. */
void disti_fail_unlogged(const char *text);

#endif
