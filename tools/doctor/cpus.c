/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine, its CPUs and clocks: quotas against threads, BLAS kernels, time. */
#include "doctor.h"

#include <dist/dist.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <unistd.h>

int doctor_cpu_count(void)
{
    for (int bits = 1024; bits <= 1 << 18; bits *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)bits);
        const size_t size = CPU_ALLOC_SIZE((size_t)bits);
        int count = 0;

        if (set && sched_getaffinity(0, size, set) == 0)
            count = CPU_COUNT_S(size, set);
        CPU_FREE(set);
        if (count > 0)
            return count;
    }
    return 1;
}

/* What should be alike on all machines of a job. */
static void cpus_system(struct doctor_report *report)
{
    const long long bytes = (long long)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    struct utsname kernel;

    if (uname(&kernel) == 0)
        doctor_ok(report, "system", "libdist %s, %s %s %s, %d CPUs, %.1f GiB", dist_version(),
                  kernel.sysname, kernel.release, kernel.machine, doctor_cpu_count(),
                  (double)bytes / (1 << 30));
}

/* ---- the quota ---- */

/* CPUs' worth of time; 0: no limit. */
static double cpus_quota(void)
{
    char text[64], period[64];
    double quota = 0, length = 100000;

    if (!doctor_cgroup("cpu.max", "cpu", "cpu.cfs_quota_us", text, sizeof(text)))
        return 0;
    if (sscanf(text, "%lf %lf", &quota, &length) == 1 &&
        doctor_cgroup("cpu.max", "cpu", "cpu.cfs_period_us", period, sizeof(period)))
        length = atof(period);
    return quota > 0 && length > 0 ? quota / length : 0;
}

/* The threads of a numerical library: as it is told, else one for each CPU. */
static int cpus_threads(int cpus)
{
    const char *told = getenv("OMP_NUM_THREADS");

    return told && atoi(told) > 0 ? atoi(told) : cpus;
}

static void cpus_against_quota(struct doctor_report *report)
{
    const int cpus = doctor_cpu_count(), ranks = report->ranks > 0 ? report->ranks : 1;
    const double quota = cpus_quota();
    const int fair = quota / ranks < 1 ? 1 : (int)(quota / ranks);

    if (quota <= 0 || quota >= cpus) {
        doctor_ok(report, "cpu-quota", "none below the %d CPUs", cpus);
    } else if (cpus_threads(cpus) > fair) {
        doctor_fault(report, "cpu-quota",
                     "the cgroup may use %.2g CPUs' time, but libraries start %d threads a rank",
                     quota, cpus_threads(cpus));
        doctor_mend(report, "export OMP_NUM_THREADS=%d", fair);
        doctor_other(report, "docker run --cpus %d", cpus);
    } else if (ranks > (int)(quota + 0.999)) {
        doctor_note(report, "cpu-quota", "%d ranks share %.2g CPUs' time", ranks, quota);
    } else {
        doctor_ok(report, "cpu-quota", "%.2g CPUs, and %d threads a rank", quota,
                  cpus_threads(cpus));
    }
}

/* ---- BLAS ---- */

/* Is the word among the flags of the first CPU? */
static bool cpus_has_flag(const char *flag)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[8192], wanted[32];
    bool has = false;

    snprintf(wanted, sizeof(wanted), " %s ", flag);
    while (file && fgets(line, sizeof(line), file)) {
        if (strncmp(line, "flags", 5) == 0) {
            line[strcspn(line, "\n")] = ' ';
            has = strstr(line, wanted) != NULL;
            break;
        }
    }
    if (file)
        fclose(file);
    return has;
}

/* Kernels of OpenBLAS that need an extension, and that a CPU without it dies of. */
static void cpus_blas(struct doctor_report *report)
{
    static const struct {
        const char *kernel, *flag;
    } needs[] = {{"SAPPHIRERAPIDS", "amx_tile"},
                 {"COOPERLAKE", "avx512_bf16"},
                 {"SKYLAKEX", "avx512f"},
                 {"HASWELL", "avx2"},
                 {"ZEN", "avx2"},
                 {"EXCAVATOR", "avx2"},
                 {"SANDYBRIDGE", "avx"}};
    const char *kernel = getenv("OPENBLAS_CORETYPE");

    if (!kernel || !*kernel) {
        doctor_ok(report, "blas", "OpenBLAS chooses its kernels by the CPU");
        return;
    }
    for (size_t i = 0; i < sizeof(needs) / sizeof(needs[0]); i++) {
        if (strcasecmp(kernel, needs[i].kernel) != 0 || cpus_has_flag(needs[i].flag))
            continue;
        doctor_fault(report, "blas", "OPENBLAS_CORETYPE=%.40s needs %s, which this CPU lacks",
                     kernel, needs[i].flag);
        doctor_mend(report, "unset OPENBLAS_CORETYPE");
        return;
    }
    doctor_note(report, "blas", "OPENBLAS_CORETYPE=%.40s is forced", kernel);
}

/* ---- clocks ---- */

static void cpus_clock(struct doctor_report *report)
{
    static const char current[] =
        "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    char source[32] = "";

    if (!doctor_read(current, source, sizeof(source))) {
        doctor_note(report, "clock", "the kernel does not say what drives its clock");
    } else if (strcmp(source, "hpet") == 0 || strcmp(source, "acpi_pm") == 0) {
        doctor_fault(report, "clock",
                     "the kernel's clock is driven by %s: each look costs more "
                     "than a microsecond",
                     source);
        doctor_mend(report, "echo tsc >%s", current);
    } else {
        doctor_ok(report, "clock", "driven by %s", source);
    }
}

/* Certificates, and logs of several machines, need the time. 1.7e9 s: late in 2023. */
static void cpus_time(struct doctor_report *report)
{
    struct timex state = {0};

    if (report->clock < 1.7e9) {
        doctor_fault(report, "time", "the clock is years behind");
        doctor_mend(report, "timedatectl set-ntp true");
    } else if (adjtimex(&state) == TIME_ERROR || (state.status & STA_UNSYNC)) {
        doctor_note(report, "time", "no server keeps the clock right");
        doctor_mend(report, "timedatectl set-ntp true");
    } else {
        doctor_ok(report, "time", "kept right by a server");
    }
}

void doctor_cpus(struct doctor_report *report)
{
    cpus_system(report);
    cpus_against_quota(report);
    cpus_blas(report);
    cpus_clock(report);
    cpus_time(report);
}
