/* SPDX-License-Identifier: BSD-3-Clause */
/* The ABI of an MPI library, detected from its file name and its version text. */
#include "backends/mpi/abi.h"

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

static const struct {
    const char *path, *version;
    bool has_openmpi_handles;
    enum disti_mpi_abi abi;
} abi_libraries[] = {
    {"/usr/lib/x86_64-linux-gnu/libmpi.so.40", "Open MPI v4.1.4, package: Debian", true,
     DISTI_MPI_ABI_OPENMPI},
    {"libmpi.so.40", "FUJITSU MPI Library 4.0.1 (4.0.1fj4.0.0)", true, DISTI_MPI_ABI_OPENMPI},
    {"libmpi.so.80", "Open MPI v6.0.0", false, DISTI_MPI_ABI_OPENMPI},
    {"/usr/lib/x86_64-linux-gnu/libmpich.so.12", "MPICH Version:\t4.0.2", false,
     DISTI_MPI_ABI_MPICH},
    {"libmpi.so.0", "MPICH Version:\t4.3.0", false, DISTI_MPI_ABI_MPICH},
    {"libmpi.so.12", "Intel(R) MPI Library 2021.13 for Linux* OS", false, DISTI_MPI_ABI_MPICH},
    {"libmpi.so.12", "MVAPICH2 Version      :\t2.3.7", false, DISTI_MPI_ABI_MPICH},
    {"libmpi_gnu_91.so.12", "MPI VERSION    : CRAY MPICH version 8.1.25", false,
     DISTI_MPI_ABI_MPICH},
    {"/opt/some/libmpi.so.12.1.8", "", false, DISTI_MPI_ABI_MPICH},
    {"libmpi.so.0", "", false, DISTI_MPI_ABI_UNKNOWN}, /* LAM: has no version call */
    {"libmpi.so", "HPE MPT 2.26  01/10/23 04:25:06", false, DISTI_MPI_ABI_UNKNOWN},
    {"/opt/v.so.12/libmpi.so.7", "Foreign MPI 1.0", false, DISTI_MPI_ABI_UNKNOWN},
};

static void test_the_abi_of_each_library_is_detected(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(abi_libraries) / sizeof(abi_libraries[0]); i++)
        assert_int_equal(disti_mpi_abi_of(abi_libraries[i].path, abi_libraries[i].version,
                                          abi_libraries[i].has_openmpi_handles),
                         abi_libraries[i].abi);
}

static void test_the_file_of_the_standard_abi_is_detected(void **state)
{
    (void)state;
    assert_true(disti_mpi_is_standard_file("libmpi_abi.so.1"));
    assert_true(disti_mpi_is_standard_file("/opt/mpich/lib/libmpi_abi.so.1.2.3"));
    assert_true(disti_mpi_is_standard_file("./libmpi_abi.so"));
    assert_false(disti_mpi_is_standard_file("/opt/libmpi_abi.so.1/libmpi.so.12"));
    assert_false(disti_mpi_is_standard_file("libmpi.so.12"));
    assert_false(disti_mpi_is_standard_file(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_abi_of_each_library_is_detected),
        cmocka_unit_test(test_the_file_of_the_standard_abi_is_detected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
