/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the parts of the MPI test program, which does not use libdist. */
#ifndef TESTS_PRELOAD_PROGRAM_H
#define TESTS_PRELOAD_PROGRAM_H

#include <mpi.h>

#include <stdbool.h>
#include <stddef.h>

#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

/*
 * Persistent collectives are part of MPI 4. Open MPI 5 has them although it reports MPI 3.1; Open
 * MPI 4 has them under another name.
 */
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define PROGRAM_INIT(name) MPI_##name##_init
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
#define PROGRAM_INIT(name) MPIX_##name##_init
#endif

/* The form of a collective call. */
enum form { BLOCKING, NONBLOCKING, PERSISTENT, FORMS };

/* The communicator and form of a call, with a name for messages. */
struct place {
    const char *name;
    MPI_Comm comm;
    int rank, ranks;
    enum form form;
};

/*
 * True ("bold"): the program makes all calls that MPI permits. False ("tame"): it leaves out calls
 * at which some MPI libraries fail; the results are the same.
 */
extern bool program_bold;

/* Prints what is wrong, with rank and place, and counts it. */
void program_wrong(const struct place *place, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Adds results to the hash, which must not depend on whether MPI or libdist computed them. */
void program_hash(const void *data, size_t bytes);

/*
 * Waits for the request, together with messages from this rank to itself. Each call waits in
 * another one of many ways.
 */
void program_wait(const struct place *place, MPI_Request *request);

/* As program_wait, for a persistent request: starts it and waits for it; the request remains. */
void program_start(const struct place *place, MPI_Request *request);

#ifdef PROGRAM_INIT
#define PROGRAM_PERSISTENT(place, fill, name, ...)                                                 \
    do {                                                                                           \
        MPI_Request request;                                                                       \
                                                                                                   \
        PROGRAM_INIT(name)(__VA_ARGS__, MPI_INFO_NULL, &request);                                  \
        for (int twice = 0; twice < 2; twice++) {                                                  \
            fill;                                                                                  \
            program_start(place, &request);                                                        \
        }                                                                                          \
        MPI_Request_free(&request);                                                                \
    } while (0)
#else
#define PROGRAM_PERSISTENT(place, fill, name, ...) PROGRAM_BLOCKING(fill, name, __VA_ARGS__)
#endif

#define PROGRAM_BLOCKING(fill, name, ...)                                                          \
    do {                                                                                           \
        fill;                                                                                      \
        MPI_##name(__VA_ARGS__);                                                                   \
    } while (0)

/*
 * Fills the buffers, calls MPI_<name> in the place's form and completes it. MPICH 4.0 reads freed
 * types in persistent calls, and rejects arrays that contain their requests: bold only.
 */
#define PROGRAM_CALL(place, fill, name, begin, ...)                                                \
    do {                                                                                           \
        MPI_Request begun;                                                                         \
                                                                                                   \
        if ((place)->form == BLOCKING || ((place)->form == PERSISTENT && !program_bold)) {         \
            PROGRAM_BLOCKING(fill, name, __VA_ARGS__);                                             \
        } else if ((place)->form == NONBLOCKING) {                                                 \
            fill;                                                                                  \
            MPI_##begin(__VA_ARGS__, &begun);                                                      \
            program_wait(place, &begun);                                                           \
        } else {                                                                                   \
            PROGRAM_PERSISTENT(place, fill, name, __VA_ARGS__);                                    \
        }                                                                                          \
    } while (0)

/* preload_movers.c: collectives that only move data, in blocks of `pairs` pairs of integers. */
void program_movers(const struct place *place, int pairs);

/* preload_reductions.c: types that libdist supports, with all operations. */
void program_reductions(const struct place *place, int count);

/* preload_buffers.c; at most 64 ranks. program_giant: an element of more than 2 GiB; needs 8 GiB.
 */
void program_gaps(const struct place *place, int root);
void program_giant(void);
/* Buffers overlap, which MPI forbids: libdist must serve all ranks or none. */
void program_overlaps(void);

/* preload_again.c: calls that differ from the previous one in one respect; at most 64 ranks */
void program_again(void);

/* preload_blocked.c: progress of collectives in any MPI call, and in Fortran's waits */
void program_blocked(void);

/*
 * preload_comms.c. program_comms: communicators one after another, communicators that are freed
 * before an operation ends, and operations that ranks start in different orders. program_many: many
 * communicators at the same time. program_persistent: persistent operations that are started in
 * another order than they were created in.
 */
void program_comms(int rounds);
void program_many(int many);
void program_persistent(void);

/* preload_compare.c: repeats calls that MPI may execute faster */
void program_compare(void);

/* preload_cost.c; two ranks. name: measures MPI_<name> */
void program_cost(int calls, const char *name);
void program_polls(int calls);

/* preload_memory.c: memory of MPI_Alloc_mem. served: expects libdist's shared memory */
void program_memory(bool served);

/* preload_refused.c: calls that MPI refuses */
void program_refused(void);

/* preload_others.c */
void program_large(const struct place *place); /* MPI-4's large counts */
void program_handed_on(void);                  /* calls that libdist passes on to MPI */
void program_errors(void);   /* calls that differ between ranks; only libdist detects them */
void program_progress(void); /* messages that wait for collectives, and the reverse */
void program_threads(void);  /* needs MPI_THREAD_MULTIPLE */

#endif
