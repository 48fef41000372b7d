/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Preload: Open MPI's Fortran waits. They go past MPI's C functions, but a request may be one that
 * a C part of the program began. (MPICH's call the C functions.)
 *
 * Each of these has an original of the same name behind it, which does all but move our operations.
 */
#include "base/backoff.h"
#include "preload/serve.h"

#ifdef OPEN_MPI

#include <dlfcn.h>
#include <stdatomic.h>

#define FORTRAN_VISIBLE __attribute__((visibility("default")))

/* What compilers make of the name, and what the modules mpi and mpi_f08 call for it. */
#define FORTRAN_ALIAS(lower, name)                                                                 \
    extern FORTRAN_VISIBLE __typeof__(ompi_##lower##_f) name                                       \
        __attribute__((alias("ompi_" #lower "_f")));
#define FORTRAN_ALIASES(UPPER, Camel, lower)                                                       \
    FORTRAN_ALIAS(lower, MPI_##UPPER)                                                              \
    FORTRAN_ALIAS(lower, mpi_##lower)                                                              \
    FORTRAN_ALIAS(lower, mpi_##lower##_)                                                           \
    FORTRAN_ALIAS(lower, mpi_##lower##__)                                                          \
    FORTRAN_ALIAS(lower, pmpi_##lower##_)                                                          \
    FORTRAN_ALIAS(lower, MPI_##Camel##_f)                                                          \
    FORTRAN_ALIAS(lower, MPI_##Camel##_f08)

#define FORTRAN_WORDS(...) __VA_ARGS__

/* Once found it is kept: so short a call is not to look for it again. */
static void *fortran_next(_Atomic(void *) *kept, const char *name)
{
    void *next = atomic_load_explicit(kept, memory_order_acquire);

    if (!next) {
        next = dlsym(RTLD_NEXT, name);
        atomic_store_explicit(kept, next, memory_order_release);
    }
    return next;
}

/* Runs `before`, and the original if that has not done it all, with `code`. */
#define FORTRAN_DEFINE(UPPER, Camel, lower, parameters, arguments, before)                         \
    FORTRAN_VISIBLE void ompi_##lower##_f(FORTRAN_WORDS parameters, MPI_Fint *ierr);               \
    void ompi_##lower##_f(FORTRAN_WORDS parameters, MPI_Fint *ierr)                                \
    {                                                                                              \
        static _Atomic(void *) kept;                                                               \
        void (*next)(FORTRAN_WORDS parameters, MPI_Fint *);                                        \
        MPI_Fint code = MPI_ERR_INTERN;                                                            \
                                                                                                   \
        if (!(before)) {                                                                           \
            *(void **)&next = fortran_next(&kept, "ompi_" #lower "_f");                            \
            if (next)                                                                              \
                next(FORTRAN_WORDS arguments, &code);                                              \
        }                                                                                          \
        if (ierr)                                                                                  \
            *ierr = code;                                                                          \
    }                                                                                              \
    FORTRAN_ALIASES(UPPER, Camel, lower)

static bool fortran_move(void)
{
    disti_move();
    return false;
}

/* ---- tests ---- */

FORTRAN_DEFINE(TEST, Test, test, (MPI_Fint * request, MPI_Fint *flag, MPI_Fint *status),
               (request, flag, status), fortran_move())
FORTRAN_DEFINE(TESTALL, Testall, testall,
               (MPI_Fint * count, MPI_Fint *requests, MPI_Fint *flag, MPI_Fint *statuses),
               (count, requests, flag, statuses), fortran_move())
FORTRAN_DEFINE(TESTANY, Testany, testany,
               (MPI_Fint * count, MPI_Fint *requests, MPI_Fint *index, MPI_Fint *flag,
                MPI_Fint *status),
               (count, requests, index, flag, status), fortran_move())
FORTRAN_DEFINE(TESTSOME, Testsome, testsome,
               (MPI_Fint * count, MPI_Fint *requests, MPI_Fint *outcount, MPI_Fint *indices,
                MPI_Fint *statuses),
               (count, requests, outcount, indices, statuses), fortran_move())
FORTRAN_DEFINE(REQUEST_GET_STATUS, Request_get_status, request_get_status,
               (MPI_Fint * request, MPI_Fint *flag, MPI_Fint *status), (request, flag, status),
               fortran_move())

/* ---- waits: tests again and again while operations of ours are under way ---- */

/* As waits.c. `test` takes &code and sets `done`, LOGICAL or a number. */
#define FORTRAN_POLL(test, done)                                                                   \
    ({                                                                                             \
        struct disti_backoff backoff = {0};                                                        \
        bool over = false;                                                                         \
                                                                                                   \
        while (!over && disti_move()) {                                                            \
            test;                                                                                  \
            over = code != MPI_SUCCESS || (done) != 0;                                             \
            if (!over)                                                                             \
                disti_backoff(&backoff);                                                           \
        }                                                                                          \
        over;                                                                                      \
    })

FORTRAN_DEFINE(WAIT, Wait, wait, (MPI_Fint * request, MPI_Fint *status), (request, status), ({
                   MPI_Fint flag = 0;
                   FORTRAN_POLL(ompi_test_f(request, &flag, status, &code), flag);
               }))
FORTRAN_DEFINE(WAITALL, Waitall, waitall,
               (MPI_Fint * count, MPI_Fint *requests, MPI_Fint *statuses),
               (count, requests, statuses), ({
                   MPI_Fint flag = 0;
                   FORTRAN_POLL(ompi_testall_f(count, requests, &flag, statuses, &code), flag);
               }))
FORTRAN_DEFINE(WAITANY, Waitany, waitany,
               (MPI_Fint * count, MPI_Fint *requests, MPI_Fint *index, MPI_Fint *status),
               (count, requests, index, status), ({
                   MPI_Fint flag = 0;
                   FORTRAN_POLL(ompi_testany_f(count, requests, index, &flag, status, &code), flag);
               }))
FORTRAN_DEFINE(WAITSOME, Waitsome, waitsome,
               (MPI_Fint * count, MPI_Fint *requests, MPI_Fint *outcount, MPI_Fint *indices,
                MPI_Fint *statuses),
               (count, requests, outcount, indices, statuses), ({
                   *outcount = 0;
                   FORTRAN_POLL(
                       ompi_testsome_f(count, requests, outcount, indices, statuses, &code),
                       *outcount);
               }))

/* ---- persistent requests ---- */

static int fortran_each(int (*call)(MPI_Request *), int count, MPI_Fint *requests)
{
    int code = MPI_SUCCESS;

    for (int i = 0; i < count && code == MPI_SUCCESS; i++) {
        MPI_Request request = PMPI_Request_f2c(requests[i]);

        code = call(&request);
        if (code == MPI_SUCCESS)
            requests[i] = PMPI_Request_c2f(request);
    }
    return code;
}

FORTRAN_DEFINE(START, Start, start, (MPI_Fint * request), (request),
               (code = fortran_each(MPI_Start, 1, request), true))
FORTRAN_DEFINE(STARTALL, Startall, startall, (MPI_Fint * count, MPI_Fint *requests),
               (count, requests), (code = fortran_each(MPI_Start, *count, requests), true))
FORTRAN_DEFINE(REQUEST_FREE, Request_free, request_free, (MPI_Fint * request), (request),
               (code = fortran_each(MPI_Request_free, 1, request), true))

#else

/* C knows no empty file. */
typedef int disti_fortran_calls_c;

#endif
