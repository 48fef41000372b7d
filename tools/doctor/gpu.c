/* SPDX-License-Identifier: BSD-3-Clause */
/* GPUs: devices on the bus, their driver, and whether it is new enough for the runtime. */
#include "doctor.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GPU_SECONDS = 20 };

/* What a child has found: drivers may crash, and must not be left initialized here. */
struct gpu_answer {
    int loaded, hip;
    int error; /* of init or count */
    int version, runtime, devices;
    char why[200]; /* the driver could not be loaded */
};

static int gpu_call(void *library, const char *name, int *value)
{
    int (*call)(int *);
    void *symbol = dlsym(library, name);

    if (!symbol)
        return 0;
    memcpy(&call, &symbol, sizeof(call));
    return call(value);
}

static void *gpu_open_any(const char *given, const char *const *files)
{
    void *library = given && *given ? dlopen(given, RTLD_NOW | RTLD_LOCAL) : NULL;

    for (; !library && !(given && *given) && *files; files++)
        library = dlopen(*files, RTLD_NOW | RTLD_LOCAL);
    return library;
}

static void gpu_ask(struct gpu_answer *answer)
{
    static const char *const drivers[] = {"libcuda.so.1", "libamdhip64.so.7", "libamdhip64.so.6",
                                          "libamdhip64.so", NULL};
    static const char *const runtimes[] = {"libcudart.so.13", "libcudart.so.12",
                                           "libcudart.so.11.0", "libcudart.so", NULL};
    void *driver = gpu_open_any(secure_getenv("DIST_GPU_DRIVER"), drivers), *runtime, *symbol;
    int (*init)(unsigned);

    alarm(GPU_SECONDS);
    if (!driver) {
        snprintf(answer->why, sizeof(answer->why), "%s", dlerror());
        return;
    }
    answer->loaded = 1;
    answer->hip = !dlsym(driver, "cuInit");
    symbol = dlsym(driver, answer->hip ? "hipInit" : "cuInit");
    if (symbol) {
        memcpy(&init, &symbol, sizeof(init));
        answer->error = init(0);
    }
    gpu_call(driver, answer->hip ? "hipDriverGetVersion" : "cuDriverGetVersion", &answer->version);
    if (!answer->error)
        answer->error = gpu_call(driver, answer->hip ? "hipGetDeviceCount" : "cuDeviceGetCount",
                                 &answer->devices);
    runtime = answer->hip ? NULL : gpu_open_any(NULL, runtimes);
    if (runtime)
        gpu_call(runtime, "cudaRuntimeGetVersion", &answer->runtime);
}

/* False: the driver crashed or did not come back, or there is no process for it. */
static bool gpu_ask_apart(struct gpu_answer *answer_p)
{
    struct gpu_answer *answer =
        mmap(NULL, sizeof(*answer), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status = -1;
    pid_t child;

    if (answer == MAP_FAILED)
        return false;
    child = fork();
    if (child == 0) {
        gpu_ask(answer);
        _exit(0);
    }
    if (child > 0)
        waitpid(child, &status, 0);
    *answer_p = *answer;
    munmap(answer, sizeof(*answer));
    return child > 0 && status == 0;
}

/* GPUs of NVIDIA and AMD on the bus. */
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

static void gpu_not_loaded(struct doctor_report *report, const struct gpu_answer *answer, int bus)
{
    const char *given = secure_getenv("DIST_GPU_DRIVER");

    if (given && *given) {
        doctor_fault(report, "gpu", "DIST_GPU_DRIVER cannot be loaded: %.160s", answer->why);
        doctor_mend(report, "unset DIST_GPU_DRIVER");
    } else if (bus) {
        doctor_fault(report, "gpu", "%d GPUs, but no driver library (libcuda.so.1, libamdhip64.so)",
                     bus);
        doctor_other(report,
                     "apt-get install nvidia-driver, or the driver of the GPU's maker; in a "
                     "container: docker run --gpus all");
    } else {
        doctor_ok(report, "gpu", "none");
    }
}

/* CUDA's errors and versions: 12040 is 12.4. */
static void gpu_loaded(struct doctor_report *report, const struct gpu_answer *answer, int bus)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    if (visible && (!*visible || strcmp(visible, "-1") == 0) && bus) {
        doctor_fault(report, "gpu", "%d GPUs, but CUDA_VISIBLE_DEVICES hides all", bus);
        doctor_mend(report, "unset CUDA_VISIBLE_DEVICES");
    } else if (answer->error && bus) {
        doctor_fault(report, "gpu", "%d GPUs, but the driver fails with error %d", bus,
                     answer->error);
        doctor_mend(report, "nvidia-smi");
        doctor_other(report, "the library and the kernel's module may be of different versions: "
                             "start the machine anew; in a container: docker run --gpus all");
    } else if (!answer->error && answer->runtime / 1000 > answer->version / 1000 &&
               answer->version) {
        doctor_fault(report, "gpu", "the driver is for CUDA %d.%d, but the CUDA library is %d.%d",
                     answer->version / 1000, answer->version % 1000 / 10, answer->runtime / 1000,
                     answer->runtime % 1000 / 10);
        doctor_mend(report, "apt-get install cuda-compat-%d-%d", answer->runtime / 1000,
                    answer->runtime % 1000 / 10);
        doctor_other(report, "install a newer driver, or an older CUDA library");
    } else if (answer->error || !answer->devices) {
        doctor_note(report, "gpu", "a driver library, but no GPU");
    } else if (answer->hip) {
        doctor_ok(report, "gpu", "%d, driver for HIP", answer->devices);
    } else {
        doctor_ok(report, "gpu", "%d, driver for CUDA %d.%d", answer->devices,
                  answer->version / 1000, answer->version % 1000 / 10);
    }
}

void doctor_gpu(struct doctor_report *report)
{
    struct gpu_answer answer = {0};
    const int bus = gpu_on_bus();

    if (!gpu_ask_apart(&answer)) {
        doctor_fault(report, "gpu", "the driver crashes, or does not come back");
        doctor_other(report, "dmesg may say why");
    } else if (answer.loaded) {
        gpu_loaded(report, &answer, bus);
    } else {
        gpu_not_loaded(report, &answer, bus);
    }
}
