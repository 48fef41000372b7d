/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * denied CALL[=ERROR] PROGRAM ARGS...: runs PROGRAM with a seccomp filter, like that of a
 * container, under which the system call CALL fails with EPERM or with errno ERROR.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct denied_call {
    const char *name;
    unsigned number;
} denied_calls[] = {
    {"memfd", SYS_memfd_create},  {"cma", SYS_process_vm_readv},   {"eventfd", SYS_eventfd2},
    {"epoll", SYS_epoll_create1}, {"timerfd", SYS_timerfd_create}, {"signalfd", SYS_signalfd4},
    {"pidfd", SYS_pidfd_open},    {"membarrier", SYS_membarrier},  {"getrandom", SYS_getrandom},
};

/* Returns the call of that name, or NULL. */
static const struct denied_call *denied_find(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof(denied_calls) / sizeof(denied_calls[0]); i++) {
        if (strlen(denied_calls[i].name) == length &&
            strncmp(denied_calls[i].name, name, length) == 0)
            return &denied_calls[i];
    }
    return NULL;
}

int main(int argc, char **argv)
{
    const char *equals = argc > 2 ? strchr(argv[1], '=') : NULL;
    const struct denied_call *call = argc > 2 ? denied_find(argv[1], strcspn(argv[1], "=")) : NULL;
    const unsigned error = equals ? (unsigned)atoi(equals + 1) : EPERM;
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call ? call->number : 0, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error & SECCOMP_RET_DATA)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};

    if (!call) {
        fprintf(stderr, "usage: denied CALL[=ERROR] PROGRAM [ARGUMENT]...\ncalls:");
        for (size_t i = 0; i < sizeof(denied_calls) / sizeof(denied_calls[0]); i++)
            fprintf(stderr, " %s", denied_calls[i].name);
        fputc('\n', stderr);
        return 2;
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        fprintf(stderr, "the kernel has no seccomp\n");
        return 77;
    }
    execvp(argv[2], argv + 2);
    perror(argv[2]);
    return 127;
}
