/* SPDX-License-Identifier: BSD-3-Clause */
/* Reporting: one line a fact, and the error that the caller can ask for. */
#ifndef DISTI_BASE_LOG_H
#define DISTI_BASE_LOG_H

#include <dist/dist.h>

/* Where lines go and how much. One a group; not changed once the group is open. */
struct disti_log {
    dist_log_fn fn; /* NULL: stderr */
    void *arg;
    dist_log_level level; /* the least severe level that is written */
    bool silent;          /* nothing but notices is written (the default without DIST_DEBUG) */
    bool mute;            /* nor are they (DIST_DEBUG=0, or error) */
    int rank;             /* -1 while unknown */
    char file[256];       /* DIST_DEBUG_FILE: lines go there if fn is NULL; "": stderr */
    char rooms[128];      /* DIST_DEBUG_SUBSYS: what writes INFO and TRACE; "": everything */
};

/*
 * Fills *log from the options and DIST_DEBUG (unset or 0: silent unless fn is given;
 * error, warn, info, trace), DIST_DEBUG_SUBSYS, and DIST_DEBUG_FILE, in which %h is the host, %p
 * the process id and %r the rank. fn without DIST_DEBUG gets INFO and worse. ERR_INVALID_ARGUMENT
 * names a value it does not know.
 */
dist_status disti_log_init(struct disti_log *log, dist_log_fn fn, void *arg);

/* The log of this thread's current call; NULL: errors are only kept for dist_last_error. */
void disti_log_use(const struct disti_log *log);
const struct disti_log *disti_log_current(void);

/* A line of a module's, which stands in no folder of src/: DIST_DEBUG_SUBSYS=modules. */
void disti_log_line(dist_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A line of the source file at `path`: a subsystem is a folder of src/, or one within it. */
void disti_log_from(const char *path, dist_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * Formats into text[size]: for what quotes another's text. What does not fit is cut behind a word,
 * with "..." for the rest. Never fails; returns the length.
 */
size_t disti_text(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * A warning that a user gets without asking for any: at most one line a job, of what is almost
 * surely a mistake of his. DIST_DEBUG=0 or error prevents it.
 */
void disti_notice(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define disti_warn(...) disti_log_from(__FILE__, DIST_LOG_WARN, __VA_ARGS__)
#define disti_info(...) disti_log_from(__FILE__, DIST_LOG_INFO, __VA_ARGS__)
#define disti_trace(...) disti_log_from(__FILE__, DIST_LOG_TRACE, __VA_ARGS__)

/*
 * For whoever first detects an error: keeps the text for dist_last_error, writes it at
 * level ERROR, returns status. Whoever passes an error on does not call it. The text says
 * which rank or peer, which cause, and what the user can do.
 */
dist_status disti_fail(dist_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/*
 * While a thread only tries what it can do without, its failures are no errors: on a `true` they
 * are written at level INFO, until the `false`. Returns what held before, for the caller to
 * restore.
 */
bool disti_log_trying(bool trying);

/* The same, with ": strerror(errno)" appended. */
dist_status disti_fail_errno(dist_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/*
 * Reports that a state machine has no step from one state to another, and returns ERR_INTERNAL.
 * Cold, so that the check at the caller is one branch that is not taken.
 */
dist_status disti_fail_transition(const char *machine, int from, int to) __attribute__((cold));

/* How many failures this thread has reported: another number, and there was one meanwhile. */
unsigned disti_failures(void);

/* What another thread has reported concerns this one: dist_last_error says it, no log. */
void disti_fail_unlogged(const char *text);

#endif
