/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info doctor: the command, and the checks of limits, memory, CPUs and GPUs. */
#include "doctor.h"
#include "tools/common/args.h"
#include "tools/common/launched.h"
#include "tools/memory.h"

#include <dirent.h>
#include <dist/dist.h>
#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Reads the first line of `file` in the cgroup, or in the closest ancestor that has the file. Cuts
 * `group` down to that ancestor. Returns false if there is none. */
static bool report_in_group(const char *mount, char *group, const char *file, char *text,
                            size_t size)
{
    char path[2 * PATH_MAX], *slash;

    for (;;) {
        snprintf(path, sizeof(path), "/sys/fs/cgroup%s%s/%s", mount,
                 strcmp(group, "/") == 0 ? "" : group, file);
        if (doctor_read(path, text, size))
            return true;
        slash = strrchr(group, '/');
        if (!slash)
            return false;
        *slash = '\0';
    }
}

/* True if the list "cpu,cpuacct" contains the controller. */
static bool report_controls(const char *controllers, const char *controller)
{
    while (*controllers) {
        const size_t length = strcspn(controllers, ",");

        if (length == strlen(controller) && strncmp(controllers, controller, length) == 0)
            return true;
        controllers += length + (controllers[length] == ',');
    }
    return false;
}

/*
 * Reads a limit of this process's cgroup, or of the closest ancestor that has the limit's file:
 * `file` in cgroup v2, or `old` in the hierarchy of `controller` in cgroup v1. Returns false if
 * there is no such file. A line of /proc/self/cgroup is "NUMBER:CONTROLLERS:PATH"; in v2
 * CONTROLLERS is empty.
 */
static bool doctor_cgroup(const char *file, const char *controller, const char *old, char *text,
                          size_t size)
{
    char line[PATH_MAX], mount[64];
    FILE *groups = fopen("/proc/self/cgroup", "re");
    bool found = false;

    snprintf(mount, sizeof(mount), "/%s", controller);
    while (groups && !found && fgets(line, sizeof(line), groups)) {
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;

        if (!group)
            continue;
        *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        if (!controllers[1])
            found = report_in_group("", group, file, text, size);
        else if (report_controls(controllers + 1, controller))
            found = report_in_group(mount, group, old, text, size);
    }
    if (groups)
        fclose(groups);
    return found;
}

/* Files and processes that a rank needs: a constant number, and more for each rank on the machine.
 * The hard limit of open files is checked, since the library raises the soft limit. */
enum { LIMITS_FILES = 128, LIMITS_FILES_EACH = 4, LIMITS_FILES_LEAST = 1024 };
enum { LIMITS_PROCESSES = 64, LIMITS_PROCESSES_EACH = 4 };
#define LIMITS_LOCKED ((rlim_t)64 << 20)

/* True if this process may raise its hard limits, and so may a shell in the same environment. */
static bool limits_may_raise(void)
{
    enum { LIMITS_CAP_SYS_RESOURCE = 24 };
    FILE *status = fopen("/proc/self/status", "re");
    unsigned long long mask = 0;
    char line[256];

    while (status && fgets(line, sizeof(line), status)) {
        if (sscanf(line, "CapEff: %llx", &mask) == 1)
            break;
    }
    if (status)
        fclose(status);
    return mask >> LIMITS_CAP_SYS_RESOURCE & 1;
}

static void limits_files(struct doctor_report *report)
{
    const rlim_t each = (rlim_t)report->ranks * LIMITS_FILES_EACH + LIMITS_FILES;
    const rlim_t needed = each > LIMITS_FILES_LEAST ? each : LIMITS_FILES_LEAST;
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    if (limit.rlim_max >= needed) {
        doctor_ok(report, "open-files", "%llu at most", (unsigned long long)limit.rlim_max);
        return;
    }
    doctor_fault(report, "open-files", "a process may open %llu files, but a rank may need %llu",
                 (unsigned long long)limit.rlim_max, (unsigned long long)needed);
    if (limits_may_raise())
        doctor_fix(report, "ulimit -n 65536");
    doctor_other(report, "as root, for all sessions: echo '* - nofile 65536' "
                         ">/etc/security/limits.d/libdist.conf; docker run --ulimit nofile=65536");
}

/* The limit of locked memory matters only to InfiniBand and zero-copy sends, which pin memory. */
static void limits_locked(struct doctor_report *report)
{
    const char *setting = getenv("DIST_TCP_ZEROCOPY");
    const bool zerocopy = setting && *setting && strcmp(setting, "off") != 0;
    const bool pins = zerocopy || doctor_exists("/sys/class/infiniband/*", NULL, 0);
    struct rlimit limit;

    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0)
        return;
    if (limit.rlim_cur == RLIM_INFINITY) {
        doctor_ok(report, "locked-memory", "no limit");
        return;
    }
    if (limit.rlim_cur >= LIMITS_LOCKED || !pins) {
        doctor_ok(report, "locked-memory", "%llu KiB%s", (unsigned long long)limit.rlim_cur >> 10,
                  pins ? "" : ", sufficient since nothing pins memory");
        return;
    }
    doctor_fault(report, "locked-memory", "a process may lock %llu KiB, too little for %s",
                 (unsigned long long)limit.rlim_cur >> 10,
                 zerocopy ? "DIST_TCP_ZEROCOPY" : "InfiniBand");
    if (limits_may_raise())
        doctor_fix(report, "ulimit -l unlimited");
    else if (zerocopy)
        doctor_fix(report, "unset DIST_TCP_ZEROCOPY");
    doctor_other(report, "as root, for all sessions: echo '* - memlock unlimited' "
                         ">/etc/security/limits.d/libdist.conf; docker run --ulimit memlock=-1");
}

/* Returns the number of threads of this user, which RLIMIT_NPROC limits. */
static long limits_tasks(void)
{
    DIR *folder = opendir("/proc");
    struct dirent *item;
    long tasks = 0;

    while (folder && (item = readdir(folder))) {
        char path[PATH_MAX];
        struct stat owner, threads;

        snprintf(path, sizeof(path), "/proc/%s", item->d_name);
        if (item->d_name[0] < '1' || item->d_name[0] > '9' || stat(path, &owner) != 0 ||
            owner.st_uid != getuid())
            continue;
        snprintf(path, sizeof(path), "/proc/%s/task", item->d_name);
        /* Each thread is a subdirectory, and each subdirectory adds a link to its parent. */
        tasks += stat(path, &threads) == 0 && threads.st_nlink > 2 ? (long)threads.st_nlink - 2 : 1;
    }
    if (folder)
        closedir(folder);
    return tasks;
}

static void limits_processes(struct doctor_report *report)
{
    const long needed = LIMITS_PROCESSES + (long)report->ranks * LIMITS_PROCESSES_EACH;
    char most[32], now[32];
    struct rlimit limit;
    long room = -1;      /* number of processes that can be added; -1: unlimited */
    bool cgroup = false; /* true: the cgroup's limit is the lowest */

    if (getuid() != 0 && getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        room = (long)limit.rlim_cur - limits_tasks();
        room = room < 0 ? 0 : room;
    }
    if (doctor_cgroup("pids.max", "pids", "pids.max", most, sizeof(most)) && atol(most) > 0 &&
        doctor_cgroup("pids.current", "pids", "pids.current", now, sizeof(now)) &&
        (room < 0 || atol(most) - atol(now) < room)) {
        room = atol(most) > atol(now) ? atol(most) - atol(now) : 0;
        cgroup = true;
    }

    if (room < 0) {
        doctor_ok(report, "processes", "no limit");
    } else if (room >= needed) {
        doctor_ok(report, "processes", "room for %s", room > 1000 ? "a thousand" : "some");
    } else {
        doctor_fault(report, "processes", "the limit allows only %ld more processes and threads%s",
                     room, cgroup ? " in this cgroup" : " of this user");
        if (!cgroup)
            doctor_fix(report, "ulimit -u $(ulimit -H -u)");
        doctor_other(report, cgroup ? "docker run --pids-limit -1; systemctl set-property "
                                      "user-$(id -u).slice TasksMax=infinity"
                                    : "end processes of this user, or have root raise the limit");
    }
}

/* True if the directory is writable, or does not exist and can be created. */
static bool limits_writable(const char *path)
{
    char folder[PATH_MAX], *slash;
    struct stat status;

    snprintf(folder, sizeof(folder), "%s", path);
    while (stat(folder, &status) != 0) {
        slash = strrchr(folder, '/');
        if (!slash)
            return false;
        slash[slash == folder] = '\0';
    }
    return S_ISDIR(status.st_mode) && access(folder, W_OK | X_OK) == 0;
}

static void limits_cache(struct doctor_report *report)
{
    const char *caches = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char path[PATH_MAX] = "";

    if (caches && *caches)
        snprintf(path, sizeof(path), "%s/libdist", caches);
    else if (home && *home)
        snprintf(path, sizeof(path), "%s/.cache/libdist", home);
    if (*path && limits_writable(path)) {
        doctor_ok(report, "cache", "%.200s", path);
        return;
    }
    doctor_fault(report, "cache", "%.160s cannot be written: each job measures its costs again",
                 *path ? path : "HOME is not set, and a cache");
    doctor_fix(report, "export XDG_CACHE_HOME=\"${TMPDIR:-/tmp}/cache-$(id -u)\"; "
                       "mkdir -p -m 700 \"$XDG_CACHE_HOME\"");
}

/* Memory: sharing between ranks of this machine, /dev/shm, huge pages. */

/* Docker's default size of /dev/shm, too little for NCCL, MPI and torch's data loaders. */
#define MEMORY_SHM ((unsigned long long)64 << 20)

static void memory_probes(struct doctor_report *report)
{
    struct memory_finding finding = {0};

    if (memory_probe(&finding) < 0) {
        doctor_fault(report, "shared-memory", "cannot start two processes for the test");
        return;
    }
    if (finding.share) {
        doctor_fault(report, "shared-memory", "memfd_create: %s", strerror(finding.share));
        doctor_other(report, "allow memfd_create in the seccomp profile: docker run --security-opt "
                             "seccomp=unconfined");
    } else if (finding.map == ENOENT) {
        doctor_fault(report, "shared-memory", "processes cannot find each other in /proc");
        doctor_fix(report, "mount -t proc proc /proc");
        doctor_other(report, "run all ranks in one PID namespace");
    } else if (finding.map) {
        doctor_fault(report, "shared-memory", "cannot map another process's memory: %s",
                     strerror(finding.map));
        doctor_other(report, "run all ranks as one user, without set-user-id or capabilities");
    } else {
        doctor_ok(report, "shared-memory", "ranks can map each other's memory");
    }
    const char *setting = getenv("DIST_SHM_CMA");
    char scope[16] = "0";

    if (!finding.direct && setting && strcmp(setting, "0") == 0) {
        doctor_fault(report, "cma", "it works, but DIST_SHM_CMA=0 turns it off");
        doctor_fix(report, "unset DIST_SHM_CMA");
    } else if (!finding.direct) {
        doctor_ok(report, "cma", "ranks can read each other's memory");
    } else if (doctor_read("/proc/sys/kernel/yama/ptrace_scope", scope, sizeof(scope)) &&
               strcmp(scope, "0") != 0) {
        doctor_fault(report, "cma", "ranks cannot read each other's memory: ptrace_scope is %s",
                     scope);
        doctor_fix(report, "echo 0 >/proc/sys/kernel/yama/ptrace_scope");
        doctor_other(report, "docker run --cap-add SYS_PTRACE");
    } else {
        doctor_fault(report, "cma", "ranks cannot read each other's memory: %s",
                     strerror(finding.direct));
        doctor_other(report, "docker run --cap-add SYS_PTRACE --security-opt seccomp=unconfined");
    }
}

static void memory_shm(struct doctor_report *report)
{
    struct statvfs files;
    unsigned long long size, room;

    if (statvfs("/dev/shm", &files) != 0) {
        doctor_fault(report, "dev-shm", "/dev/shm, which MPI and NCCL use, does not exist");
        doctor_fix(report, "mkdir -p -m 1777 /dev/shm && mount -t tmpfs tmpfs /dev/shm");
        return;
    }
    size = (unsigned long long)files.f_blocks * files.f_frsize;
    room = (unsigned long long)files.f_bavail * files.f_frsize;
    if (size <= MEMORY_SHM) {
        doctor_fault(report, "dev-shm", "/dev/shm has %llu MiB, too little for MPI, NCCL and torch",
                     size >> 20);
        doctor_fix(report, "mount -o remount,size=50%% /dev/shm");
        doctor_other(report, "docker run --shm-size=8g, or --ipc=host");
    } else if (room < MEMORY_SHM) {
        doctor_fault(report, "dev-shm", "/dev/shm is full: %llu of %llu MiB are free", room >> 20,
                     size >> 20);
        doctor_fix(report, "find /dev/shm -type f -user $(id -u) -mmin +60 -delete");
        doctor_other(report, "ls -l /dev/shm shows whose files these are");
    } else {
        doctor_ok(report, "dev-shm", "/dev/shm has %llu MiB", size >> 20);
    }
}

/* CPUs and clocks: the CPU quota, the kernels of the BLAS, the clock source. */

/* Returns the number of CPUs that this process may run on. */
static int doctor_cpu_count(void)
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

/* ---- the quota ---- */

/* Returns the cgroup's CPU quota as a number of CPUs; 0: no limit. */
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

/* Returns the number of threads that a numerical library starts: OMP_NUM_THREADS, or one per CPU.
 */
static int cpus_threads(int cpus)
{
    const char *setting = getenv("OMP_NUM_THREADS");

    return setting && atoi(setting) > 0 ? atoi(setting) : cpus;
}

static void cpus_against_quota(struct doctor_report *report)
{
    const int cpus = doctor_cpu_count(), ranks = report->ranks > 0 ? report->ranks : 1;
    const double quota = cpus_quota();
    const int fair = quota / ranks < 1 ? 1 : (int)(quota / ranks);

    if (quota <= 0 || quota >= cpus) {
        doctor_ok(report, "cpu-quota", "no quota below the %d CPUs", cpus);
    } else if (cpus_threads(cpus) > fair) {
        doctor_fault(report, "cpu-quota",
                     "the cgroup's quota is %.2g CPUs, but libraries start %d threads per rank",
                     quota, cpus_threads(cpus));
        doctor_fix(report, "export OMP_NUM_THREADS=%d", fair);
        doctor_other(report, "docker run --cpus %d", cpus);
    } else if (ranks > (int)(quota + 0.999)) {
        doctor_note(report, "cpu-quota", "%d ranks share a quota of %.2g CPUs", ranks, quota);
    } else {
        doctor_ok(report, "cpu-quota", "%.2g CPUs, and %d threads per rank", quota,
                  cpus_threads(cpus));
    }
}

/* ---- BLAS ---- */

/* True if the first CPU in /proc/cpuinfo has the flag. */
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

/* Checks OPENBLAS_CORETYPE: a forced OpenBLAS kernel that uses an extension which the CPU lacks
 * ends the process with SIGILL. */
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
        doctor_fix(report, "unset OPENBLAS_CORETYPE");
        return;
    }
    doctor_note(report, "blas", "OPENBLAS_CORETYPE=%.40s forces the kernels", kernel);
}

/* ---- clocks ---- */

static void cpus_clock(struct doctor_report *report)
{
    static const char current[] =
        "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    char source[32] = "";

    if (!doctor_read(current, source, sizeof(source))) {
        doctor_note(report, "clock", "cannot read the kernel's clock source");
    } else if (strcmp(source, "hpet") == 0 || strcmp(source, "acpi_pm") == 0) {
        doctor_fault(report, "clock",
                     "the kernel's clock source is %s: reading the time takes "
                     "more than a microsecond",
                     source);
        doctor_fix(report, "echo tsc >%s", current);
    } else {
        doctor_ok(report, "clock", "the clock source is %s", source);
    }
}

/* GPUs: devices on the bus, the driver, and whether it is new enough for the CUDA runtime. */

enum { GPU_SECONDS = 20 };

/* Findings of a child process, which probes the driver: a driver may crash, and must not stay
 * initialized in this process. */
struct gpu_result {
    int loaded, hip;
    int error; /* of initialization, or of counting devices */
    int version, runtime, devices;
    char why[200]; /* why the driver could not be loaded */
};

/*
 * Calls the library's function `int name(int *value)`. Returns its result, or 0 if there is no such
 * function.
 */
static int gpu_call(void *library, const char *name, int *value)
{
    int (*call)(int *);
    void *symbol = dlsym(library, name);

    if (!symbol)
        return 0;
    memcpy(&call, &symbol, sizeof(call));
    return call(value);
}

/*
 * Loads the library `given`, or, if `given` is NULL or empty, the first of `files` that can be
 * loaded.
 */
static void *gpu_open_any(const char *given, const char *const *files)
{
    void *library = given && *given ? dlopen(given, RTLD_NOW | RTLD_LOCAL) : NULL;

    for (; !library && !(given && *given) && *files; files++)
        library = dlopen(*files, RTLD_NOW | RTLD_LOCAL);
    return library;
}

static void gpu_probe(struct gpu_result *result)
{
    static const char *const drivers[] = {"libcuda.so.1", "libamdhip64.so.7", "libamdhip64.so.6",
                                          "libamdhip64.so", NULL};
    static const char *const runtimes[] = {"libcudart.so.13", "libcudart.so.12",
                                           "libcudart.so.11.0", "libcudart.so", NULL};
    void *driver = gpu_open_any(secure_getenv("DIST_GPU_DRIVER"), drivers), *runtime, *symbol;
    int (*init)(unsigned);

    alarm(GPU_SECONDS);
    if (!driver) {
        snprintf(result->why, sizeof(result->why), "%s", dlerror());
        return;
    }
    result->loaded = 1;
    result->hip = !dlsym(driver, "cuInit");
    symbol = dlsym(driver, result->hip ? "hipInit" : "cuInit");
    if (symbol) {
        memcpy(&init, &symbol, sizeof(init));
        result->error = init(0);
    }
    gpu_call(driver, result->hip ? "hipDriverGetVersion" : "cuDriverGetVersion", &result->version);
    if (!result->error)
        result->error = gpu_call(driver, result->hip ? "hipGetDeviceCount" : "cuDeviceGetCount",
                                 &result->devices);
    runtime = result->hip ? NULL : gpu_open_any(NULL, runtimes);
    if (runtime)
        gpu_call(runtime, "cudaRuntimeGetVersion", &result->runtime);
}

/* Probes the driver in a child process. Returns false if the driver crashed or hung, or if no child
 * could be started. */
static bool gpu_probe_in_child(struct gpu_result *result_p)
{
    struct gpu_result *result =
        mmap(NULL, sizeof(*result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status = -1;
    pid_t child;

    if (result == MAP_FAILED)
        return false;
    child = fork();
    if (child == 0) {
        gpu_probe(result);
        _exit(0);
    }
    if (child > 0)
        waitpid(child, &status, 0);
    *result_p = *result;
    munmap(result, sizeof(*result));
    return child > 0 && status == 0;
}

/* Returns the number of NVIDIA and AMD GPUs on the PCI bus. */
static int gpu_on_bus(void)
{
    glob_t devices;
    int count = 0;

    if (glob("/sys/bus/pci/devices/*", GLOB_NOSORT, NULL, &devices) != 0)
        return 0;
    for (size_t i = 0; i < devices.gl_pathc; i++) {
        char path[300], vendor[16] = "", kind[16] = "";

        snprintf(path, sizeof(path), "%.250s/vendor", devices.gl_pathv[i]);
        if (!doctor_read(path, vendor, sizeof(vendor)))
            continue;
        snprintf(path, sizeof(path), "%.250s/class", devices.gl_pathv[i]);
        doctor_read(path, kind, sizeof(kind));
        count += (strcmp(vendor, "0x10de") == 0 || strcmp(vendor, "0x1002") == 0) &&
                 (strncmp(kind, "0x0300", 6) == 0 || strncmp(kind, "0x0302", 6) == 0 ||
                  strncmp(kind, "0x0380", 6) == 0);
    }
    globfree(&devices);
    return count;
}

static void gpu_not_loaded(struct doctor_report *report, const struct gpu_result *result, int bus)
{
    const char *given = secure_getenv("DIST_GPU_DRIVER");

    if (given && *given) {
        doctor_fault(report, "gpu", "DIST_GPU_DRIVER cannot be loaded: %.160s", result->why);
        doctor_fix(report, "unset DIST_GPU_DRIVER");
    } else if (bus) {
        doctor_fault(report, "gpu", "%d GPUs, but no driver library (libcuda.so.1, libamdhip64.so)",
                     bus);
        doctor_other(report,
                     "apt-get install nvidia-driver, or the driver of the GPU's vendor; in a "
                     "container: docker run --gpus all");
    } else {
        doctor_ok(report, "gpu", "none");
    }
}

/* Evaluates a driver that could be loaded. CUDA encodes version 12.4 as 12040. */
static void gpu_loaded(struct doctor_report *report, const struct gpu_result *result, int bus)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    if (visible && (!*visible || strcmp(visible, "-1") == 0) && bus) {
        doctor_fault(report, "gpu", "%d GPUs, but CUDA_VISIBLE_DEVICES hides all", bus);
        doctor_fix(report, "unset CUDA_VISIBLE_DEVICES");
    } else if (result->error && bus) {
        doctor_fault(report, "gpu", "%d GPUs, but the driver fails with error %d", bus,
                     result->error);
        doctor_fix(report, "nvidia-smi");
        doctor_other(report, "the driver library and the kernel module may differ in version: "
                             "reboot; in a container: docker run --gpus all");
    } else if (!result->error && result->runtime / 1000 > result->version / 1000 &&
               result->version) {
        doctor_fault(report, "gpu", "the driver is for CUDA %d.%d, but the CUDA library is %d.%d",
                     result->version / 1000, result->version % 1000 / 10, result->runtime / 1000,
                     result->runtime % 1000 / 10);
        doctor_fix(report, "apt-get install cuda-compat-%d-%d", result->runtime / 1000,
                   result->runtime % 1000 / 10);
        doctor_other(report, "install a newer driver, or an older CUDA library");
    } else if (result->error || !result->devices) {
        doctor_note(report, "gpu", "there is a driver library, but no GPU");
    } else if (result->hip) {
        doctor_ok(report, "gpu", "%d, driver for HIP", result->devices);
    } else {
        doctor_ok(report, "gpu", "%d, driver for CUDA %d.%d", result->devices,
                  result->version / 1000, result->version % 1000 / 10);
    }
}

/* dist_info doctor --job: gathers the reports of all ranks with libdist. */

/* Gathers all reports on rank 0 in *reports_p, which the caller frees. Sets it to NULL on the other
 * ranks. */
static dist_status job_gather(dist_group *group, struct doctor_report *report,
                              struct doctor_report **reports_p)
{
    const size_t ranks = (size_t)dist_get_world_size(group);
    dist_status status;

    report->rank = dist_get_rank(group);
    *reports_p = report->rank == 0 ? calloc(ranks, sizeof(*report)) : NULL;
    if (report->rank == 0 && !*reports_p)
        return DIST_ERR_NO_MEMORY;
    status = dist_barrier(group);
    /* Read the clock right after a barrier, so that the ranks' clocks can be compared. */
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    report->clock = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    if (status == DIST_OK)
        status = dist_gather(group, report, *reports_p, sizeof(*report), DIST_UINT8, 0);
    return status;
}

/* Prints this rank's own report if the job cannot be set up. Uses a single write, so that the
 * ranks' reports do not mix. Returns the exit code. */
static int job_alone(const struct doctor_report *report)
{
    char *text = NULL, why[1024];
    size_t length;
    FILE *to;

    snprintf(why, sizeof(why), "%s", dist_last_error());
    to = open_memstream(&text, &length);
    if (!to)
        return 1;
    fprintf(to, "The job cannot be set up: %s\nReport of %s alone:\n", why, report->host);
    doctor_print(report, false, to);
    fclose(to);
    fwrite(text, 1, length, stdout);
    free(text);
    return 1;
}

/* The command. */

struct words {
    int64_t ranks, timeout;
    const char *format;
    bool job;
    int action;
};

enum { WORDS_TIMEOUT = 60 };

#define AT(member) offsetof(struct words, member)
static const struct args_row words_rows[] = {
    {"ranks", 0, ARGS_INT, AT(ranks), 1, 65536, "N",
     "check the limits for N ranks on this machine"},
    {"job", 0, ARGS_FLAG, AT(job), 0, 0, NULL,
     "run as a rank of a launcher's job: compare the reports of all ranks"},
    {"timeout", 0, ARGS_INT, AT(timeout), 1, 86400, "SECONDS",
     "how long the ranks wait for each other (default: 60)"},
    {"format", 0, ARGS_CHOICE, AT(format), 0, 0, "table|json",
     "for people (the default), or for programs"},
    ARGS_HELP_ROWS(struct words, 0),
};
static const struct args words_args = {
    .rows = words_rows,
    .count = sizeof(words_rows) / sizeof(words_rows[0]),
    .program = "dist_info doctor",
    .usage = "[--ranks N] [--job] [--timeout SECONDS] [--format table|json]",
    .about =
        "Finds what prevents jobs on this machine or slows them down, and shows a command that "
        "fixes each fault. It changes nothing.\n",
    .after = "Exit codes: 0 no fault, 1 a fault or the job cannot be set up, 2 wrong usage.\n"};

/* Runs all checks in the order of the report. The process must have no other threads, since some
 * checks fork. */
static void doctor_examine(struct doctor_report *report)
{
    gethostname(report->host, sizeof(report->host));
    report->clock = (double)time(NULL);
    /* Properties that should be equal on all machines of a job. */
    const long long bytes = (long long)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    struct utsname kernel;

    if (uname(&kernel) == 0)
        doctor_ok(report, "system", "libdist %s, %s %s %s, %d CPUs, %.1f GiB", dist_version(),
                  kernel.sysname, kernel.release, kernel.machine, doctor_cpu_count(),
                  (double)bytes / (1 << 30));
    cpus_against_quota(report);
    cpus_blas(report);
    cpus_clock(report);
    /* Certificates, and comparing logs of several machines, need the right time. 1.7e9 s is late in
     * 2023. */
    struct timex state = {0};

    if (report->clock < 1.7e9) {
        doctor_fault(report, "time", "the clock is years behind");
        doctor_fix(report, "timedatectl set-ntp true");
    } else if (adjtimex(&state) == TIME_ERROR || (state.status & STA_UNSYNC)) {
        doctor_note(report, "time", "the clock is not synchronized with a time server");
        doctor_fix(report, "timedatectl set-ntp true");
    } else {
        doctor_ok(report, "time", "the clock is synchronized");
    }
    doctor_launch(report);
    doctor_network(report);
    doctor_tls(report);
    limits_files(report);
    limits_locked(report);
    limits_processes(report);
    limits_cache(report);
    memory_probes(report);
    memory_shm(report);
    char path[MEMORY_PATH], word[MEMORY_WORD];

    if (!memory_huge_setting(path, word)) {
        doctor_note(report, "huge-pages", "the kernel does not support them for shared memory");
    } else if (strcmp(word, "never") != 0 && strcmp(word, "deny") != 0) {
        doctor_ok(report, "huge-pages", "shmem_enabled is %s", word);
    } else {
        doctor_note(report, "huge-pages",
                    "disabled for shared memory: they make large buffers of "
                    "dist_alloc a little faster");
        doctor_fix(report, "echo advise >%s", path);
    }
    struct gpu_result result = {0};
    const int bus = gpu_on_bus();

    if (!gpu_probe_in_child(&result)) {
        doctor_fault(report, "gpu", "the driver crashes or hangs");
        doctor_other(report, "look for the cause in the output of dmesg");
    } else if (result.loaded) {
        gpu_loaded(report, &result, bus);
    } else {
        gpu_not_loaded(report, &result, bus);
    }
}

/* Returns the number of ranks of this machine according to the launcher; 0: unknown. */
static int doctor_local_ranks(void)
{
    static const char *const names[] = {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "MPI_LOCALNRANKS"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = getenv(names[i]);

        if (value && atoi(value) > 0)
            return atoi(value);
    }
    return 0;
}

int doctor_main(int argc, char **argv)
{
    struct words words = {.timeout = WORDS_TIMEOUT};
    struct doctor_report *report;
    int rest, code = args_begin(&words_args, argc, argv, &words, 0, &rest);

    if (code >= 0)
        return code;
    if (words.job && words.format)
        return args_wrong(&words_args, "--format cannot be combined with --job");
    report = calloc(1, sizeof(*report));
    if (!report) {
        fprintf(stderr, "dist_info: out of memory\n");
        return 1;
    }
    code = 0;
    report->ranks = words.ranks ? (int)words.ranks : doctor_local_ranks();
    fflush(stdout);
    doctor_examine(report);
    if (words.job && launched_in_job()) {
        /*
         * Every rank runs this: gathers all reports on rank 0, which prints the findings that all
         * ranks have, and those that only some have.
         */
        struct dist_options options = DIST_OPTIONS_INIT;
        struct doctor_report *reports = NULL;
        dist_group *group = NULL;
        dist_status status;
        options.backend = "gloo";
        options.timeout_ms = (int)words.timeout * 1000;
        status = dist_init_process_group(&options, &group);
        if (status == DIST_OK)
            status = job_gather(group, report, &reports);
        if (status != DIST_OK)
            code = job_alone(report);
        else if (reports)
            code = doctor_compare(reports, dist_get_world_size(group), stdout) > 0;
        if (group)
            dist_destroy_process_group(group);
        free(reports);
    } else {
        code = doctor_print(report, words.format && strcmp(words.format, "json") == 0, stdout) > 0;
    }
    if (words.job && !launched_in_job()) {
        fprintf(stderr, "dist_info: doctor --job: no launcher has started this process: start "
                        "dist_info with mpirun, "
                        "distrun or srun\n");
        code = 1;
    }
    free(report);
    return code;
}
