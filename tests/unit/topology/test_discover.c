/* SPDX-License-Identifier: BSD-3-Clause */
/* Discovery: the locality on a simulated machine, and the usable CPUs of the real one. */
#include "topology/discover.h"

#include "../base/unit.h"

#include <config.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A directory of this test, in which files are made by path; removed at the end. */
static char folder[] = "/tmp/dist-cgroup-XXXXXX";

static int folder_make(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int folder_remove(void **state)
{
    char command[64];

    (void)state;
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command);
}

/* Writes folder/path, and makes missing directories. */
static void folder_write(const char *path, const char *text)
{
    char full[256];

    snprintf(full, sizeof(full), "%s/%s", folder, path);
    for (char *slash = full + sizeof(folder); (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = '\0';
        mkdir(full, 0700);
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int quota_of(const char *membership)
{
    char path[256], mounts[256];

    folder_write("membership", membership);
    snprintf(path, sizeof(path), "%s/membership", folder);
    snprintf(mounts, sizeof(mounts), "%s/mounts", folder);
    return disti_quota_cpus(path, mounts);
}

static void test_quota_of_cgroups_v2(void **state)
{
    (void)state;
    folder_write("mounts/job/task/cpu.max", "max 100000\n");
    assert_int_equal(quota_of("0::/job/task\n"), 0);
    folder_write("mounts/job/cpu.max", "250000 100000\n");
    assert_int_equal(quota_of("0::/job/task\n"), 3); /* the parent's limit, rounded up */
    folder_write("mounts/job/task/cpu.max", "200000 100000\n");
    assert_int_equal(quota_of("0::/job/task\n"), 2);
    folder_write("mounts/job/task/cpu.max", "1 100000\n");
    assert_int_equal(quota_of("0::/job/task\n"), 1);
    assert_int_equal(quota_of("0::/elsewhere\n"), 0);
    folder_write("mounts/cpu.max", "700000 100000\n");
    assert_int_equal(quota_of("0::/not/visible/here\n"), 7); /* as in a container */
    assert_int_equal(quota_of("0::/\n"), 7);
    folder_write("mounts/cpu.max", "rubbish\n");
    assert_int_equal(quota_of("0::/\n"), 0);
    assert_int_equal(disti_quota_cpus("/nonexistent/cgroup", folder), 0);
}

static void test_quota_of_cgroups_v1(void **state)
{
    (void)state;
    folder_write("mounts/cpu/old/cpu.cfs_quota_us", "-1\n");
    folder_write("mounts/cpu/old/cpu.cfs_period_us", "100000\n");
    assert_int_equal(quota_of("4:memory:/x\n1:cpu,cpuacct:/old\n0::/\n"), 0);
    folder_write("mounts/cpu/old/cpu.cfs_quota_us", "350000\n");
    assert_int_equal(quota_of("4:memory:/x\n1:cpu,cpuacct:/old\n0::/\n"), 4);
    assert_int_equal(quota_of("1:cpuacct,cpu:/old\n"), 4);
    assert_int_equal(quota_of("1:cpuset:/old\n2:cpuacct:/old\n"), 0);
    folder_write("mounts/cpu/old/cpu.cfs_period_us", "0\n");
    assert_int_equal(quota_of("1:cpu:/old\n"), 0);
    assert_int_equal(quota_of("no colons\n\n1:cpu\n"), 0);
}

/* A process that is bound to one CPU can use one CPU, on any machine. */
static void test_usable_cpus_follow_the_affinity(void **state)
{
    cpu_set_t before, one;
    int cpu = 0;

    (void)state;
    if (sched_getaffinity(0, sizeof(before), &before) != 0)
        skip();
    assert_in_range(disti_usable_cpus(), 1, CPU_COUNT(&before));
    while (!CPU_ISSET(cpu, &before))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    assert_int_equal(disti_usable_cpus(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
}

static void test_locality_is_discovered_completely(void **state)
{
    struct disti_locality one, two;
    char host[DISTI_HOST_SIZE];

    (void)state;
    memset(&one, 1, sizeof(one));
    memset(&two, 2, sizeof(two));
    assert_int_equal(disti_discover(0, 2, &one), DIST_OK);
    assert_int_equal(disti_discover(0, 2, &two), DIST_OK);
    assert_memory_equal(&one, &two, sizeof(one)); /* all bytes are initialized */
    disti_host_name(host);
    assert_string_equal(one.host, host);
    assert_int_equal(one.pid, getpid());
    assert_int_equal(one.usable_cpus, disti_usable_cpus());
    assert_int_equal(one.place.node, -1);
    assert_int_equal(one.place.gpu, -1);
    assert_true(one.place.core >= 0);
}

/* Two packages with alternating CPU numbers, of two cores with two threads each; a NUMA node per
 * package, and a third one with memory only:
 *   package 0: core 0 (CPUs 0 4), core 1 (CPUs 2 6)    package 1: core 2 (1 5), core 3 (3 7) */
static void machine_write(void)
{
    char path[128], list[32];

    folder_write("system/cpu/online", "0-7\n");
    folder_write("system/node/online", "0-2\n");
    folder_write("system/node/node0/cpulist", "0,2,4,6\n");
    folder_write("system/node/node1/cpulist", "1,3,5,7\n");
    folder_write("system/node/node2/cpulist", "\n");
    for (int cpu = 0; cpu < 8; cpu++) {
        snprintf(path, sizeof(path), "system/cpu/cpu%d/topology/thread_siblings_list", cpu);
        snprintf(list, sizeof(list), "%d,%d\n", cpu % 4, cpu % 4 + 4);
        folder_write(path, list);
        snprintf(path, sizeof(path), "system/cpu/cpu%d/topology/core_siblings_list", cpu);
        folder_write(path, cpu % 2 ? "1,3,5,7\n" : "0,2,4,6\n");
    }
}

static bool machine_place(uint64_t affinity, int local_rank, int local_ranks,
                          struct dist_place *place)
{
    const uint64_t cpus[DISTI_CPU_WORDS] = {affinity};
    char root[256];

    snprintf(root, sizeof(root), "%s/system", folder);
    return disti_sysfs_locality(root, cpus, local_rank, local_ranks, place);
}

static void assert_place(uint64_t affinity, int local_rank, int local_ranks, int core, int package)
{
    struct dist_place place;

    assert_true(machine_place(affinity, local_rank, local_ranks, &place));
    assert_int_equal(place.core, core);
    assert_int_equal(place.package, package);
    assert_int_equal(place.numa, package);
}

static void test_locality_is_read_from_sysfs(void **state)
{
    struct dist_place place;

    (void)state;
    assert_false(machine_place(0, 0, 1, &place)); /* no files yet */
    machine_write();
    for (int local = 0; local < 4; local++)
        assert_place(0, local, 4, local, local / 2);
    assert_place(0xff, 1, 2, 2, 1);
    assert_place(1 << 6, 0, 1, 1, 0); /* bound to one thread each */
    assert_place(1 << 5, 1, 2, 2, 1);
    assert_place(1 << 2 | 1 << 7, 1, 2, 3, 1);
    folder_write("system/cpu/online", "0-7,4096\n"); /* more than fit in a mask */
    assert_false(machine_place(0, 0, 1, &place));
    folder_write("system/cpu/online", "rubbish\n");
    assert_false(machine_place(0, 0, 1, &place));
    folder_write("system/cpu/online", "0-7\n");
    folder_write("system/cpu/cpu3/topology/thread_siblings_list", "\n");
    assert_false(machine_place(0, 0, 1, &place));
}

#ifdef HAVE_HWLOC
/* The result from the kernel's files is the same as that of hwloc. */
static void test_hwloc_and_sysfs_agree(void **state)
{
    struct disti_locality ours, theirs;

    (void)state;
    for (int local = 0; local < 4; local++) {
        assert_int_equal(disti_discover(local, 4, &ours), DIST_OK);
        setenv("HWLOC_COMPONENTS", "-gl", 1);
        assert_int_equal(disti_discover(local, 4, &theirs), DIST_OK);
        unsetenv("HWLOC_COMPONENTS");
        assert_memory_equal(&ours.place, &theirs.place, sizeof(ours.place));
    }
}

static struct dist_place place_on(const char *machine, int local_rank, int local_ranks)
{
    struct disti_locality locality;

    setenv("HWLOC_SYNTHETIC", machine, 1);
    assert_int_equal(disti_discover(local_rank, local_ranks, &locality), DIST_OK);
    unsetenv("HWLOC_SYNTHETIC");
    return locality.place;
}

static void test_places_on_a_synthetic_machine(void **state)
{
    const char *machine = "package:2 numa:2 core:4 pu:2"; /* 16 cores */

    (void)state;
    for (int local = 0; local < 8; local++) {
        struct dist_place place = place_on(machine, local, 8);

        assert_int_equal(place.core, local * 2);
        assert_int_equal(place.numa, local / 2);
        assert_int_equal(place.package, local / 4);
    }
    for (int local = 0; local < 32; local++) /* more ranks than cores */
        assert_int_equal(place_on(machine, local, 32).core, local / 2);
    assert_int_equal(place_on(machine, 35, 32).core, 1); /* a number out of range wraps around */
    assert_int_equal(place_on("pu:6", 1, 2).core, 3);
    assert_int_equal(place_on("pu:6", 1, 2).package, -1);
}
#endif

static void test_nodes_are_numbered_by_rank(void **state)
{
    static const uint64_t machines[] = {77, 5, 77, UINT64_MAX, 5, 77};
    static const int nodes[] = {0, 1, 0, 2, 1, 0};
    struct disti_locality localities[6];
    struct dist_place places[6];

    (void)state;
    memset(localities, 0, sizeof(localities));
    memset(places, 0, sizeof(places));
    for (int rank = 0; rank < 6; rank++)
        localities[rank].machine = machines[rank];
    assert_int_equal(disti_number_nodes(localities, 6, places), 3);
    for (int rank = 0; rank < 6; rank++)
        assert_int_equal(places[rank].node, nodes[rank]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quota_of_cgroups_v2),
        cmocka_unit_test(test_quota_of_cgroups_v1),
        cmocka_unit_test(test_usable_cpus_follow_the_affinity),
        cmocka_unit_test(test_locality_is_discovered_completely),
        cmocka_unit_test(test_locality_is_read_from_sysfs),
#ifdef HAVE_HWLOC
        cmocka_unit_test(test_hwloc_and_sysfs_agree),
        cmocka_unit_test(test_places_on_a_synthetic_machine),
#endif
        cmocka_unit_test(test_nodes_are_numbered_by_rank),
    };

    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
