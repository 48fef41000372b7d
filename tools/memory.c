/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info memory: one child process accesses the memory of another. */
#include "memory.h"
#include "common/args.h"
#include "doctor/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROBE_BYTES 4096
#define PROBE_SECONDS 10
#define PROBE_WORD UINT64_C(0x6c69626469737421)

/* State in memory that this process shares with its two children, the owner and the reader. */
struct probe {
    struct memory_finding finding;
    pid_t owner;
    int fd;
    const uint64_t *place; /* address of a word in the owner's ordinary memory */
};

static int probe_map(const struct probe *probe, uint64_t word)
{
    uint64_t *memory;
    char path[64];
    int fd, error = 0;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)probe->owner, probe->fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return errno;
    memory = mmap(NULL, PROBE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        error = errno;
    else if (*memory != word)
        error = EIO;
    close(fd);
    return error;
}

static int probe_direct(const struct probe *probe, uint64_t word)
{
    uint64_t copy = 0;
    struct iovec here = {.iov_base = &copy, .iov_len = sizeof(copy)};
    struct iovec there = {.iov_base = (void *)(uintptr_t)probe->place, .iov_len = sizeof(copy)};

    if (process_vm_readv(probe->owner, &here, 1, &there, 1, 0) < 0)
        return errno;
    return copy == word ? 0 : EIO;
}

static void probe_close(int *end)
{
    if (*end >= 0)
        close(*end);
    *end = -1;
}

/* Starts both children and waits for the reader. The owner runs until the parent closes hold[1].
 * Returns 0, or -1 if the test failed to run. */
static int probe_run(struct probe *probe, int ready[2], int hold[2], pid_t *owner_p)
{
    pid_t user, owner = fork();
    int status;
    char byte;

    if (owner == 0) {
        probe_close(&hold[1]);
        /*
         * The owner is the reader's sibling, as ranks are: the kernel permits a parent more access
         * to its child.
         */
        uint64_t word = PROBE_WORD ^ (uint64_t)getpid();
        char sent;

        alarm(PROBE_SECONDS);
        probe->owner = getpid();
        probe->place = &word;
        probe->fd = memfd_create("libdist", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (probe->fd < 0 || pwrite(probe->fd, &word, sizeof(word), 0) != (ssize_t)sizeof(word) ||
            ftruncate(probe->fd, PROBE_BYTES) < 0)
            probe->finding.share = errno;
        if (write(ready[1], "x", 1) != 1 || read(hold[0], &sent, 1) != 0)
            _exit(1);
        _exit(0);
    }
    probe_close(&ready[1]); /* so that the read below returns 0 if the owner exits early */
    if (owner < 0)
        return -1;
    *owner_p = owner;
    if (read(ready[0], &byte, 1) != 1)
        return -1;
    user = fork();
    if (user == 0) {
        uint64_t word = PROBE_WORD ^ (uint64_t)probe->owner;

        alarm(PROBE_SECONDS);
        if (probe->finding.share == 0)
            probe->finding.map = probe_map(probe, word);
        probe->finding.direct = probe_direct(probe, word);
        _exit(0);
    }
    if (user < 0 || waitpid(user, &status, 0) != user)
        return -1;
    return status == 0 ? 0 : -1;
}

int memory_probe(struct memory_finding *finding_p)
{
    struct probe *probe =
        mmap(NULL, sizeof(*probe), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int ready[2] = {-1, -1}, hold[2] = {-1, -1}, result = -1;
    pid_t owner = -1;

    if (probe == MAP_FAILED)
        return -1;
    if (pipe2(ready, O_CLOEXEC) == 0 && pipe2(hold, O_CLOEXEC) == 0)
        result = probe_run(probe, ready, hold, &owner);
    for (int i = 0; i < 2; i++) {
        probe_close(&hold[i]);
        probe_close(&ready[i]);
    }
    if (owner > 0)
        waitpid(owner, NULL, 0);
    if (result == 0)
        *finding_p = probe->finding;
    munmap(probe, sizeof(*probe));
    return result;
}

/* dist_info memory: prints what works on this machine, and advice for what does not. */

#define MEMORY_HUGE "/sys/kernel/mm/transparent_hugepage/"
#define MEMORY_YAMA "/proc/sys/kernel/yama/ptrace_scope"

static void memory_line(const char *what, bool works, const char *text)
{
    printf("  %-30s %-4s %s\n", what, works ? "yes" : "no", text);
}

static void memory_advice(const char *text)
{
    printf("      %s\n", text);
}

/* ---- shared memory ---- */

static void memory_show_map(const struct memory_finding *finding)
{
    static const char what[] = "mapping a peer's memory";

    if (finding->share) {
        memory_line(what, false, strerror(finding->share));
        memory_advice("memfd_create does not work: allow it in the sandbox or container.");
    } else if (finding->map) {
        memory_line(what, false, strerror(finding->map));
        memory_advice(finding->map == ENOENT
                          ? "Mount /proc, and run all ranks in one PID namespace."
                          : "Run all ranks as one user, without set-user-id or file capabilities,");
        if (finding->map != ENOENT)
            memory_advice("and let a security module (SELinux, AppArmor) allow ptrace reading.");
    } else {
        memory_line(what, true, "peers can use memory of dist_alloc in place");
        return;
    }
    memory_advice("Until then, memory of dist_alloc is treated like ordinary memory.");
}

/* ---- huge pages ---- */

/* Reads the selected word of a setting: "advise" from "always [advise] never". Returns false if the
 * file cannot be read. */
static bool memory_setting(const char *path, char word[32])
{
    char text[256], *begin;

    if (!doctor_read(path, text, sizeof(text)))
        return false;
    begin = strchr(text, '[');
    snprintf(word, 32, "%.*s", begin ? (int)strcspn(begin + 1, "]") : 0, begin ? begin + 1 : "");
    return true;
}

/* The setting for pages of PMD size takes precedence, unless it is "inherit". */
bool memory_huge_setting(char path[MEMORY_PATH], char word[MEMORY_WORD])
{
    char bytes[32];

    if (doctor_read(MEMORY_HUGE "hpage_pmd_size", bytes, sizeof(bytes))) {
        snprintf(path, MEMORY_PATH, MEMORY_HUGE "hugepages-%llukB/shmem_enabled",
                 strtoull(bytes, NULL, 10) >> 10);
        if (memory_setting(path, word) && strcmp(word, "inherit") != 0)
            return true;
    }
    snprintf(path, MEMORY_PATH, MEMORY_HUGE "shmem_enabled");
    return memory_setting(path, word);
}

static void memory_show_huge(void)
{
    static const char what[] = "huge pages for shared memory";
    char path[MEMORY_PATH], word[MEMORY_WORD], text[192];
    bool works;

    if (!memory_huge_setting(path, word)) {
        memory_line(what, false, "the kernel has none (CONFIG_TRANSPARENT_HUGEPAGE)");
        return;
    }
    works = strcmp(word, "never") != 0 && strcmp(word, "deny") != 0;
    snprintf(text, sizeof(text), "shmem_enabled is '%s'", word);
    memory_line(what, works, text);
    if (works)
        return;
    memory_advice("To enable them for large buffers of dist_alloc, as root:");
    printf("      echo advise > %s\n", path);
}

int memory_main(int argc, char **argv)
{
    struct args args = {
        .program = "dist_info memory",
        .usage = "",
        .about = "Tests with two processes whether ranks of this machine can use each other's "
                 "memory, and prints advice if not.\n"};
    struct memory_finding finding = {0};
    int rest, code = args_begin_bare(&args, argc, argv, 0, &rest);

    if (code >= 0)
        return code;
    fflush(stdout);
    if (memory_probe(&finding) < 0) {
        fprintf(stderr, "dist_info: memory: cannot start two processes for the test\n");
        return 1;
    }
    printf("Memory access between ranks that are started like this program\n");
    memory_show_map(&finding);
    static const char what[] = "reading a peer's memory (CMA)";
    const char *setting = getenv("DIST_SHM_CMA");

    if (finding.direct) {
        memory_line(what, false, strerror(finding.direct));
        char scope[16] = "0";

        if (finding.direct == ENOSYS) {
            memory_advice("The kernel was built without CONFIG_CROSS_MEMORY_ATTACH.");
        } else if (doctor_read(MEMORY_YAMA, scope, sizeof(scope)) && strcmp(scope, "0") != 0) {
            printf("      kernel.yama.ptrace_scope is %s: set it to 0 with\n", scope);
            memory_advice("sysctl kernel.yama.ptrace_scope=0");
        } else {
            memory_advice("In a container, add the capability SYS_PTRACE or allow the system call");
            memory_advice(
                "process_vm_readv in its seccomp profile; otherwise run all ranks as one user.");
        }
        memory_advice("Until then, long messages in ordinary memory are copied twice.");
    } else if (setting && strcmp(setting, "0") == 0) {
        memory_line(what, false, "it works, but DIST_SHM_CMA=0 turns it off");
    } else {
        memory_line(what, true, "long messages in ordinary memory are copied once");
    }
    memory_show_huge();
    return 0;
}
