/* SPDX-License-Identifier: BSD-3-Clause */
/* Why a process or a thread cannot be started. */
#include "base/process/limit.h"

#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/resource.h>

dist_status disti_process_limit_fail(const char *format, ...)
{
    const int error = errno;
    struct rlimit limit;
    va_list arguments;
    char what[160];

    va_start(arguments, format);
    vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    errno = error;
    if (error != EAGAIN)
        return disti_fail_errno(DIST_ERR_SYSTEM, "cannot %s", what);
    if (getrlimit(RLIMIT_NPROC, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return disti_fail(DIST_ERR_SYSTEM,
                          "cannot %s: the system or a cgroup allows no more processes and threads: "
                          "raise its pids.max, or kernel.pid_max",
                          what);
    return disti_fail(DIST_ERR_SYSTEM,
                      "cannot %s: this user's limit on processes and threads, %llu, is reached: "
                      "raise it (ulimit -u), or that of the cgroup (pids.max)",
                      what, (unsigned long long)limit.rlim_cur);
}
