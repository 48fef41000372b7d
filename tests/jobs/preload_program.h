/* SPDX-License-Identifier: BSD-3-Clause */
/* An MPI program that knows nothing of libdist: what its parts share. */
#ifndef TESTS_PRELOAD_PROGRAM_H
#define TESTS_PRELOAD_PROGRAM_H

#include <mpi.h>

#include <stdbool.h>
#include <stddef.h>

#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

/*
 * Persistent collectives are MPI-4's. Open MPI 5 has them though it says MPI 3.1, Open MPI 4 has
 * them under another name.
 */
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define PROGRAM_INIT(name) MPI_##name##_init
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
#define PROGRAM_INIT(name) MPIX_##name##_init
#endif

/* How a collective is called. */
enum form { BLOCKING, NONBLOCKING, PERSISTENT, FORMS };

/* Where it is called. */
struct place {
    const char *name;
    MPI_Comm comm;
    int rank, ranks;
    enum form form;
};

/*
 * Do all that MPI allows, though MPI libraries get some of it wrong. Tame, the program leaves that
 * out, but has the same results.
 */
extern bool program_bold;

/* Prints what is wrong, with rank and place, and remembers it. */
void program_wrong(const struct place *place, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Takes results into the hash, which must be the same whoever computed them. */
void program_hash(const void *data, size_t bytes);

/*
 * Waits for the request in one of many ways, beside messages of this rank's own: the ways take
 * turns.
 */
void program_wait(const struct place *place, MPI_Request *request);

/* The same for a persistent request: starts it and waits for it; it stays. */
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
 * Fills the buffers and calls MPI_<name> in the place's form, to its end. MPICH 4.0 reads types
 * that are freed in persistent calls, and takes no array with their requests: bold only.
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

/* preload_movers.c: what only moves data, in blocks of `pairs` pairs of integers. */
void program_movers(const struct place *place, int pairs);

/* preload_reductions.c: types that libdist takes, by all operations. */
void program_reductions(const struct place *place, int count);

/* preload_buffers.c; up to 64 ranks */
void program_gaps(const struct place *place, int root);
void program_giant(void);    /* an element of more than 2 GiB; takes 8 GiB */
void program_overlaps(void); /* not MPI, but each rank must be served, or none */

/* preload_again.c: what was called before, but for one thing; up to 64 ranks */
void program_again(void);

/* preload_blocked.c: collectives go on while MPI waits in any call, and Fortran for them */
void program_blocked(void);

/* preload_comms.c */
void program_comms(int rounds); /* one after another, freed without the others, begun crossed */
void program_many(int many);    /* side by side */
void program_persistent(void);  /* made in one order, started in another */

/* preload_compare.c */
void program_compare(void); /* what MPI may do faster, often */

/* preload_cost.c; two ranks */
void program_cost(int calls, const char *name); /* MPI_<name> */
void program_polls(int calls);

/* preload_memory.c */
void program_memory(bool served); /* MPI_Alloc_mem's */

/* preload_refused.c */
void program_refused(void); /* what MPI refuses */

/* preload_others.c */
void program_large(const struct place *place); /* MPI-4's large counts */
void program_handed_on(void);                  /* what must be right though libdist has it not */
void program_errors(void);                     /* calls that disagree: only libdist says so */
void program_progress(void);                   /* messages and collectives wait for each other */
void program_threads(void);                    /* needs MPI_THREAD_MULTIPLE */

#endif
