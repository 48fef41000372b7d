/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: the table of the MPI collectives that libdist serves. */
#ifndef DISTI_PRELOAD_CALLS_H
#define DISTI_PRELOAD_CALLS_H

/*
 * Assign one side of `args`, a struct disti_args; CALLS_SIDES with a count and a displacement per
 * rank.
 */
#define CALLS_SIDE(side, buffer, n, datatype)                                                      \
    args.side.memory = buffer, args.side.count = n, args.side.type = datatype
#define CALLS_SIDES(side, buffer, ns, offsets, datatype)                                           \
    args.side.memory = buffer, args.side.counts = DISTI_NUMBERS(ns),                               \
    args.side.displs = DISTI_NUMBERS(offsets), args.side.type = datatype

/* One side of a call: its parameters, its arguments, and the assignments to a struct disti_args. */
#define CALLS_SEND_PARAMETERS(COUNT) const void *sendbuf, COUNT sendcount, MPI_Datatype sendtype
#define CALLS_SEND sendbuf, sendcount, sendtype
#define CALLS_SEND_FIELDS CALLS_SIDE(send, sendbuf, sendcount, sendtype)
#define CALLS_RECV_PARAMETERS(COUNT) void *recvbuf, COUNT recvcount, MPI_Datatype recvtype
#define CALLS_RECV recvbuf, recvcount, recvtype
#define CALLS_RECV_FIELDS CALLS_SIDE(recv, recvbuf, recvcount, recvtype)

/* The same with a count and a displacement per rank. */
#define CALLS_SENDS_PARAMETERS(COUNT, DISPL)                                                       \
    const void *sendbuf, const COUNT sendcounts[], const DISPL sdispls[], MPI_Datatype sendtype
#define CALLS_SENDS sendbuf, sendcounts, sdispls, sendtype
#define CALLS_SENDS_FIELDS CALLS_SIDES(send, sendbuf, sendcounts, sdispls, sendtype)
#define CALLS_RECVS_PARAMETERS(COUNT, DISPL)                                                       \
    void *recvbuf, const COUNT recvcounts[], const DISPL rdispls[], MPI_Datatype recvtype
#define CALLS_RECVS recvbuf, recvcounts, rdispls, recvtype
#define CALLS_RECVS_FIELDS CALLS_SIDES(recv, recvbuf, recvcounts, rdispls, recvtype)

/* Both sides of a reduction: they share one count and one type. */
#define CALLS_REDUCE_PARAMETERS(COUNT)                                                             \
    const void *sendbuf, void *recvbuf, COUNT count, MPI_Datatype type, MPI_Op op
#define CALLS_REDUCE sendbuf, recvbuf, count, type, op
#define CALLS_REDUCE_FIELDS                                                                        \
    args.send.memory = sendbuf, CALLS_SIDE(recv, recvbuf, count, type), args.op = op

/*
 * X(libdist's collective, name, name of the nonblocking form, parameters, arguments, assignments to
 * a struct disti_args `args`). COUNT and DISPL are the integer types of the counts and
 * displacements: int, or MPI_Count and MPI_Aint in the large-count functions of MPI-4. If a call
 * has only one type and one count, they are stored in args.recv.
 */
#define DISTI_CALLS(X, COUNT, DISPL)                                                               \
    X(BARRIER, Barrier, Ibarrier, (MPI_Comm comm), (comm), (args.root = 0))                        \
    DISTI_CALLS_COUNTED(X, COUNT, DISPL)

#define DISTI_CALLS_COUNTED(X, COUNT, DISPL)                                                       \
    X(ALL_REDUCE, Allreduce, Iallreduce, (CALLS_REDUCE_PARAMETERS(COUNT), MPI_Comm comm),          \
      (CALLS_REDUCE, comm), (CALLS_REDUCE_FIELDS))                                                 \
    X(BROADCAST, Bcast, Ibcast,                                                                    \
      (void *buffer, COUNT count, MPI_Datatype type, int root, MPI_Comm comm),                     \
      (buffer, count, type, root, comm),                                                           \
      (CALLS_SIDE(recv, buffer, count, type), args.root = root))                                   \
    X(REDUCE, Reduce, Ireduce, (CALLS_REDUCE_PARAMETERS(COUNT), int root, MPI_Comm comm),          \
      (CALLS_REDUCE, root, comm), (CALLS_REDUCE_FIELDS, args.root = root))                         \
    X(ALL_GATHER, Allgather, Iallgather,                                                           \
      (CALLS_SEND_PARAMETERS(COUNT), CALLS_RECV_PARAMETERS(COUNT), MPI_Comm comm),                 \
      (CALLS_SEND, CALLS_RECV, comm), (CALLS_SEND_FIELDS, CALLS_RECV_FIELDS))                      \
    X(ALL_GATHER_V, Allgatherv, Iallgatherv,                                                       \
      (CALLS_SEND_PARAMETERS(COUNT), CALLS_RECVS_PARAMETERS(COUNT, DISPL), MPI_Comm comm),         \
      (CALLS_SEND, CALLS_RECVS, comm), (CALLS_SEND_FIELDS, CALLS_RECVS_FIELDS))                    \
    X(REDUCE_SCATTER_V, Reduce_scatter, Ireduce_scatter,                                           \
      (const void *sendbuf, void *recvbuf, const COUNT recvcounts[], MPI_Datatype type, MPI_Op op, \
       MPI_Comm comm),                                                                             \
      (sendbuf, recvbuf, recvcounts, type, op, comm),                                              \
      (args.send.memory = sendbuf, args.recv.memory = recvbuf,                                     \
       args.recv.counts = DISTI_NUMBERS(recvcounts), args.recv.type = type, args.op = op))         \
    X(REDUCE_SCATTER, Reduce_scatter_block, Ireduce_scatter_block,                                 \
      (CALLS_REDUCE_PARAMETERS(COUNT), MPI_Comm comm), (CALLS_REDUCE, comm),                       \
      (CALLS_REDUCE_FIELDS))                                                                       \
    X(ALL_TO_ALL, Alltoall, Ialltoall,                                                             \
      (CALLS_SEND_PARAMETERS(COUNT), CALLS_RECV_PARAMETERS(COUNT), MPI_Comm comm),                 \
      (CALLS_SEND, CALLS_RECV, comm), (CALLS_SEND_FIELDS, CALLS_RECV_FIELDS))                      \
    X(ALL_TO_ALL_V, Alltoallv, Ialltoallv,                                                         \
      (CALLS_SENDS_PARAMETERS(COUNT, DISPL), CALLS_RECVS_PARAMETERS(COUNT, DISPL), MPI_Comm comm), \
      (CALLS_SENDS, CALLS_RECVS, comm), (CALLS_SENDS_FIELDS, CALLS_RECVS_FIELDS))                  \
    X(GATHER, Gather, Igather,                                                                     \
      (CALLS_SEND_PARAMETERS(COUNT), CALLS_RECV_PARAMETERS(COUNT), int root, MPI_Comm comm),       \
      (CALLS_SEND, CALLS_RECV, root, comm),                                                        \
      (CALLS_SEND_FIELDS, CALLS_RECV_FIELDS, args.root = root))                                    \
    X(GATHER_V, Gatherv, Igatherv,                                                                 \
      (CALLS_SEND_PARAMETERS(COUNT), CALLS_RECVS_PARAMETERS(COUNT, DISPL), int root,               \
       MPI_Comm comm),                                                                             \
      (CALLS_SEND, CALLS_RECVS, root, comm),                                                       \
      (CALLS_SEND_FIELDS, CALLS_RECVS_FIELDS, args.root = root))                                   \
    X(SCATTER, Scatter, Iscatter,                                                                  \
      (CALLS_SEND_PARAMETERS(COUNT), CALLS_RECV_PARAMETERS(COUNT), int root, MPI_Comm comm),       \
      (CALLS_SEND, CALLS_RECV, root, comm),                                                        \
      (CALLS_SEND_FIELDS, CALLS_RECV_FIELDS, args.root = root))                                    \
    X(SCATTER_V, Scatterv, Iscatterv,                                                              \
      (CALLS_SENDS_PARAMETERS(COUNT, DISPL), CALLS_RECV_PARAMETERS(COUNT), int root,               \
       MPI_Comm comm),                                                                             \
      (CALLS_SENDS, CALLS_RECV, root, comm),                                                       \
      (CALLS_SENDS_FIELDS, CALLS_RECV_FIELDS, args.root = root))

#endif
