/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info memory: says what works here, and what to do about what does not. */
#include "memory.h"

#include "common/args.h"
#include "doctor/doctor.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- memory that can be shared ---- */

static void memory_show_map(const struct memory_finding *finding)
{
    static const char what[] = "mapping a peer's memory";

    if (finding->share) {
        memory_line(what, false, strerror(finding->share));
        memory_advice("memfd_create does not work: allow it in the sandbox or container.");
    } else if (finding->map) {
        memory_line(what, false, strerror(finding->map));
        memory_advice(finding->map == ENOENT
                          ? "Mount /proc here, and run all ranks in one PID namespace."
                          : "Run all ranks as one user, without set-user-id or file capabilities,");
        if (finding->map != ENOENT)
            memory_advice("and let a security module (SELinux, AppArmor) allow ptrace reading.");
    } else {
        memory_line(what, true, "dist_alloc gives memory that peers use in place");
        return;
    }
    memory_advice("Until then memory of dist_alloc serves like ordinary memory.");
}

/* ---- memory that is not shared ---- */

static void memory_advise_direct(int error)
{
    char scope[16] = "0";

    if (error == ENOSYS) {
        memory_advice("The kernel is built without CONFIG_CROSS_MEMORY_ATTACH.");
    } else if (doctor_read(MEMORY_YAMA, scope, sizeof(scope)) && strcmp(scope, "0") != 0) {
        printf("      kernel.yama.ptrace_scope is %s: set it to 0 with\n", scope);
        memory_advice("sysctl kernel.yama.ptrace_scope=0");
    } else {
        memory_advice("In a container, give it the capability SYS_PTRACE or allow the system call");
        memory_advice("process_vm_readv in its seccomp profile; else run all ranks as one user.");
    }
    memory_advice("Until then long messages in ordinary memory are copied twice.");
}

static void memory_show_direct(const struct memory_finding *finding)
{
    static const char what[] = "reading a peer's memory (CMA)";
    const char *setting = getenv("DIST_SHM_CMA");

    if (finding->direct) {
        memory_line(what, false, strerror(finding->direct));
        memory_advise_direct(finding->direct);
    } else if (setting && strcmp(setting, "0") == 0) {
        memory_line(what, false, "it works, but DIST_SHM_CMA=0 turns it off");
    } else {
        memory_line(what, true, "long messages in ordinary memory are copied once");
    }
}

/* ---- huge pages ---- */

/* The chosen word of a setting: "always [advise] never" is advise. False: there is no such file. */
static bool memory_setting(const char *path, char word[32])
{
    char text[256], *begin;

    if (!doctor_read(path, text, sizeof(text)))
        return false;
    begin = strchr(text, '[');
    snprintf(word, 32, "%.*s", begin ? (int)strcspn(begin + 1, "]") : 0, begin ? begin + 1 : "");
    return true;
}

/* The setting of the size that maps a whole page directory wins, unless it is inherited. */
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
    memory_advice("Large buffers of dist_alloc can have them. As root:");
    printf("      echo advise > %s\n", path);
}

int memory_main(int argc, char **argv)
{
    struct words {
        int action;
    } words = {0};
    static const struct args_row rows[] = {ARGS_HELP_ROWS(struct words, 0)};
    static const struct args args = {
        .rows = rows,
        .count = sizeof(rows) / sizeof(rows[0]),
        .program = "dist_info memory",
        .usage = "",
        .about = "Tests with two processes whether ranks of this machine can use each other's "
                 "memory, and says what to do if not.\n"};
    struct memory_finding finding = {0};
    int rest, code = args_begin(&args, argc, argv, &words, 0, &rest);

    if (code >= 0)
        return code;
    fflush(stdout);
    if (memory_probe(&finding) < 0) {
        fprintf(stderr, "dist_info: memory: cannot start two processes for the test\n");
        return 1;
    }
    printf("What ranks of this machine, started as this program was, can do\n");
    memory_show_map(&finding);
    memory_show_direct(&finding);
    memory_show_huge();
    return 0;
}
