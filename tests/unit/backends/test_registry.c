/* SPDX-License-Identifier: BSD-3-Clause */
/* The registry: what is found, what is refused, and what is said about it. */
#include "backends/registry.h"

#include <setjmp.h>
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

static void an_unknown_backend_lists_the_known(void **state)
{
    const struct dist_backend *backend = NULL;

    (void)state;
    assert_int_equal(disti_backend_find("glue", &backend), DIST_ERR_NO_BACKEND);
    assert_null(backend);
    assert_non_null(strstr(dist_last_error(), "'glue'"));
    assert_non_null(strstr(dist_last_error(), "gloo"));
    assert_non_null(strstr(dist_last_error(), "mpi"));
}

static void a_name_cannot_leave_its_folder(void **state)
{
    const struct dist_backend *backend = NULL;

    (void)state;
    assert_int_equal(disti_backend_find("../gloo", &backend), DIST_ERR_NO_BACKEND);
    assert_int_equal(disti_backend_find("", &backend), DIST_ERR_NO_BACKEND);
}

static void built_in_transports_are_whole(void **state)
{
    (void)state;
    for (const char *const *name = (const char *const[]){"shm", "tcp", NULL}; *name; name++) {
        assert_non_null(disti_transport_find(*name));
        assert_int_equal(disti_transport_check(disti_transport_find(*name), *name), DIST_OK);
    }
    assert_null(disti_transport_find("pigeon"));
}

static void another_abi_is_refused(void **state)
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

static void a_file_that_is_no_module_is_refused(void **state)
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

static void the_launcher_decides_which_mpi(void **state)
{
    const char *names[DISTI_MPI_FLAVOURS];

    (void)state;
    unsetenv("PMI_RANK");
    unsetenv("PMI_FD");
    unsetenv("PMIX_RANK");
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    assert_int_equal(disti_mpi_flavours(names), 1);
    assert_string_equal(names[0], "mpi_openmpi");
    unsetenv("OMPI_COMM_WORLD_SIZE");
    setenv("PMI_RANK", "0", 1);
    assert_int_equal(disti_mpi_flavours(names), 1);
    assert_string_equal(names[0], "mpi_mpich");
    unsetenv("PMI_RANK");
    assert_int_equal(disti_mpi_flavours(names), 2);
}

static void the_list_fits_any_buffer(void **state)
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

static void a_query_says_what_a_backend_takes(void **state)
{
    (void)state;
    assert_int_equal(dist_backend_query("gloo", DIST_COLL_REDUCE, DIST_FLOAT32, DIST_SUM), DIST_OK);
    assert_int_equal(dist_backend_query("self", DIST_COLL_RECV, DIST_INT8, DIST_SUM), DIST_OK);
    assert_int_equal(dist_backend_query("glue", DIST_COLL_BARRIER, DIST_INT8, DIST_SUM),
                     DIST_ERR_NO_BACKEND);
    assert_non_null(strstr(dist_last_error(), "'glue'"));
}

static void a_query_looks_at_what_there_is_only(void **state)
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

static void the_folders_come_in_order(void **state)
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
        cmocka_unit_test(an_unknown_backend_lists_the_known),
        cmocka_unit_test(a_name_cannot_leave_its_folder),
        cmocka_unit_test(built_in_transports_are_whole),
        cmocka_unit_test(another_abi_is_refused),
        cmocka_unit_test(a_missing_slot_is_named),
        cmocka_unit_test(a_file_that_is_no_module_is_refused),
        cmocka_unit_test(the_launcher_decides_which_mpi),
        cmocka_unit_test(the_list_fits_any_buffer),
        cmocka_unit_test(a_query_says_what_a_backend_takes),
        cmocka_unit_test(a_query_looks_at_what_there_is_only),
        cmocka_unit_test(the_folders_come_in_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
