/* SPDX-License-Identifier: BSD-3-Clause */
/* How a process ended, by what the kernel still has of it. */
#include "base/process/end.h"

#include "base/net/socket.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* In /proc/PID/stat, counted from the field behind the command's ")". */
#define PROCESS_STATE 0
#define PROCESS_FLAGS 6
#define PROCESS_EXIT_CODE 49
/* The kernel's mark of a process that is about to end. */
#define PROCESS_EXITING 0x4u

/* Reads /proc/PID/stat; the fields behind the command, which may hold anything. NULL: none. */
static const char *process_read(int pid, char *text, size_t size)
{
    char path[40], *end;
    ssize_t length;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    length = read(fd, text, size - 1);
    close(fd);
    if (length <= 0)
        return NULL;
    text[length] = '\0';
    end = strrchr(text, ')');
    return end && end[1] == ' ' ? end + 2 : NULL;
}

static const char *process_field(const char *fields, int number)
{
    while (fields && number-- > 0) {
        fields = strchr(fields, ' ');
        fields = fields ? fields + 1 : NULL;
    }
    return fields;
}

/* As wait(2) has it: there from the moment that a process begins to end. False: it lives, or
 * nothing is known of it any more. */
static bool process_status(int pid, int *status_p)
{
    char buffer[1024];
    const char *fields = process_read(pid, buffer, sizeof(buffer));
    const char *code = process_field(fields, PROCESS_EXIT_CODE);
    unsigned flags = 0;

    if (!code || sscanf(process_field(fields, PROCESS_FLAGS), "%u", &flags) != 1 ||
        sscanf(code, "%d", status_p) != 1)
        return false;
    return fields[PROCESS_STATE] == 'Z' || (flags & PROCESS_EXITING);
}

const char *disti_process_end(const char *host, int pid, char *text, size_t size)
{
    const char *name;
    char own[64];
    int status;

    disti_host_name(own);
    if (strcmp(host, own) != 0 || !process_status(pid, &status))
        return "closed its connection without leaving the job";
    if (WIFSIGNALED(status)) {
        name = sigabbrev_np(WTERMSIG(status));
        snprintf(text, size, "was killed by signal %d (SIG%s)", WTERMSIG(status),
                 name ? name : "?");
    } else {
        snprintf(text, size, "exited with code %d without leaving the job", WEXITSTATUS(status));
    }
    return text;
}
