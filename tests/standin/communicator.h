/* SPDX-License-Identifier: BSD-3-Clause */
/* The stand-in's NCCL: communicators of several processes of one machine. */
#ifndef TESTS_STANDIN_COMMUNICATOR_H
#define TESTS_STANDIN_COMMUNICATOR_H

#include "nccl_abi.h"

#include <stdatomic.h>

/*
 * Modelled, as NCCL 2.28 has it:
 * - Launches of a communicator run in the order in which they were put on streams, one at a time;
 *   a group is one launch, on all its streams together: its collectives in order, then its sends
 *   and receives at once. ncclAlltoAll, ncclGather and ncclScatter are sends and receives.
 * - A send ends no earlier than its receive has begun: exchanges that are not grouped hang.
 * - A rank that is gone makes the others hang, until they abort.
 * - Of a communicator that does not block each launch, and its making, is in progress at first:
 *   using it before ncclCommGetAsyncError says ncclSuccess is ncclInvalidArgument.
 * - An aborted communicator's launches end; the streams go on.
 * - Two ranks on one device, a send to oneself without its receive: ncclInvalidUsage.
 * Stricter than NCCL: memory is looked up when a call is made, and sizes, types or operations that
 * do not match end in an asynchronous ncclInternalError, where NCCL hangs or does anything.
 * Not modelled: fp8 sums, ncclCommInitAll, ncclCommShrink, ncclCommRevoke, several unique ids.
 *
 * Ranks find each other by abstract Unix sockets that are named after the unique id, and move data
 * over two sockets for each pair: one each way, on which the receiver says that it is ready.
 */

struct nccl_scalar {
    const void *device; /* where it is at the time; NULL: it is in `bytes` */
    unsigned char bytes[8];
};

struct nccl_operator {
    struct nccl_operator *next;
    int number, type;
    struct nccl_scalar scalar;
};

struct ncclComm {
    int rank, ranks, device;
    bool blocking;
    unsigned char id[16];
    uint64_t splits;
    int *to, *from; /* sockets by rank; -1: this rank */
    int doorbell;   /* readable when it is aborted */
    atomic_bool aborted;
    atomic_int state; /* the asynchronous error */
    /* With the lock: */
    uint64_t launched, ended, running;
    int users; /* its handle, its launches, its threads */
    bool finalizing;
    struct nccl_operator *operators;
    int operator_count;
};

/* Says what went wrong, for ncclGetLastError; returns the result. */
int nccl_fail(int result, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- nccl_comm.c ---- */

/* Can it be used? Else the result to return. */
int nccl_ready(struct ncclComm *comm);
/* The asynchronous error; the launch that met it then hangs until the abort. */
void nccl_fail_async(struct ncclComm *comm, int result);
void nccl_comm_drop(struct ncclComm *comm); /* with the lock */
/* With one use, and no device, id and connections yet; NULL: no memory. */
struct ncclComm *nccl_comm_new(int rank, int ranks, bool blocking);
/* Meets the others, by its id. */
int nccl_comm_connect(struct ncclComm *comm);
int *nccl_sockets_none(int count); /* -1 each */
void nccl_sockets_close(const int *fds, int count);

/* ---- nccl_mesh.c ---- */

/* What a rank says of itself when the ranks meet. */
struct nccl_card {
    int32_t rank, ranks, device, color, key;
};

/* Connects with all others, and learns their cards. comm: for the abort; to, from: its sockets. */
int nccl_mesh(struct ncclComm *comm, const unsigned char *id, const struct nccl_card *own,
              struct nccl_card *cards, int *to, int *from);

/* ---- nccl_exchange.c ---- */
struct nccl_move {
    bool sends;
    int peer;
    unsigned char *data;
    size_t bytes;
    uint64_t label; /* must be the same on both sides */
    size_t greeted, moved;
    uint64_t greeting[2];
    bool dead;
};

/* All of them at once; those with one peer in one direction in order. False: aborted. */
bool nccl_exchange(struct ncclComm *comm, struct nccl_move *moves, int count);
void nccl_hang(struct ncclComm *comm); /* until the abort */

/* ---- nccl_reduce.c ---- */
size_t nccl_type_size(int type); /* 0: no such type */
bool nccl_type_sums(int type);
/* out[i] = the operation on rows[0][i], rows[1][i], ...; scalars: each row's factor, or NULL. */
void nccl_reduce_rows(int type, int op, int ranks, const unsigned char *rows, size_t stride,
                      const unsigned char *scalars, size_t count, void *out);

/* ---- nccl_group.c ---- */
enum nccl_kind {
    KIND_ALL_REDUCE,
    KIND_REDUCE,
    KIND_REDUCE_SCATTER,
    KIND_BROADCAST,
    KIND_ALL_GATHER,
    KIND_SEND,
    KIND_RECV
};

struct nccl_call {
    enum nccl_kind kind;
    const void *in;
    void *out;
    size_t count;
    int type, op, peer; /* peer: or root */
    struct nccl_scalar scalar;
    void *stream;
};

/* Takes a call into this thread's group, or launches it. */
int nccl_take(struct ncclComm *comm, const struct nccl_call *call);
/* A result of a call: in a group, its end returns the first bad one too. */
int nccl_note(int result);
/* The making of a communicator, at the end of the group if there is one. Takes over arg. */
int nccl_make(struct ncclComm *comm, int (*make)(struct ncclComm *comm, void *arg), void *arg,
              struct ncclComm **comm_p);

/* ---- nccl_launch.c ---- */

/* Puts the calls on their streams, as one launch. */
int nccl_launch(struct ncclComm *comm, const struct nccl_call *calls, int count);

/* ---- nccl_run.c ---- */

/* Where the call's memory is; false: not all of it is memory that a device reaches. */
bool nccl_find_memory(const struct ncclComm *comm, const struct nccl_call *call,
                      unsigned char **in_p, unsigned char **out_p);
/* All calls of a launch. False: it was aborted. */
bool nccl_run(struct ncclComm *comm, const struct nccl_call *calls, int count);

#define NCCL_PROTOTYPE(name, parameters) STANDIN_API NCCL_T_RESULT name parameters;
NCCL_CALLS(NCCL_PROTOTYPE)
#undef NCCL_PROTOTYPE
STANDIN_API const char *ncclGetErrorString(int result);
STANDIN_API const char *ncclGetLastError(struct ncclComm *comm);

#endif
