/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Preload: nonblocking and persistent collectives for Open MPI's Fortran binding.
 *
 * Since Open MPI 5 its binding writes into the request that such a call returns, at an offset that
 * only Open MPI's own collectives have: pointers to arrays that the request is to free. Our
 * requests are shorter, or have other data there. So the binding gets the address of a placeholder,
 * which it may write to, and the conversion that it calls next returns the number of our request:
 *
 *    binding ---- PMPI_Ialltoallv ----> our MPI_Ialltoallv: request R
 *            <--- placeholder ---------
 *            ---- writes into the placeholder
 *            ---- PMPI_Request_c2f(placeholder) ----> PMPI_Request_c2f(R)
 *
 * A request of a call that was handed on is Open MPI's own, and the binding gets that.
 */
#include "preload/names/fortran.h"

#include "preload/serve.h"

#include <stddef.h>
#include <string.h>

#ifdef OPEN_MPI

/* At least the size of a request of an Open MPI collective, about 300 bytes. */
#define FORTRAN_ROOM 4096

/*
 * All threads share it: nobody reads what bindings write. If Fortran's INTEGER is not a C int, the
 * arrays are copies, which are not freed.
 */
static _Alignas(max_align_t) char fortran_placeholder[FORTRAN_ROOM];

/* The request that the placeholder is for, in this thread. */
static DISTI_THREAD_LOCAL MPI_Request fortran_request;

static MPI_Request fortran_stand_in(void)
{
    return (MPI_Request)(void *)fortran_placeholder;
}

static MPI_Fint fortran_c2f(MPI_Request request)
{
    return PMPI_Request_c2f(request == fortran_stand_in() ? fortran_request : request);
}

/* The binding reads the request after a call that failed, too. */
#define FORTRAN_CALL(call, parameters, arguments)                                                  \
    static int fortran_##call parameters                                                           \
    {                                                                                              \
        int code;                                                                                  \
                                                                                                   \
        disti_request_made = MPI_REQUEST_NULL;                                                     \
        *request = fortran_stand_in();                                                             \
        code = call arguments;                                                                     \
        if (code == MPI_SUCCESS && *request == disti_request_made) {                               \
            fortran_request = *request;                                                            \
            *request = fortran_stand_in();                                                         \
        }                                                                                          \
        return code;                                                                               \
    }
#define FORTRAN_WORDS(...) __VA_ARGS__

#define FORTRAN_NONBLOCKING(KIND, name, begin, parameters, arguments, fields)                      \
    FORTRAN_CALL(MPI_##begin, (FORTRAN_WORDS parameters, MPI_Request * request),                   \
                 (FORTRAN_WORDS arguments, request))
DISTI_CALLS(FORTRAN_NONBLOCKING, int, int)

#if DISTI_MPI_PERSISTENT
#define FORTRAN_PERSISTENT(KIND, name, begin, parameters, arguments, fields)                       \
    FORTRAN_CALL(MPI_##name##_init,                                                                \
                 (FORTRAN_WORDS parameters, MPI_Info info, MPI_Request * request),                 \
                 (FORTRAN_WORDS arguments, info, request))
DISTI_CALLS(FORTRAN_PERSISTENT, int, int)
#endif

/* ---- by name ---- */

static const struct {
    const char *name;
    void *function;
} fortran_calls[] = {
#define FORTRAN_ROW(call)                                                                          \
    {                                                                                              \
#call, (void *)fortran_##call                                                              \
    }
#define FORTRAN_ROW_NONBLOCKING(KIND, name, begin, ...) FORTRAN_ROW(MPI_##begin),
    DISTI_CALLS(FORTRAN_ROW_NONBLOCKING, int, int)
#if DISTI_MPI_PERSISTENT
#define FORTRAN_ROW_PERSISTENT(KIND, name, ...) FORTRAN_ROW(MPI_##name##_init),
        DISTI_CALLS(FORTRAN_ROW_PERSISTENT, int, int)
#endif
};

void *disti_fortran_find(const char *call)
{
    for (size_t i = 0; i < sizeof(fortran_calls) / sizeof(fortran_calls[0]); i++) {
        if (strcmp(fortran_calls[i].name, call) == 0)
            return fortran_calls[i].function;
    }
    return NULL;
}

void *disti_fortran_c2f(void)
{
    return (void *)fortran_c2f;
}

#else

void *disti_fortran_find(const char *call)
{
    (void)call;
    return NULL;
}

void *disti_fortran_c2f(void)
{
    return NULL;
}

#endif
