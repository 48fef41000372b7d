/* SPDX-License-Identifier: BSD-3-Clause */
/* A table of names: sigabbrev_np exists in glibc 2.32 and later only. */
#include "base/process/signal_name.h"

#include <signal.h>
#include <stddef.h>

static const char *const signal_names[] = {
    [SIGABRT] = "ABRT",     [SIGALRM] = "ALRM",     [SIGBUS] = "BUS",     [SIGCHLD] = "CHLD",
    [SIGCONT] = "CONT",     [SIGFPE] = "FPE",       [SIGHUP] = "HUP",     [SIGILL] = "ILL",
    [SIGINT] = "INT",       [SIGKILL] = "KILL",     [SIGPIPE] = "PIPE",   [SIGPOLL] = "POLL",
    [SIGPROF] = "PROF",     [SIGQUIT] = "QUIT",     [SIGSEGV] = "SEGV",   [SIGSTOP] = "STOP",
    [SIGSYS] = "SYS",       [SIGTERM] = "TERM",     [SIGTRAP] = "TRAP",   [SIGTSTP] = "TSTP",
    [SIGTTIN] = "TTIN",     [SIGTTOU] = "TTOU",     [SIGURG] = "URG",     [SIGUSR1] = "USR1",
    [SIGUSR2] = "USR2",     [SIGVTALRM] = "VTALRM", [SIGWINCH] = "WINCH", [SIGXCPU] = "XCPU",
    [SIGXFSZ] = "XFSZ",
#ifdef SIGPWR
    [SIGPWR] = "PWR",
#endif
#ifdef SIGSTKFLT
    [SIGSTKFLT] = "STKFLT",
#endif
};

const char *disti_signal_name(int signal_number)
{
    if (signal_number < 0 ||
        (size_t)signal_number >= sizeof(signal_names) / sizeof(signal_names[0]))
        return NULL;
    return signal_names[signal_number];
}
