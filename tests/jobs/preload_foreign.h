/* SPDX-License-Identifier: BSD-3-Clause */
/* A few functions of an MPI whose handles are pointers, as in the standard ABI. */
#ifndef TESTS_PRELOAD_FOREIGN_H
#define TESTS_PRELOAD_FOREIGN_H

typedef struct foreign_comm *MPI_Comm;
typedef struct foreign_request *MPI_Request;
typedef struct foreign_type *MPI_Datatype;
typedef struct foreign_op *MPI_Op;

#define MPI_COMM_WORLD ((MPI_Comm)0x101)
#define MPI_INT ((MPI_Datatype)0x203)
#define MPI_SUM ((MPI_Op)0x21)
#define MPI_STATUS_IGNORE ((void *)0)
#define MPI_SUCCESS 0

/* X(name, parameters, names of the parameters) */
#define FOREIGN_CALLS(X)                                                                           \
    X(Init, (int *argc, char ***argv), (argc, argv))                                               \
    X(Init_thread, (int *argc, char ***argv, int required, int *provided),                         \
      (argc, argv, required, provided))                                                            \
    X(Finalize, (void), ())                                                                        \
    X(Comm_rank, (MPI_Comm comm, int *rank), (comm, rank))                                         \
    X(Comm_dup, (MPI_Comm comm, MPI_Comm * copy), (comm, copy))                                    \
    X(Comm_free, (MPI_Comm * comm), (comm))                                                        \
    X(Allreduce,                                                                                   \
      (const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),         \
      (in, out, count, type, op, comm))                                                            \
    X(Bcast, (void *data, int count, MPI_Datatype type, int root, MPI_Comm comm),                  \
      (data, count, type, root, comm))                                                             \
    X(Iallreduce,                                                                                  \
      (const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,          \
       MPI_Request *request),                                                                      \
      (in, out, count, type, op, comm, request))                                                   \
    X(Wait, (MPI_Request * request, void *status), (request, status))

#define FOREIGN_DECLARE(name, parameters, names)                                                   \
    int MPI_##name parameters;                                                                     \
    int PMPI_##name parameters;
FOREIGN_CALLS(FOREIGN_DECLARE)
#undef FOREIGN_DECLARE

#endif
