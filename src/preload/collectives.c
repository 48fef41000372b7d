/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: MPI's collectives, blocking, nonblocking and persistent, from the table. */
#include "preload/serve.h"

#define COLLECTIVES_WORDS(...) __VA_ARGS__
#define COLLECTIVES_ARGS(KIND, fields)                                                             \
    struct disti_args args;                                                                        \
                                                                                                   \
    disti_args_clear(&args, DISTI_##KIND, comm);                                                   \
    COLLECTIVES_WORDS fields

#define COLLECTIVES_BLOCKING(KIND, name, suffix, parameters, arguments, fields)                    \
    int MPI_##name##suffix(COLLECTIVES_WORDS parameters)                                           \
    {                                                                                              \
        struct disti_comm *served;                                                                 \
        int code;                                                                                  \
        COLLECTIVES_ARGS(KIND, fields);                                                            \
                                                                                                   \
        if (!disti_again(&args, &code)) {                                                          \
            served = disti_call_is_eligible(&args, DISTI_BLOCKING);                                \
            code = served ? disti_serve(&args, served)                                             \
                          : disti_call_handed_on(&args, PMPI_##name##suffix arguments);            \
        }                                                                                          \
        if (args.comparison)                                                                       \
            disti_compare_end(&args);                                                              \
        return code;                                                                               \
    }

#define COLLECTIVES_NONBLOCKING(KIND, begin, suffix, parameters, arguments, fields)                \
    int MPI_##begin##suffix(COLLECTIVES_WORDS parameters, MPI_Request *request)                    \
    {                                                                                              \
        struct disti_comm *served;                                                                 \
        COLLECTIVES_ARGS(KIND, fields);                                                            \
                                                                                                   \
        args.request = request;                                                                    \
        served = disti_call_is_eligible(&args, DISTI_NONBLOCKING);                                 \
        return served ? disti_serve_nonblocking(&args, served, request)                            \
                      : disti_call_handed_on(                                                      \
                            &args, PMPI_##begin##suffix(COLLECTIVES_WORDS arguments, request));    \
    }

#define COLLECTIVES_PERSISTENT(KIND, prefix, name, suffix, parameters, arguments, fields)          \
    int prefix##name##suffix(COLLECTIVES_WORDS parameters, MPI_Info info, MPI_Request *request)    \
    {                                                                                              \
        struct disti_comm *served;                                                                 \
        COLLECTIVES_ARGS(KIND, fields);                                                            \
                                                                                                   \
        args.request = request;                                                                    \
        served = disti_call_is_eligible(&args, DISTI_PERSISTENT);                                  \
        return served                                                                              \
                   ? disti_serve_persistent(&args, served, request)                                \
                   : disti_call_handed_on(&args, P##prefix##name##suffix(                          \
                                                     COLLECTIVES_WORDS arguments, info, request)); \
    }

#define COLLECTIVES_BOTH(KIND, name, begin, parameters, arguments, fields)                         \
    COLLECTIVES_BLOCKING(KIND, name, , parameters, arguments, fields)                              \
    COLLECTIVES_NONBLOCKING(KIND, begin, , parameters, arguments, fields)
DISTI_CALLS(COLLECTIVES_BOTH, int, int)

#if DISTI_MPI_PERSISTENT
#define COLLECTIVES_INIT(KIND, name, begin, parameters, arguments, fields)                         \
    COLLECTIVES_PERSISTENT(KIND, MPI_, name, _init, parameters, arguments, fields)
DISTI_CALLS(COLLECTIVES_INIT, int, int)
#endif

#if MPI_VERSION >= 4
#define COLLECTIVES_LARGE(KIND, name, begin, parameters, arguments, fields)                        \
    COLLECTIVES_BLOCKING(KIND, name, _c, parameters, arguments, fields)                            \
    COLLECTIVES_NONBLOCKING(KIND, begin, _c, parameters, arguments, fields)                        \
    COLLECTIVES_PERSISTENT(KIND, MPI_, name, _init_c, parameters, arguments, fields)
DISTI_CALLS_COUNTED(COLLECTIVES_LARGE, MPI_Count, MPI_Aint)
#endif

#ifdef OMPI_HAVE_MPI_EXT_PCOLLREQ
#define COLLECTIVES_EXT(KIND, name, begin, parameters, arguments, fields)                          \
    COLLECTIVES_PERSISTENT(KIND, MPIX_, name, _init, parameters, arguments, fields)
DISTI_CALLS(COLLECTIVES_EXT, int, int)
#endif
