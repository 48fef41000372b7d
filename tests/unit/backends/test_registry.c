/* SPDX-License-Identifier: BSD-3-Clause */
/* The registry of backends and transports: lookups, rejected modules, and the messages about
 * them. */
#include "backends/registry.h"

#include <dirent.h>
#include <link.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void built_in_backends_are_found(void **state)
{
    const struct dist_backend *backend = NULL;

    (void)state;
    assert_int_equal(disti_backend_find("gloo", &backend), DIST_OK);
    assert_string_equal(backend->name, "gloo");
    assert_int_equal(disti_backend_check(backend, "gloo"), DIST_OK);
    assert_int_equal(disti_backend_find("self", &backend), DIST_OK);
    assert_int_equal(disti_backend_check(backend, "self"), DIST_OK);
}

static void the_error_for_an_unknown_backend_lists_backends(void **state)
{
    const struct dist_backend *backend = NULL;

    (void)state;
    assert_int_equal(disti_backend_find("glue", &backend), DIST_ERR_NO_BACKEND);
    assert_null(backend);
    assert_non_null(strstr(dist_last_error(), "'glue'"));
    assert_non_null(strstr(dist_last_error(), "gloo"));
    assert_non_null(strstr(dist_last_error(), "mpi"));
}

static void a_name_cannot_leave_the_module_directory(void **state)
{
    const struct dist_backend *backend = NULL;

    (void)state;
    assert_int_equal(disti_backend_find("../gloo", &backend), DIST_ERR_NO_BACKEND);
    assert_int_equal(disti_backend_find("", &backend), DIST_ERR_NO_BACKEND);
}

static void built_in_transports_are_complete(void **state)
{
    (void)state;
    for (const char *const *name = (const char *const[]){"shm", "tcp", NULL}; *name; name++) {
        assert_non_null(disti_transport_find(*name));
        assert_int_equal(disti_transport_check(disti_transport_find(*name), *name), DIST_OK);
    }
    assert_null(disti_transport_find("pigeon"));
}

static void a_different_abi_is_rejected(void **state)
{
    struct dist_backend backend = disti_backend_self;
    struct dist_transport transport = *disti_transport_find("shm");

    (void)state;
    backend.abi++;
    assert_int_equal(disti_backend_check(&backend, "/x/dist_y.so"), DIST_ERR_ABI);
    assert_non_null(strstr(dist_last_error(), "/x/dist_y.so"));
    transport.size = 8;
    assert_int_equal(disti_transport_check(&transport, "t"), DIST_ERR_ABI);
}

static void a_missing_slot_is_named(void **state)
{
    struct dist_backend backend = disti_backend_self;
    struct dist_transport transport = *disti_transport_find("tcp");

    (void)state;
    backend.post = NULL;
    assert_int_equal(disti_backend_check(&backend, "b"), DIST_ERR_ABI);
    assert_non_null(strstr(dist_last_error(), "'post'"));
    transport.recv = NULL;
    assert_int_equal(disti_transport_check(&transport, "t"), DIST_ERR_ABI);
    assert_non_null(strstr(dist_last_error(), "'recv'"));
    transport = *disti_transport_find("shm");
    transport.probe_tag = NULL;
    assert_int_equal(disti_transport_check(&transport, "t"), DIST_ERR_ABI);
    assert_non_null(strstr(dist_last_error(), "'probe_tag'"));
}

static void a_file_that_is_no_module_is_rejected(void **state)
{
    char folder[] = "/tmp/dist-test-XXXXXX", path[64];
    const struct dist_backend *backend = NULL;
    FILE *file;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/dist_junk.so", folder);
    file = fopen(path, "w");
    assert_non_null(file);
    fputs("not a shared object", file);
    fclose(file);
    setenv("DIST_PLUGIN_PATH", folder, 1);
    assert_int_equal(disti_backend_find("junk", &backend), DIST_ERR_NO_BACKEND);
    assert_non_null(strstr(dist_last_error(), path));
    unsetenv("DIST_PLUGIN_PATH");
    remove(path);
    remove(folder);
}

static void assert_contains(const char *text, const char *whole)
{
    if (!strstr(whole, text))
        fail_msg("'%s' is not in: %s", text, whole);
}

static dist_status probe_status;

static dist_status probe_with_status(char *reason, size_t size)
{
    if (probe_status == DIST_ERR_SYSTEM)
        memset(reason, 'x', size); /* without a terminating zero */
    return probe_status;
}

static void invalid_results_of_a_probe_are_reported(void **state)
{
    char reason[64];

    (void)state;
    probe_status = DIST_OK;
    assert_int_equal(disti_probe(probe_with_status, "/m", reason, sizeof(reason)), DIST_OK);
    probe_status = DIST_ERR_UNSUPPORTED;
    assert_int_equal(disti_probe(probe_with_status, "/m", reason, sizeof(reason)),
                     DIST_ERR_NO_BACKEND);
    assert_contains("/m failed", reason);
    for (int junk = -4711; junk < 4712; junk += 4711 + 77) {
        probe_status = (dist_status)junk;
        assert_int_equal(disti_probe(probe_with_status, "/m", reason, sizeof(reason)),
                         DIST_ERR_NO_BACKEND);
        assert_contains("is neither", reason);
    }
    probe_status = DIST_IN_PROGRESS;
    assert_int_equal(disti_probe(probe_with_status, "/m", reason, sizeof(reason)),
                     DIST_ERR_NO_BACKEND);
    probe_status = DIST_ERR_SYSTEM;
    assert_int_equal(disti_probe(probe_with_status, "/m", reason, sizeof(reason)),
                     DIST_ERR_NO_BACKEND);
    assert_int_equal(strlen(reason), sizeof(reason) - 1);
}

/* Makes a directory with files of these names; the caller calls modules_remove. */
static void modules_make(char *folder, const char *const *names)
{
    char path[128];

    assert_non_null(mkdtemp(folder));
    for (; *names; names++) {
        FILE *file;

        snprintf(path, sizeof(path), "%s/%s", folder, *names);
        file = fopen(path, "w");
        assert_non_null(file);
        fclose(file);
    }
}

static void modules_remove(const char *folder, const char *const *names)
{
    char path[128];

    for (; *names; names++) {
        snprintf(path, sizeof(path), "%s/%s", folder, *names);
        remove(path);
    }
    remove(folder);
}

static void names_are_listed_once_and_sorted(void **state)
{
    static const char *const first[] = {"dist_zebra.so", "dist_ant.so", "dist_.so", "ant.so", NULL};
    static const char *const second[] = {"dist_ant.so", "dist_bee.so.1", "dist_cow.so",
                                         "dist_mpi_openmpi.so", NULL};
    char a[] = "/tmp/dist-test-XXXXXX", b[] = "/tmp/dist-test-XXXXXX", path[64], text[4096];
    const char *ant;

    (void)state;
    modules_make(a, first);
    modules_make(b, second);
    snprintf(path, sizeof(path), "%s:%s:/nowhere", a, b);
    setenv("DIST_PLUGIN_PATH", path, 1);
    dist_list_names(text, sizeof(text));
    assert_int_equal(dist_list_names(NULL, 0), strlen(text));
    assert_int_equal(strncmp(text, "gloo\nself\nmpi\n", 14), 0);
    assert_contains("\nshm\ntcp\n", text);
    ant = strstr(text, "\nant\n");
    assert_non_null(ant);
    assert_null(strstr(ant + 1, "\nant\n"));
    assert_true(ant < strstr(text, "\ncow\n"));
    assert_true(strstr(text, "\ncow\n") < strstr(text, "\nzebra\n"));
    assert_null(strstr(text, "bee"));
    assert_null(strstr(text, "openmpi"));
    modules_remove(a, first);
    modules_remove(b, second);
    unsetenv("DIST_PLUGIN_PATH");
}

static void the_error_for_a_missing_module_suggests_a_similar_name(void **state)
{
    static const char *const files[] = {"dist_zebra.so", "dist_ant.so", NULL};
    char folder[] = "/tmp/dist-test-XXXXXX", text[4096];
    const struct dist_backend *backend = NULL;

    (void)state;
    modules_make(folder, files);
    setenv("DIST_PLUGIN_PATH", folder, 1);
    assert_int_equal(disti_backend_find("zerba", &backend), DIST_ERR_NO_BACKEND);
    assert_contains("dist_zerba.so; there is dist_zebra.so. ", dist_last_error());
    assert_contains(folder, dist_last_error());
    assert_contains("other modules: ", dist_last_error());
    assert_int_equal(disti_backend_find("quagga", &backend), DIST_ERR_NO_BACKEND);
    assert_contains("dist_quagga.so. Modules", dist_last_error());
    assert_null(disti_transport_find("zerba"));
    disti_transport_missing("zerba", text, sizeof(text));
    assert_contains("there is dist_zebra.so", text);
    assert_contains("Built-in transports: shm, tcp; modules are searched for in", text);
    assert_contains(folder, text);
    disti_transport_missing("zerba", text, 10);
    assert_int_equal(strlen(text), 9);
    modules_remove(folder, files);
    unsetenv("DIST_PLUGIN_PATH");
}

static void probing_a_name_reports_only_that_name(void **state)
{
    char text[4096];

    (void)state;
    dist_probe_name("gloo", text, sizeof(text));
    assert_int_equal(dist_probe_name("gloo", NULL, 0), strlen(text));
    assert_int_equal(strncmp(text, "backend gloo yes ", 17), 0);
    dist_probe_name("shm", text, sizeof(text));
    assert_int_equal(strncmp(text, "transport shm ", 14), 0);
    assert_null(strstr(text, "backend"));
    dist_probe_name("zerba", text, sizeof(text));
    assert_int_equal(strncmp(text, "backend zerba no there is no module", 35), 0);
}

static void the_launcher_selects_the_mpi_library(void **state)
{
    const char *names[DISTI_MPI_FLAVOURS];
    char reason[256];

    (void)state;
    unsetenv("PMI_RANK");
    unsetenv("PMI_FD");
    unsetenv("PMIX_RANK");
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    assert_int_equal(disti_mpi_flavours(names, reason, sizeof(reason)), 1);
    assert_string_equal(names[0], "mpi_openmpi");
    unsetenv("OMPI_COMM_WORLD_SIZE");
    setenv("PMI_RANK", "0", 1);
    assert_int_equal(disti_mpi_flavours(names, reason, sizeof(reason)), 1);
    assert_string_equal(names[0], "mpi_mpich");
    unsetenv("PMI_RANK");
    assert_int_equal(disti_mpi_flavours(names, reason, sizeof(reason)), 2);
}

static void lists_are_cut_to_the_buffer(void **state)
{
    char small[20], large[4096];
    size_t length = dist_list_backends(large, sizeof(large));

    (void)state;
    assert_int_equal(strlen(large), length);
    memset(small, 'x', sizeof(small));
    assert_int_equal(dist_list_backends(small, sizeof(small)), length);
    assert_int_equal(strlen(small), sizeof(small) - 1);
    assert_int_equal(dist_list_backends(NULL, 0), length);
}

/* The state of the process that loading a library may change. */
struct process {
    int objects, threads, descriptors;
    void (*handlers[NSIG])(int);
};

static int count_entries(const char *folder)
{
    DIR *dir = opendir(folder);
    int count = 0;

    assert_non_null(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static int count_object(struct dl_phdr_info *info, size_t size, void *count)
{
    (void)info;
    (void)size;
    ++*(int *)count;
    return 0;
}

static void inspect_process(struct process *process)
{
    memset(process, 0, sizeof(*process));
    dl_iterate_phdr(count_object, &process->objects);
    process->threads = count_entries("/proc/self/task");
    process->descriptors = count_entries("/proc/self/fd");
    for (int number = 1; number < NSIG; number++) {
        struct sigaction action;

        if (sigaction(number, NULL, &action) == 0)
            process->handlers[number] = action.sa_handler;
    }
}

/* Checks the modules of this build, with UCX and MPI if it has them. */
static void listing_does_not_change_the_process(void **state)
{
    const struct dist_backend *backend;
    struct process before, after;
    char text[4096];

    (void)state;
    setenv("DIST_PLUGIN_PATH", ".libs", 1);
    inspect_process(&before);
    dist_list_backends(text, sizeof(text));
    assert_int_equal(disti_backend_find("glue", &backend), DIST_ERR_NO_BACKEND);
    dist_probe_name("ucx", text, sizeof(text));
    inspect_process(&after);
    unsetenv("DIST_PLUGIN_PATH");
    assert_int_equal(after.objects, before.objects);
    assert_int_equal(after.threads, before.threads);
    assert_int_equal(after.descriptors, before.descriptors);
    for (int number = 1; number < NSIG; number++)
        assert_ptr_equal(after.handlers[number], before.handlers[number]);
}

static void a_query_returns_whether_a_backend_supports_a_call(void **state)
{
    (void)state;
    assert_int_equal(dist_backend_query("gloo", DIST_COLL_REDUCE, DIST_FLOAT32, DIST_SUM), DIST_OK);
    assert_int_equal(dist_backend_query("self", DIST_COLL_RECV, DIST_INT8, DIST_SUM), DIST_OK);
    assert_int_equal(dist_backend_query("glue", DIST_COLL_BARRIER, DIST_INT8, DIST_SUM),
                     DIST_ERR_NO_BACKEND);
    assert_non_null(strstr(dist_last_error(), "'glue'"));
}

static void a_query_checks_only_the_arguments_of_the_collective(void **state)
{
    const dist_op no_op = (dist_op)DIST_OP_COUNT;
    const dist_dtype no_dtype = (dist_dtype)DIST_DTYPE_COUNT;

    (void)state;
    assert_int_equal(dist_backend_query("gloo", DIST_COLL_GATHER, DIST_INT8, no_op), DIST_OK);
    assert_int_equal(dist_backend_query("gloo", DIST_COLL_BARRIER, no_dtype, no_op), DIST_OK);
    assert_int_equal(dist_backend_query("gloo", DIST_COLL_ALL_REDUCE, DIST_INT8, no_op),
                     DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_backend_query("gloo", DIST_COLL_GATHER, no_dtype, DIST_SUM),
                     DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_backend_query("gloo", DIST_COLL_COUNT, DIST_INT8, DIST_SUM),
                     DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_backend_query(NULL, DIST_COLL_GATHER, DIST_INT8, DIST_SUM),
                     DIST_ERR_INVALID_ARGUMENT);
}

static void module_directories_are_listed_in_search_order(void **state)
{
    char text[4096];
    size_t length;

    (void)state;
    setenv("DIST_PLUGIN_PATH", "/first:/second", 1);
    length = dist_list_module_folders(text, sizeof(text));
    assert_int_equal(strlen(text), length);
    assert_int_equal(strncmp(text, "/first\n/second\n", 15), 0);
    unsetenv("DIST_PLUGIN_PATH");
    assert_int_equal(dist_list_module_folders(text, sizeof(text)), length - 15);
    assert_int_equal(dist_list_module_folders(NULL, 0), length - 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(built_in_backends_are_found),
        cmocka_unit_test(the_error_for_an_unknown_backend_lists_backends),
        cmocka_unit_test(a_name_cannot_leave_the_module_directory),
        cmocka_unit_test(built_in_transports_are_complete),
        cmocka_unit_test(a_different_abi_is_rejected),
        cmocka_unit_test(a_missing_slot_is_named),
        cmocka_unit_test(a_file_that_is_no_module_is_rejected),
        cmocka_unit_test(invalid_results_of_a_probe_are_reported),
        cmocka_unit_test(names_are_listed_once_and_sorted),
        cmocka_unit_test(the_error_for_a_missing_module_suggests_a_similar_name),
        cmocka_unit_test(probing_a_name_reports_only_that_name),
        cmocka_unit_test(the_launcher_selects_the_mpi_library),
        cmocka_unit_test(lists_are_cut_to_the_buffer),
        cmocka_unit_test(listing_does_not_change_the_process),
        cmocka_unit_test(a_query_returns_whether_a_backend_supports_a_call),
        cmocka_unit_test(a_query_checks_only_the_arguments_of_the_collective),
        cmocka_unit_test(module_directories_are_listed_in_search_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
