/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory: what ranks of this machine can share, /dev/shm, huge pages. */
#include "../memory.h"
#include "doctor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

/* Docker gives 64 MiB, which NCCL, MPI and torch's loaders use up. */
#define MEMORY_SHM ((unsigned long long)64 << 20)

static void memory_share(struct doctor_report *report, const struct memory_finding *finding)
{
    if (finding->share) {
        doctor_fault(report, "shared-memory", "memfd_create: %s", strerror(finding->share));
        doctor_other(report, "allow memfd_create in the seccomp profile: docker run --security-opt "
                             "seccomp=unconfined");
    } else if (finding->map == ENOENT) {
        doctor_fault(report, "shared-memory", "a process does not find another's in /proc");
        doctor_mend(report, "mount -t proc proc /proc");
        doctor_other(report, "run all ranks in one PID namespace");
    } else if (finding->map) {
        doctor_fault(report, "shared-memory", "mapping another process's memory: %s",
                     strerror(finding->map));
        doctor_other(report, "run all ranks as one user, without set-user-id or capabilities");
    } else {
        doctor_ok(report, "shared-memory", "ranks can map each other's memory");
    }
}

static void memory_direct(struct doctor_report *report, const struct memory_finding *finding)
{
    const char *setting = getenv("DIST_SHM_CMA");
    char scope[16] = "0";

    if (!finding->direct && setting && strcmp(setting, "0") == 0) {
        doctor_fault(report, "cma", "it works, but DIST_SHM_CMA=0 turns it off");
        doctor_mend(report, "unset DIST_SHM_CMA");
    } else if (!finding->direct) {
        doctor_ok(report, "cma", "ranks can read each other's memory");
    } else if (doctor_read("/proc/sys/kernel/yama/ptrace_scope", scope, sizeof(scope)) &&
               strcmp(scope, "0") != 0) {
        doctor_fault(report, "cma", "ranks cannot read each other's memory: ptrace_scope is %s",
                     scope);
        doctor_mend(report, "echo 0 >/proc/sys/kernel/yama/ptrace_scope");
        doctor_other(report, "docker run --cap-add SYS_PTRACE");
    } else {
        doctor_fault(report, "cma", "ranks cannot read each other's memory: %s",
                     strerror(finding->direct));
        doctor_other(report, "docker run --cap-add SYS_PTRACE --security-opt seccomp=unconfined");
    }
}

static void memory_probes(struct doctor_report *report)
{
    struct memory_finding finding = {0};

    if (memory_probe(&finding) < 0) {
        doctor_fault(report, "shared-memory", "two processes for a test cannot be started");
        return;
    }
    memory_share(report, &finding);
    memory_direct(report, &finding);
}

static void memory_shm(struct doctor_report *report)
{
    struct statvfs files;
    unsigned long long size, room;

    if (statvfs("/dev/shm", &files) != 0) {
        doctor_fault(report, "dev-shm", "there is no /dev/shm, which MPI and NCCL use");
        doctor_mend(report, "mkdir -p -m 1777 /dev/shm && mount -t tmpfs tmpfs /dev/shm");
        return;
    }
    size = (unsigned long long)files.f_blocks * files.f_frsize;
    room = (unsigned long long)files.f_bavail * files.f_frsize;
    if (size <= MEMORY_SHM) {
        doctor_fault(report, "dev-shm", "/dev/shm has %llu MiB, too little for MPI, NCCL and torch",
                     size >> 20);
        doctor_mend(report, "mount -o remount,size=50%% /dev/shm");
        doctor_other(report, "docker run --shm-size=8g, or --ipc=host");
    } else if (room < MEMORY_SHM) {
        doctor_fault(report, "dev-shm", "/dev/shm is full: %llu of %llu MiB are free", room >> 20,
                     size >> 20);
        doctor_mend(report, "find /dev/shm -type f -user $(id -u) -mmin +60 -delete");
        doctor_other(report, "ls -l /dev/shm shows whose files these are");
    } else {
        doctor_ok(report, "dev-shm", "/dev/shm has %llu MiB", size >> 20);
    }
}

static void memory_huge(struct doctor_report *report)
{
    char path[MEMORY_PATH], word[MEMORY_WORD];

    if (!memory_huge_setting(path, word)) {
        doctor_note(report, "huge-pages", "the kernel has none for shared memory");
    } else if (strcmp(word, "never") != 0 && strcmp(word, "deny") != 0) {
        doctor_ok(report, "huge-pages", "shmem_enabled is %s", word);
    } else {
        doctor_note(report, "huge-pages",
                    "none for shared memory: large buffers of dist_alloc "
                    "would be a little faster");
        doctor_mend(report, "echo advise >%s", path);
    }
}

void doctor_memory(struct doctor_report *report)
{
    memory_probes(report);
    memory_shm(report);
    memory_huge(report);
}
