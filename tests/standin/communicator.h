/* SPDX-License-Identifier: BSD-3-Clause */
/* The stand-in's NCCL: communicators of several processes of one machine. */
#ifndef TESTS_STANDIN_COMMUNICATOR_H
#define TESTS_STANDIN_COMMUNICATOR_H

#include "nccl_abi.h"

#include <stdatomic.h>

/*
 * Modelled on NCCL 2.28:
 * - Launches of a communicator run one at a time, in the order in which they were enqueued. A
 *   group is one launch on all its streams together: its collectives in order, then its sends and
 *   receives at once. ncclAlltoAll, ncclGather and ncclScatter are sends and receives.
 * - A send ends no earlier than its receive has begun: exchanges that are not grouped hang.
 * - If a rank exits, the other ranks hang until they abort.
 * - In a nonblocking communicator each launch, and its creation, is in progress at first: using it
 *   before ncclCommGetAsyncError returns ncclSuccess is ncclInvalidArgument.
 * - Launches of an aborted communicator end; the streams continue.
 * - Two ranks on one device, or a send to itself without its receive: ncclInvalidUsage.
 * Stricter than NCCL: memory is checked when a call is made, and mismatched sizes, types or
 * operations end in an asynchronous ncclInternalError, where NCCL hangs or has undefined results.
 * Not modelled: fp8 sums, ncclCommInitAll, ncclCommShrink, ncclCommRevoke, several unique ids.
 *
 * Ranks find each other by abstract Unix sockets named after the unique id. Each pair transfers
 * data over two sockets, one per direction; on each the receiver announces that it is ready.
 */

struct nccl_scalar {
    const void *device; /* address from which a launch reads the factor; NULL: it is in `bytes` */
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
    int *to, *from; /* sockets by rank; -1 for this rank */
    int doorbell;   /* readable after an abort */
    atomic_bool aborted;
    atomic_int state; /* the asynchronous error */
    /* Protected by the lock: */
    uint64_t launched, ended, running;
    int users; /* number of references: handle, launches, threads */
    bool finalizing;
    struct nccl_operator *operators;
    int operator_count;
};

/* Stores the text for ncclGetLastError; returns `result`. */
int nccl_fail(int result, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- nccl_comm.c ---- */

/*
 * Returns RESULT_Success if the communicator can be used; otherwise the result that the caller must
 * return.
 */
int nccl_ready(struct ncclComm *comm);
/* Sets the asynchronous error; the failed launch then hangs until the abort. */
void nccl_fail_async(struct ncclComm *comm, int result);
void nccl_comm_drop(struct ncclComm *comm); /* drops a reference; caller holds the lock */
/* Returns a communicator with one reference and without device, id and connections, or NULL if
 * there is no memory. */
struct ncclComm *nccl_comm_new(int rank, int ranks, bool blocking);
/* Connects to the other ranks, which have the same id. */
int nccl_comm_connect(struct ncclComm *comm);
int *nccl_sockets_none(int count); /* returns an array of -1 */
void nccl_sockets_close(const int *fds, int count);

/* ---- nccl_mesh.c ---- */

/* A rank's description, which ranks exchange when they connect. */
struct nccl_identity {
    int32_t rank, ranks, device, color, key;
};

/*
 * Connects to all other ranks and exchanges their identities. comm is only used to detect an abort.
 * Stores the connected sockets in to and from, by rank.
 */
int nccl_mesh(struct ncclComm *comm, const unsigned char *id, const struct nccl_identity *own,
              struct nccl_identity *identities, int *to, int *from);

/* ---- nccl_exchange.c ---- */
struct nccl_move {
    bool sends;
    int peer;
    unsigned char *data;
    size_t bytes;
    uint64_t label; /* must be equal on both sides */
    size_t greeted, moved;
    uint64_t greeting[2];
    bool dead;
};

/*
 * Transfers all moves concurrently, except that moves with the same peer and direction stay in
 * order. Returns false after an abort.
 */
bool nccl_exchange(struct ncclComm *comm, struct nccl_move *moves, int count);
void nccl_hang(struct ncclComm *comm); /* waits for the abort */

/* ---- nccl_reduce.c ---- */
size_t nccl_type_size(int type); /* 0 if there is no such type */
bool nccl_type_sums(int type);
/* out[i] = the operation on rows[0][i], rows[1][i], ...; scalars: one factor per row, or NULL. */
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
    int type, op, peer; /* peer of a send or receive, or root */
    struct nccl_scalar scalar;
    void *stream;
};

/* Adds a call to this thread's group, or launches it. */
int nccl_take(struct ncclComm *comm, const struct nccl_call *call);
/* Records and returns the result of a call; the end of a group returns its first error. */
int nccl_note(int result);
/*
 * Makes a communicator: at the end of the thread's group if one is open, otherwise at once. Takes
 * ownership of arg.
 */
int nccl_make(struct ncclComm *comm, int (*make)(struct ncclComm *comm, void *arg), void *arg,
              struct ncclComm **comm_p);

/* ---- nccl_launch.c ---- */

/* Enqueues the calls on their streams as one launch. */
int nccl_launch(struct ncclComm *comm, const struct nccl_call *calls, int count);

/* ---- nccl_run.c ---- */

/* Finds the call's memory. Returns false if some of it is not accessible to a device. */
bool nccl_find_memory(const struct ncclComm *comm, const struct nccl_call *call,
                      unsigned char **in_p, unsigned char **out_p);
/* Executes all calls of a launch. Returns false if it was aborted. */
bool nccl_run(struct ncclComm *comm, const struct nccl_call *calls, int count);

#define NCCL_PROTOTYPE(name, parameters) STANDIN_API NCCL_T_RESULT name parameters;
NCCL_CALLS(NCCL_PROTOTYPE)
#undef NCCL_PROTOTYPE
STANDIN_API const char *ncclGetErrorString(int result);
STANDIN_API const char *ncclGetLastError(struct ncclComm *comm);

#endif
