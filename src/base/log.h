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
    bool silent;          /* nothing is written at all (the default without DIST_DEBUG) */
    int rank;             /* -1 while unknown */
    char file[256];       /* DIST_DEBUG_FILE: lines go there if fn is NULL; "": stderr */
};

/*
 * Fills *log from the options and DIST_DEBUG (unset or 0: silent unless fn is given;
 * error, warn, info, trace) and DIST_DEBUG_FILE, in which %h is the host, %p the process
 * id and %r the rank. fn without DIST_DEBUG gets INFO and worse. ERR_INVALID_ARGUMENT
 * names a value it does not know.
 */
dist_status disti_log_init(struct disti_log *log, dist_log_fn fn, void *arg);

/* The log of this thread's current call; NULL: errors are only kept for dist_last_error. */
void disti_log_use(const struct disti_log *log);
const struct disti_log *disti_log_current(void);

void disti_log_line(dist_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#define disti_warn(...) disti_log_line(DIST_LOG_WARN, __VA_ARGS__)
#define disti_info(...) disti_log_line(DIST_LOG_INFO, __VA_ARGS__)
#define disti_trace(...) disti_log_line(DIST_LOG_TRACE, __VA_ARGS__)

/*
 * For whoever first detects an error: keeps the text for dist_last_error, writes it at
 * level ERROR, returns status. Whoever passes an error on does not call it. The text says
 * which rank or peer, which cause, and what the user can do.
 */
dist_status disti_fail(dist_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same, with ": strerror(errno)" appended. */
dist_status disti_fail_errno(dist_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
