/* SPDX-License-Identifier: BSD-3-Clause */
/* Launchers and settings: slots, root, Open MPI's parameters, where the ranks meet, names. */
#include "../common/launched.h"
#include "doctor.h"

#include <arpa/inet.h>
#include <dist/backend.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Open MPI ---- */

/* The major version of the Open MPI whose mpirun is found first; 0: there is none. */
static int launch_openmpi(void)
{
    FILE *answer = popen("m=$(command -v mpirun.openmpi || command -v mpirun) && "
                         "timeout 5 \"$m\" --version 2>/dev/null </dev/null",
                         "re");
    char line[128] = "";
    const char *number;
    int version = 0;

    if (!answer)
        return 0;
    if (fgets(line, sizeof(line), answer) &&
        (strstr(line, "Open MPI") || strstr(line, "OpenRTE"))) {
        number = strpbrk(line, "0123456789");
        version = number ? atoi(number) : 0;
    }
    pclose(answer);
    return version;
}

/* Cores, not hardware threads, of the CPUs there are: what Open MPI counts as slots. */
static int launch_cores(void)
{
    static int seen[4096]; /* too large for a small stack */
    char path[128], package[16], core[16];
    int cores = 0;
    const long cpus = sysconf(_SC_NPROCESSORS_CONF);

    for (long cpu = 0; cpu < cpus && cores < 4096; cpu++) {
        int key, i = 0;

        snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%ld/topology/core_id", cpu);
        if (!doctor_read(path, core, sizeof(core)))
            continue;
        snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%ld/topology/physical_package_id",
                 cpu);
        if (!doctor_read(path, package, sizeof(package)))
            continue;
        key = atoi(package) * 65536 + atoi(core);
        while (i < cores && seen[i] != key)
            i++;
        if (i == cores)
            seen[cores++] = key;
    }
    return cores ? cores : (int)cpus;
}

static bool launch_is_set(const char *name)
{
    const char *value = getenv(name);

    return value && *value;
}

static void launch_slots(struct doctor_report *report, int version)
{
    const char *variable = version < 5 ? "OMPI_MCA_rmaps_base_oversubscribe=1"
                                       : "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe";
    const int slots = launch_cores();

    if (launch_is_set(version < 5 ? "OMPI_MCA_rmaps_base_oversubscribe"
                                  : "PRTE_MCA_rmaps_default_mapping_policy")) {
        doctor_ok(report, "slots", "Open MPI may start more ranks than the %d cores", slots);
    } else if (report->ranks > slots) {
        doctor_fault(report, "slots",
                     "Open MPI refuses %d ranks here: it has a slot for each of %d "
                     "cores",
                     report->ranks, slots);
        doctor_mend(report, "export %s", variable);
        doctor_other(report, "mpirun --oversubscribe, or a hostfile with more slots");
    } else {
        doctor_ok(report, "slots", "%d: Open MPI starts more ranks with --oversubscribe only",
                  slots);
    }
}

static void launch_root(struct doctor_report *report)
{
    if (geteuid() != 0) {
        doctor_ok(report, "root", "not root");
    } else if (launch_is_set("OMPI_ALLOW_RUN_AS_ROOT") &&
               launch_is_set("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")) {
        doctor_ok(report, "root", "Open MPI is allowed to run as root");
    } else {
        doctor_fault(report, "root", "Open MPI refuses to run as root");
        doctor_mend(report, "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1");
        doctor_other(report, "run jobs as another user");
    }
}

/* Does the file have a line "pml = ^ucx", or so? */
static bool launch_refuses_ucx(const char *path)
{
    FILE *file = fopen(path, "re");
    char line[256];
    bool refuses = false;

    while (file && fgets(line, sizeof(line), file)) {
        const char *name = line + strspn(line, " \t");

        refuses = refuses || (strncmp(name, "pml", 3) == 0 && strchr(name, '^') &&
                              strstr(strchr(name, '^'), "ucx"));
    }
    if (file)
        fclose(file);
    return refuses;
}

static void launch_ucx(struct doctor_report *report)
{
    static const char *const files[] = {"/etc/openmpi/openmpi-mca-params.conf",
                                        "/usr/local/etc/openmpi-mca-params.conf",
                                        "/usr/lib64/openmpi/etc/openmpi-mca-params.conf"};
    const bool fast = doctor_exists("/sys/class/infiniband/*", NULL, 0);
    const char *refuses = NULL;

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]) && !refuses; i++)
        refuses = launch_refuses_ucx(files[i]) ? files[i] : NULL;
    if (!refuses || launch_is_set("OMPI_MCA_pml")) {
        doctor_ok(report, "openmpi-ucx", "Open MPI may use UCX");
    } else if (!fast) {
        doctor_note(report, "openmpi-ucx", "%s forbids UCX; no matter, as no InfiniBand is here",
                    refuses);
    } else {
        doctor_fault(report, "openmpi-ucx", "%s forbids UCX, so MPI uses no InfiniBand", refuses);
        doctor_mend(report, "export OMPI_MCA_pml=ucx OMPI_MCA_osc=ucx");
        doctor_other(report, "remove ^ucx from that file");
    }
}

/* ---- settings ---- */

static void launch_unknown(struct doctor_report *report, char *line)
{
    const char *name, *like;

    strsep(&line, "\t");
    name = strsep(&line, "\t");
    like = strsep(&line, "\t");
    if (like && *like)
        doctor_fault(report, "variables", "nobody reads %.80s: did you mean %s?", name, like);
    else
        doctor_fault(report, "variables", "nobody reads %.80s", name);
    if (like && *like)
        doctor_mend(report, "export %s=\"$%.80s\"; unset %.80s", like, name, name);
    else
        doctor_mend(report, "unset %.80s", name);
}

static void launch_wrong(struct doctor_report *report, char *line)
{
    const char *name;

    strsep(&line, "\t");
    name = strsep(&line, "\t");
    strsep(&line, "\t");
    doctor_fault(report, "variables", "%.300s", line ? line : name);
    doctor_mend(report, "unset %.80s", name);
}

static void launch_variables(struct doctor_report *report)
{
    const size_t size = dist_list_variables(NULL, 0) + 1;
    char *text = malloc(size), *rest = text, *line;
    int before = report->count;

    if (text)
        dist_list_variables(text, size);
    while ((line = strsep(&rest, "\n"))) {
        if (strncmp(line, "unknown\t", strlen("unknown\t")) == 0)
            launch_unknown(report, line);
        else if (strncmp(line, "wrong\t", strlen("wrong\t")) == 0)
            launch_wrong(report, line);
    }
    free(text);
    if (report->count == before)
        doctor_ok(report, "variables",
                  "libdist knows every DIST_ variable that is set, and its value");
}

/* ---- where the ranks meet ---- */

static bool launch_is_loopback(const struct addrinfo *at)
{
    const struct sockaddr_in *four = (const void *)at->ai_addr;
    const struct sockaddr_in6 *six = (const void *)at->ai_addr;

    return at->ai_family == AF_INET ? ntohl(four->sin_addr.s_addr) >> 24 == 127
                                    : IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
}

/* More ranks in the job than on this machine? */
static bool launch_several_machines(void)
{
    const char *all = getenv("WORLD_SIZE"), *here = getenv("LOCAL_WORLD_SIZE");

    return all && here && atoi(all) > atoi(here);
}

/* The first one: its own name may stand for itself by a loopback address, as Debian has it. */
static bool launch_is_first_machine(const char *host)
{
    const char *rank = getenv("RANK"), *local_rank = getenv("LOCAL_RANK");
    unsigned char bytes[sizeof(struct in6_addr)];
    const bool numeric =
        inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;

    return rank && local_rank && atoi(rank) == atoi(local_rank) && !numeric &&
           strcmp(host, "localhost") != 0;
}

static void launch_meeting(struct doctor_report *report)
{
    const char *host = getenv("MASTER_ADDR");
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    int error;

    if (!host || !*host) {
        doctor_ok(report, "meeting", "MASTER_ADDR is not set: the launcher says where ranks meet");
        return;
    }
    error = getaddrinfo(host, NULL, &hints, &found);
    if (error) {
        doctor_fault(report, "meeting", "MASTER_ADDR=%.60s: %s", host, gai_strerror(error));
        doctor_mend(report, "export MASTER_ADDR=127.0.0.1");
        doctor_other(report, "with several machines: an address of the first one");
        return;
    }
    if (launch_is_loopback(found) && launch_several_machines() && !launch_is_first_machine(host)) {
        doctor_fault(report, "meeting",
                     "MASTER_ADDR=%.60s is this machine here, but rank 0 is on another", host);
        doctor_other(report, "set MASTER_ADDR to an address of the first machine that the others "
                             "reach");
    } else {
        doctor_ok(report, "meeting", "MASTER_ADDR=%.60s resolves", host);
    }
    freeaddrinfo(found);
}

void doctor_launch(struct doctor_report *report)
{
    const int version = launched_in_job() ? 0 : launch_openmpi();

    if (version) {
        launch_slots(report, version);
        launch_root(report);
    }
    launch_ucx(report);
    launch_variables(report);
    launch_meeting(report);
}
