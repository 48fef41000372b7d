/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds all processes below this one by what /proc says of their parents. */
#include "launch/workers/family.h"

#include "base/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

struct family_member {
    pid_t pid, parent;
    bool below; /* this process is an ancestor */
};

struct family {
    struct family_member *members;
    int count, room;
};

void disti_run_family_adopt(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* The parent's number stands behind the state, which follows the name in brackets. */
static pid_t family_parent(const char *pid)
{
    char path[32], text[512], state;
    const char *behind;
    ssize_t length;
    int fd, parent = 0;

    snprintf(path, sizeof(path), "/proc/%.10s/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    length = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
    if (fd >= 0)
        close(fd);
    text[length > 0 ? length : 0] = '\0';
    behind = strrchr(text, ')');
    return behind && sscanf(behind + 1, " %c %d", &state, &parent) == 2 ? parent : 0;
}

static bool family_add(struct family *family, pid_t pid, pid_t parent)
{
    if (family->count == family->room) {
        const int room = family->room ? 2 * family->room : 256;
        struct family_member *members =
            realloc(family->members, (size_t)room * sizeof(*family->members));

        if (!members)
            return false;
        family->members = members;
        family->room = room;
    }
    family->members[family->count++] = (struct family_member){.pid = pid, .parent = parent};
    return true;
}

static void family_read(struct family *family)
{
    DIR *folder = opendir("/proc");
    const struct dirent *entry;

    while (folder && (entry = readdir(folder))) {
        const pid_t pid = (pid_t)atoi(entry->d_name);

        if (pid > 0 && !family_add(family, pid, family_parent(entry->d_name)))
            break;
    }
    if (folder)
        closedir(folder);
}

static int family_compare(const void *a, const void *b)
{
    const struct family_member *first = a, *second = b;

    return (first->pid > second->pid) - (first->pid < second->pid);
}

/* Whose parent is below is below too: until nothing is new. Most children are younger, one round.
 */
static void family_mark(struct family *family)
{
    const pid_t self = getpid();
    bool new = true;

    qsort(family->members, (size_t)family->count, sizeof(*family->members), family_compare);
    while (new) {
        new = false;
        for (int i = 0; i < family->count; i++) {
            struct family_member *member = &family->members[i], key = {.pid = member->parent};
            const struct family_member *parent;

            if (member->below)
                continue;
            parent = bsearch(&key, family->members, (size_t)family->count, sizeof(*family->members),
                             family_compare);
            member->below = member->parent == self || (parent && parent->below);
            new |= member->below;
        }
    }
}

bool disti_run_family_signal(int signal_number)
{
    struct family family = {0};

    if (!disti_process_proc_is_own())
        return false;
    family_read(&family);
    if (family.members)
        family_mark(&family);
    for (int i = 0; i < family.count; i++) {
        if (family.members[i].below)
            kill(family.members[i].pid, signal_number);
    }
    free(family.members);
    return true;
}
