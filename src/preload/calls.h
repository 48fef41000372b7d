/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: the table of the MPI collectives that are served. */
#ifndef DISTI_PRELOAD_CALLS_H
#define DISTI_PRELOAD_CALLS_H

/*
 * X(KIND, name, name of the nonblocking form, parameters, arguments, what they are in a struct
 * disti_args `args`). COUNT and DISPL are the integers of the counts and displacements: int, or
 * MPI_Count and MPI_Aint in MPI-4's large forms. What has one type and one count has them as
 * recvtype and recvcount.
 */
#define DISTI_CALLS(X, COUNT, DISPL)                                                               \
    DISTI_CALLS_UNCOUNTED(X)                                                                       \
    DISTI_CALLS_COUNTED(X, COUNT, DISPL)

#define DISTI_CALLS_UNCOUNTED(X)                                                                   \
    X(BARRIER, Barrier, Ibarrier, (MPI_Comm comm), (comm), (args.root = 0))

#define DISTI_CALLS_COUNTED(X, COUNT, DISPL)                                                       \
    X(ALLREDUCE, Allreduce, Iallreduce,                                                            \
      (const void *sendbuf, void *recvbuf, COUNT count, MPI_Datatype type, MPI_Op op,              \
       MPI_Comm comm),                                                                             \
      (sendbuf, recvbuf, count, type, op, comm),                                                   \
      (args.send = sendbuf, args.recv = recvbuf, args.recvcount = count, args.recvtype = type,     \
       args.op = op))                                                                              \
    X(BCAST, Bcast, Ibcast,                                                                        \
      (void *buffer, COUNT count, MPI_Datatype type, int root, MPI_Comm comm),                     \
      (buffer, count, type, root, comm),                                                           \
      (args.recv = buffer, args.recvcount = count, args.recvtype = type, args.root = root))        \
    X(REDUCE, Reduce, Ireduce,                                                                     \
      (const void *sendbuf, void *recvbuf, COUNT count, MPI_Datatype type, MPI_Op op, int root,    \
       MPI_Comm comm),                                                                             \
      (sendbuf, recvbuf, count, type, op, root, comm),                                             \
      (args.send = sendbuf, args.recv = recvbuf, args.recvcount = count, args.recvtype = type,     \
       args.op = op, args.root = root))                                                            \
    X(ALLGATHER, Allgather, Iallgather,                                                            \
      (const void *sendbuf, COUNT sendcount, MPI_Datatype sendtype, void *recvbuf,                 \
       COUNT recvcount, MPI_Datatype recvtype, MPI_Comm comm),                                     \
      (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm),                          \
      (args.send = sendbuf, args.sendcount = sendcount, args.sendtype = sendtype,                  \
       args.recv = recvbuf, args.recvcount = recvcount, args.recvtype = recvtype))                 \
    X(ALLGATHERV, Allgatherv, Iallgatherv,                                                         \
      (const void *sendbuf, COUNT sendcount, MPI_Datatype sendtype, void *recvbuf,                 \
       const COUNT recvcounts[], const DISPL displs[], MPI_Datatype recvtype, MPI_Comm comm),      \
      (sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm),                 \
      (args.send = sendbuf, args.sendcount = sendcount, args.sendtype = sendtype,                  \
       args.recv = recvbuf, args.recvcounts = DISTI_NUMBERS(recvcounts),                           \
       args.recvdispls = DISTI_NUMBERS(displs), args.recvtype = recvtype))                         \
    X(REDUCE_SCATTER, Reduce_scatter, Ireduce_scatter,                                             \
      (const void *sendbuf, void *recvbuf, const COUNT recvcounts[], MPI_Datatype type, MPI_Op op, \
       MPI_Comm comm),                                                                             \
      (sendbuf, recvbuf, recvcounts, type, op, comm),                                              \
      (args.send = sendbuf, args.recv = recvbuf, args.recvcounts = DISTI_NUMBERS(recvcounts),      \
       args.recvtype = type, args.op = op))                                                        \
    X(REDUCE_SCATTER_BLOCK, Reduce_scatter_block, Ireduce_scatter_block,                           \
      (const void *sendbuf, void *recvbuf, COUNT recvcount, MPI_Datatype type, MPI_Op op,          \
       MPI_Comm comm),                                                                             \
      (sendbuf, recvbuf, recvcount, type, op, comm),                                               \
      (args.send = sendbuf, args.recv = recvbuf, args.recvcount = recvcount, args.recvtype = type, \
       args.op = op))                                                                              \
    X(ALLTOALL, Alltoall, Ialltoall,                                                               \
      (const void *sendbuf, COUNT sendcount, MPI_Datatype sendtype, void *recvbuf,                 \
       COUNT recvcount, MPI_Datatype recvtype, MPI_Comm comm),                                     \
      (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm),                          \
      (args.send = sendbuf, args.sendcount = sendcount, args.sendtype = sendtype,                  \
       args.recv = recvbuf, args.recvcount = recvcount, args.recvtype = recvtype))                 \
    X(ALLTOALLV, Alltoallv, Ialltoallv,                                                            \
      (const void *sendbuf, const COUNT sendcounts[], const DISPL sdispls[],                       \
       MPI_Datatype sendtype, void *recvbuf, const COUNT recvcounts[], const DISPL rdispls[],      \
       MPI_Datatype recvtype, MPI_Comm comm),                                                      \
      (sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm),      \
      (args.send = sendbuf, args.sendcounts = DISTI_NUMBERS(sendcounts),                           \
       args.senddispls = DISTI_NUMBERS(sdispls), args.sendtype = sendtype, args.recv = recvbuf,    \
       args.recvcounts = DISTI_NUMBERS(recvcounts), args.recvdispls = DISTI_NUMBERS(rdispls),      \
       args.recvtype = recvtype))                                                                  \
    X(GATHER, Gather, Igather,                                                                     \
      (const void *sendbuf, COUNT sendcount, MPI_Datatype sendtype, void *recvbuf,                 \
       COUNT recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm),                           \
      (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm),                    \
      (args.send = sendbuf, args.sendcount = sendcount, args.sendtype = sendtype,                  \
       args.recv = recvbuf, args.recvcount = recvcount, args.recvtype = recvtype,                  \
       args.root = root))                                                                          \
    X(GATHERV, Gatherv, Igatherv,                                                                  \
      (const void *sendbuf, COUNT sendcount, MPI_Datatype sendtype, void *recvbuf,                 \
       const COUNT recvcounts[], const DISPL displs[], MPI_Datatype recvtype, int root,            \
       MPI_Comm comm),                                                                             \
      (sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root, comm),           \
      (args.send = sendbuf, args.sendcount = sendcount, args.sendtype = sendtype,                  \
       args.recv = recvbuf, args.recvcounts = DISTI_NUMBERS(recvcounts),                           \
       args.recvdispls = DISTI_NUMBERS(displs), args.recvtype = recvtype, args.root = root))       \
    X(SCATTER, Scatter, Iscatter,                                                                  \
      (const void *sendbuf, COUNT sendcount, MPI_Datatype sendtype, void *recvbuf,                 \
       COUNT recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm),                           \
      (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm),                    \
      (args.send = sendbuf, args.sendcount = sendcount, args.sendtype = sendtype,                  \
       args.recv = recvbuf, args.recvcount = recvcount, args.recvtype = recvtype,                  \
       args.root = root))                                                                          \
    X(SCATTERV, Scatterv, Iscatterv,                                                               \
      (const void *sendbuf, const COUNT sendcounts[], const DISPL displs[], MPI_Datatype sendtype, \
       void *recvbuf, COUNT recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm),            \
      (sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root, comm),           \
      (args.send = sendbuf, args.sendcounts = DISTI_NUMBERS(sendcounts),                           \
       args.senddispls = DISTI_NUMBERS(displs), args.sendtype = sendtype, args.recv = recvbuf,     \
       args.recvcount = recvcount, args.recvtype = recvtype, args.root = root))

#endif
