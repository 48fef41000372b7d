/* SPDX-License-Identifier: BSD-3-Clause */
/* Costs: measured between ranks, agreed on, and cached in files that may be damaged. */
#include "engine_rank.h"

#include "engine/engine.h"
#include "engine/state.h"

#include <fcntl.h>
#include <sys/stat.h>

#define KEY "a machine, 4 ranks"

static char cache[64];
static char why[512];

/* Creates an empty cache directory. */
static int setup(void **state)
{
    (void)state;
    strcpy(cache, "/tmp/dist-tune.XXXXXX");
    setenv("XDG_CACHE_HOME", mkdtemp(cache), 1);
    unsetenv("DIST_TUNING");
    return 0;
}

static int teardown(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s", cache);
    return system(command);
}

static void put(const char *path, const void *text, size_t bytes)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    fclose(file);
}

/* ---- the cache ---- */

static void test_written_costs_are_found(void **state)
{
    struct disti_tuning tuning, found;
    char path[TUNE_PATH];
    int32_t effort = -1;

    (void)state;
    disti_tuning_usual(&tuning);
    tuning.cost.switch_s = 777e-9;
    disti_tuning_round(&tuning);
    assert_int_equal(disti_tune_find(KEY, &found, &effort), DIST_OK);
    assert_int_equal(effort, TUNE_HASTE);
    assert_true(disti_tune_write(&tuning, KEY));
    assert_true(disti_tune_write(&tuning, KEY)); /* a second time */
    assert_int_equal(disti_tune_find(KEY, &found, &effort), DIST_OK);
    assert_int_equal(effort, TUNE_NOTHING);
    assert_memory_equal(&found.cost, &tuning.cost, sizeof(found.cost));
    assert_int_equal(disti_tune_find(KEY "2", &found, &effort), DIST_OK);
    assert_int_equal(effort, TUNE_HASTE);
    assert_true(disti_tune_path(KEY, path));
    assert_memory_equal(path, cache, strlen(cache));
}

/* A damaged cache file is ignored, and its costs are measured again. */
static void test_damaged_files_are_measured_again(void **state)
{
    static const char *const texts[] = {"", "nonsense", "libdist tuning 1\n",
                                        "libdist tuning 1\nkey another machine\n",
                                        "libdist tuning 1\nkey " KEY "\nstep_ns 0\n"};
    struct disti_tuning tuning, found, usual;
    char path[TUNE_PATH];
    int32_t effort;

    (void)state;
    disti_tuning_usual(&usual);
    tuning = usual;
    assert_true(disti_tune_write(&tuning, KEY)); /* creates the directory */
    assert_true(disti_tune_path(KEY, path));
    for (int i = 0; i < 5; i++) {
        put(path, texts[i], strlen(texts[i]));
        effort = -1;
        assert_int_equal(disti_tune_find(KEY, &found, &effort), DIST_OK);
        assert_int_equal(effort, TUNE_HASTE);
        assert_memory_equal(&found, &usual, sizeof(found));
    }
    put(path, "libdist tuning 1\nkey " KEY "\n\0step_ns 5\n", strlen(KEY) + 34);
    assert_int_not_equal(disti_tune_read(path, KEY, &found, why, sizeof(why)), DIST_OK);
    assert_non_null(strstr(why, "not a text file"));
    assert_true(disti_tune_write(&tuning, KEY));
    assert_int_equal(disti_tune_find(KEY, &found, &effort), DIST_OK);
    assert_int_equal(effort, TUNE_NOTHING);
}

/* Files that are not regular, or too long, are rejected without blocking. */
static void test_special_and_long_files_are_rejected(void **state)
{
    struct disti_tuning found;
    char path[TUNE_PATH];

    (void)state;
    snprintf(path, sizeof(path), "%s/fifo", cache);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_not_equal(disti_tune_read(path, NULL, &found, why, sizeof(why)), DIST_OK);
    assert_non_null(strstr(why, "fifo"));
    assert_int_not_equal(disti_tune_read(cache, NULL, &found, why, sizeof(why)), DIST_OK);
    assert_int_not_equal(disti_tune_read("/dev/zero", NULL, &found, why, sizeof(why)), DIST_OK);
    snprintf(path, sizeof(path), "%s/long", cache);
    put(path, "libdist tuning 1\n", 17);
    assert_int_equal(truncate(path, 1 << 20), 0);
    assert_int_not_equal(disti_tune_read(path, NULL, &found, why, sizeof(why)), DIST_OK);
}

static void test_without_a_cache_directory_costs_are_measured(void **state)
{
    struct disti_tuning tuning;
    char path[TUNE_PATH];
    int32_t effort;

    (void)state;
    disti_tuning_usual(&tuning);
    setenv("XDG_CACHE_HOME", "not/absolute", 1);
    setenv("HOME", "/proc/self/nowhere", 1);
    assert_true(disti_tune_path(KEY, path));
    assert_memory_equal(path, "/proc/self/nowhere/.cache/libdist/", 34);
    assert_false(disti_tune_write(&tuning, KEY));
    unsetenv("HOME");
    assert_false(disti_tune_path(KEY, path));
    assert_false(disti_tune_write(&tuning, KEY));
    assert_int_equal(disti_tune_find(KEY, &tuning, &effort), DIST_OK);
    assert_int_equal(effort, TUNE_HASTE);
}

static void test_DIST_TUNING_selects_the_costs(void **state)
{
    struct disti_tuning found;
    char path[TUNE_PATH];
    int32_t effort;

    (void)state;
    setenv("DIST_TUNING", "off", 1);
    assert_int_equal(disti_tune_find(KEY, &found, &effort), DIST_OK);
    assert_int_equal(found.predict, 0);
    assert_int_equal(effort, TUNE_NOTHING);
    setenv("DIST_TUNING", "measure", 1);
    assert_int_equal(disti_tune_find(KEY, &found, &effort), DIST_OK);
    assert_int_equal(effort, TUNE_CARE);
    setenv("DIST_TUNING", "/nowhere/at/all", 1);
    assert_int_equal(disti_tune_find(KEY, &found, &effort), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "DIST_TUNING"));
    assert_non_null(strstr(dist_last_error(), "/nowhere/at/all"));
    snprintf(path, sizeof(path), "%s/mine", cache);
    put(path, "libdist tuning 1\nstep_ns 61\nkey elsewhere\n", 41);
    setenv("DIST_TUNING", path, 1);
    assert_int_equal(disti_tune_find(KEY, &found, &effort), DIST_OK);
    assert_int_equal(effort, TUNE_NOTHING);
    assert_true(found.cost.step_s == 61 * 1e-9);
}

/* ---- the CPUs ---- */

static void node_cpus(const char *text, int usable, int wanted)
{
    struct disti_topology *topology = NULL;

    assert_int_equal(disti_topology_synthetic(text, &topology), DIST_OK);
    assert_int_equal(disti_tune_node_cpus(topology, usable), wanted);
    disti_topology_free(topology);
}

static void test_node_cpus_is_set_if_ranks_share_cpus(void **state)
{
    static const struct dist_place shared[3] = {{.core = 0}, {.core = 1}, {.core = 0}};
    struct disti_topology *topology = NULL;

    (void)state;
    node_cpus("core:8", 2, 2);
    node_cpus("core:8", 8, 0);
    node_cpus("core:8", 1, 0); /* each rank is bound to one core */
    node_cpus("node:3 core:4", 3, 3);
    node_cpus("node:4", 1, 0);
    assert_int_equal(disti_topology_create(shared, 3, &topology), DIST_OK);
    assert_int_equal(disti_tune_node_cpus(topology, 1), 2);
    disti_topology_free(topology);
}

/* ---- between ranks ---- */

/* Checks that all ranks have exactly rank 0's costs. */
static void agree(struct engine_rank *rank)
{
    struct disti_tuning *tunings = calloc(2, sizeof(*tunings));
    struct disti_tuning *mine = &rank->engine->tuning;
    int source = -1;

    CHECK(tunings && disti_tuning_sane(mine));
    if (rank->rank == 0) {
        for (int r = 1; r < rank->ranks; r++)
            engine_rank_call(rank, send_to(r, TAG, (const int32_t *)mine, sizeof(*mine) / 4));
    } else {
        engine_rank_call(rank, recv_from(0, TAG, (int32_t *)tunings, sizeof(*mine) / 4, &source));
        CHECK(memcmp(tunings, mine, sizeof(*mine)) == 0);
    }
    free(tunings);
}

static void measured(struct engine_rank *rank)
{
    const struct disti_tuning *tuning = &rank->engine->tuning;

    agree(rank);
    CHECK(strncmp(tuning->source, "measured", 8) == 0);
    CHECK(tuning->cost.copy_bytes_per_second != disti_cost_usual.copy_bytes_per_second);
    for (int d = 0; d <= DISTI_OTHER_NODE; d++) {
        bool there = d == DISTI_OTHER_NODE ? engine_ranks_scattered
                                           : !engine_ranks_scattered || rank->ranks > 2;

        CHECK(there == (tuning->cost.links[d].latency_s != disti_cost_usual.links[d].latency_s));
    }
}

static void found(struct engine_rank *rank)
{
    agree(rank);
    CHECK(strncmp(rank->engine->tuning.source, "the file", 8) == 0);
}

/* The costs are measured in the first run and found in the cache in the second. */
static void test_ranks_measure_and_cache_costs(void **state)
{
    (void)state;
    engine_ranks_world = true;
    engine_ranks_run(2, "shm", measured);
    engine_ranks_run(2, "shm", found);
    engine_ranks_run(4, "shm", measured); /* the costs of two ranks do not apply */
    engine_ranks_run(2, "tcp", measured); /* the costs of shm do not apply */
    engine_ranks_scattered = true;
    engine_ranks_run(5, "tcp", measured);
    engine_ranks_run(5, "tcp", found);
    setenv("DIST_TUNING", "measure", 1);
    engine_ranks_run(3, "tcp", measured);
    engine_ranks_scattered = engine_ranks_world = false;
}

static void unmeasured(struct engine_rank *rank)
{
    agree(rank);
    CHECK(strncmp(rank->engine->tuning.source, "usual", 5) == 0);
}

static void rules(struct engine_rank *rank)
{
    agree(rank);
    CHECK(rank->engine->tuning.predict == 0);
}

static void test_ranks_without_measurement(void **state)
{
    (void)state;
    engine_ranks_run(3, "shm", unmeasured); /* a group whose world is not known */
    engine_ranks_world = true;
    setenv("DIST_TUNING", "off", 1);
    engine_ranks_run(3, "shm", rules);
    engine_ranks_world = false;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_written_costs_are_found),
        CASE(test_damaged_files_are_measured_again),
        CASE(test_special_and_long_files_are_rejected),
        CASE(test_DIST_TUNING_selects_the_costs),
        CASE(test_node_cpus_is_set_if_ranks_share_cpus),
        CASE(test_ranks_measure_and_cache_costs),
        CASE(test_ranks_without_measurement),
        CASE(test_without_a_cache_directory_costs_are_measured),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
