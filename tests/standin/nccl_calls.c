/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions of the stand-in's NCCL: they check their arguments and enqueue the calls. */
#include "communicator.h"

#include <stdlib.h>
#include <string.h>

enum { RESIDENCE_DEVICE, RESIDENCE_HOST };

/* ---- user-defined operators ---- */

/* Returns the operator of that number. Caller holds the lock. */
static struct nccl_operator *calls_operator(const struct ncclComm *comm, int number)
{
    struct nccl_operator *op = comm->operators;

    while (op && op->number != number)
        op = op->next;
    return op;
}

int ncclRedOpCreatePreMulSum(int *op_p, void *scalar, int type, int residence,
                             struct ncclComm *comm)
{
    int result = nccl_ready(comm);
    struct nccl_operator *op;

    if (result)
        return result;
    if (!op_p || !scalar || !nccl_type_sums(type) ||
        (residence != RESIDENCE_DEVICE && residence != RESIDENCE_HOST))
        return nccl_fail(RESULT_InvalidArgument, "ncclRedOpCreatePreMulSum: invalid argument");
    if (residence == RESIDENCE_DEVICE && !standin_alias(scalar, nccl_type_size(type)))
        return nccl_fail(RESULT_InvalidArgument, "scalar is not memory of a device");
    op = calloc(1, sizeof(*op));
    if (!op)
        return nccl_fail(RESULT_SystemError, "out of memory");
    op->type = type;
    if (residence == RESIDENCE_DEVICE)
        op->scalar.device = scalar;
    else
        memcpy(op->scalar.bytes, scalar, nccl_type_size(type));
    standin_lock();
    op->number = comm->operator_count++;
    op->next = comm->operators;
    comm->operators = op;
    standin_unlock();
    *op_p = op->number;
    return RESULT_Success;
}

int ncclRedOpDestroy(int number, struct ncclComm *comm)
{
    struct nccl_operator **at, *op = NULL;

    if (!comm)
        return nccl_fail(RESULT_InvalidArgument, "comm argument is NULL");
    standin_lock();
    for (at = &comm->operators; *at && (*at)->number != number; at = &(*at)->next)
        ;
    op = *at;
    if (op)
        *at = op->next;
    standin_unlock();
    free(op);
    return op ? RESULT_Success
              : nccl_fail(RESULT_InvalidArgument, "ncclRedOpDestroy: no such operator %d", number);
}

/* Copies the operator's factor into the call. */
static int calls_find_scalar(struct ncclComm *comm, struct nccl_call *call)
{
    struct nccl_operator *op;
    int result = RESULT_Success;

    standin_lock();
    op = calls_operator(comm, call->op);
    if (!op || op->type != call->type)
        result = nccl_fail(RESULT_InvalidArgument,
                           op ? "operator %d is of another type" : "operator %d does not exist",
                           call->op);
    else
        call->scalar = op->scalar;
    standin_unlock();
    return result;
}

/* ---- checks of all calls ---- */

static int calls_check(struct ncclComm *comm, struct nccl_call *call, const char *name)
{
    bool reduces = call->kind <= KIND_REDUCE_SCATTER;
    unsigned char *in, *out;
    int result = nccl_ready(comm);

    if (result)
        return result;
    if (call->peer < 0 || call->peer >= comm->ranks)
        return nccl_fail(RESULT_InvalidArgument,
                         "%s : invalid root %d (root should be in the 0..%d "
                         "range)",
                         name, call->peer, comm->ranks);
    if (nccl_type_size(call->type) == 0 || (reduces && !nccl_type_sums(call->type)))
        return nccl_fail(RESULT_InvalidArgument, "%s : invalid type %d", name, call->type);
    if (call->op < 0)
        return nccl_fail(RESULT_InvalidArgument, "%s : invalid reduction operation %d", name,
                         call->op);
    if (reduces && call->op >= OP_NumOps && (result = calls_find_scalar(comm, call)))
        return result;
    if (!nccl_find_memory(comm, call, &in, &out))
        return nccl_fail(RESULT_InvalidArgument,
                         "%s : sendbuff %p or recvbuff %p is not a valid pointer, %zu elements",
                         name, call->in, call->out, call->count);
    return RESULT_Success;
}

/* A collective without data completes at once, without the other ranks; a send or receive does not.
 */
static int calls_take(struct ncclComm *comm, struct nccl_call call, const char *name)
{
    int result = calls_check(comm, &call, name);

    if (result)
        return nccl_note(result);
    if (call.count == 0 && call.kind != KIND_SEND && call.kind != KIND_RECV)
        return RESULT_Success;
    return nccl_take(comm, &call);
}

/* ---- collectives ---- */

int ncclAllReduce(const void *in, void *out, size_t count, int type, int op, struct ncclComm *comm,
                  void *stream)
{
    return calls_take(comm,
                      (struct nccl_call){.kind = KIND_ALL_REDUCE,
                                         .in = in,
                                         .out = out,
                                         .count = count,
                                         .type = type,
                                         .op = op,
                                         .stream = stream},
                      "AllReduce");
}

int ncclReduce(const void *in, void *out, size_t count, int type, int op, int root,
               struct ncclComm *comm, void *stream)
{
    return calls_take(comm,
                      (struct nccl_call){.kind = KIND_REDUCE,
                                         .in = in,
                                         .out = out,
                                         .count = count,
                                         .type = type,
                                         .op = op,
                                         .peer = root,
                                         .stream = stream},
                      "Reduce");
}

int ncclReduceScatter(const void *in, void *out, size_t count, int type, int op,
                      struct ncclComm *comm, void *stream)
{
    return calls_take(comm,
                      (struct nccl_call){.kind = KIND_REDUCE_SCATTER,
                                         .in = in,
                                         .out = out,
                                         .count = count,
                                         .type = type,
                                         .op = op,
                                         .stream = stream},
                      "ReduceScatter");
}

int ncclBroadcast(const void *in, void *out, size_t count, int type, int root,
                  struct ncclComm *comm, void *stream)
{
    return calls_take(comm,
                      (struct nccl_call){.kind = KIND_BROADCAST,
                                         .in = in,
                                         .out = out,
                                         .count = count,
                                         .type = type,
                                         .peer = root,
                                         .stream = stream},
                      "Broadcast");
}

int ncclAllGather(const void *in, void *out, size_t count, int type, struct ncclComm *comm,
                  void *stream)
{
    return calls_take(comm,
                      (struct nccl_call){.kind = KIND_ALL_GATHER,
                                         .in = in,
                                         .out = out,
                                         .count = count,
                                         .type = type,
                                         .stream = stream},
                      "AllGather");
}

/* ---- point to point ---- */

int ncclSend(const void *in, size_t count, int type, int peer, struct ncclComm *comm, void *stream)
{
    return calls_take(comm,
                      (struct nccl_call){.kind = KIND_SEND,
                                         .in = in,
                                         .count = count,
                                         .type = type,
                                         .peer = peer,
                                         .stream = stream},
                      "Send");
}

int ncclRecv(void *out, size_t count, int type, int peer, struct ncclComm *comm, void *stream)
{
    return calls_take(comm,
                      (struct nccl_call){.kind = KIND_RECV,
                                         .out = out,
                                         .count = count,
                                         .type = type,
                                         .peer = peer,
                                         .stream = stream},
                      "Recv");
}

/*
 * Adds a send of block `to` and a receive into block `from` to the open group. -1: no such send or
 * receive.
 */
static int calls_pair(const void *in, int to, void *out, int from, size_t count, int type, int peer,
                      struct ncclComm *comm, void *stream)
{
    size_t bytes = count * nccl_type_size(type);
    int result = RESULT_Success;

    if (to >= 0)
        result = ncclSend((const char *)in + (size_t)to * bytes, count, type, peer, comm, stream);
    if (from >= 0 && !result)
        result = ncclRecv((char *)out + (size_t)from * bytes, count, type, peer, comm, stream);
    return result;
}

int ncclAlltoAll(const void *in, void *out, size_t count, int type, struct ncclComm *comm,
                 void *stream)
{
    int result = nccl_ready(comm), end;

    if (result)
        return nccl_note(result);
    ncclGroupStart();
    for (int r = 0; r < comm->ranks && count && !result; r++)
        result = calls_pair(in, r, out, r, count, type, r, comm, stream);
    end = ncclGroupEnd();
    return result ? result : end;
}

int ncclGather(const void *in, void *out, size_t count, int type, int root, struct ncclComm *comm,
               void *stream)
{
    int result = nccl_ready(comm), end;

    if (result)
        return nccl_note(result);
    ncclGroupStart();
    if (count)
        result = calls_pair(in, 0, NULL, -1, count, type, root, comm, stream);
    for (int r = 0; r < comm->ranks && comm->rank == root && count && !result; r++)
        result = calls_pair(NULL, -1, out, r, count, type, r, comm, stream);
    end = ncclGroupEnd();
    return result ? result : end;
}

int ncclScatter(const void *in, void *out, size_t count, int type, int root, struct ncclComm *comm,
                void *stream)
{
    int result = nccl_ready(comm), end;

    if (result)
        return nccl_note(result);
    ncclGroupStart();
    for (int r = 0; r < comm->ranks && comm->rank == root && count && !result; r++)
        result = calls_pair(in, r, NULL, -1, count, type, r, comm, stream);
    if (count && !result)
        result = calls_pair(NULL, -1, out, 0, count, type, root, comm, stream);
    end = ncclGroupEnd();
    return result ? result : end;
}

/* ---- memory ---- */

int ncclMemAlloc(void **memory, size_t bytes)
{
    int device, error = standin_current(&device);

    error = error ? error : standin_memory_new(MEMORY_OF_DEVICE, device, bytes, memory);
    if (!error)
        standin_memory_unbind(*memory);
    return error ? nccl_fail(RESULT_UnhandledCudaError, "Cuda failure '%s'",
                             standin_error_text(error))
                 : RESULT_Success;
}

int ncclMemFree(void *memory)
{
    int error = standin_memory_drop(memory, true);

    return error ? nccl_fail(RESULT_UnhandledCudaError, "Cuda failure '%s'",
                             standin_error_text(error))
                 : RESULT_Success;
}

static int calls_register(struct ncclComm *comm, void *memory, size_t bytes, void **handle)
{
    int result = nccl_ready(comm);

    if (result)
        return result;
    if (!handle || !standin_alias(memory, bytes))
        return nccl_fail(RESULT_InvalidArgument, "register: %p is not memory of a device", memory);
    *handle = malloc(1); /* detected as a leak if it is not deregistered */
    return *handle ? RESULT_Success : RESULT_SystemError;
}

static int calls_deregister(const struct ncclComm *comm, void *handle)
{
    if (!comm || !handle)
        return nccl_fail(RESULT_InvalidArgument, "deregister: no such handle");
    free(handle);
    return RESULT_Success;
}

int ncclCommRegister(struct ncclComm *comm, void *memory, size_t bytes, void **handle)
{
    return calls_register(comm, memory, bytes, handle);
}

int ncclCommDeregister(struct ncclComm *comm, void *handle)
{
    return calls_deregister(comm, handle);
}

int ncclCommWindowRegister(struct ncclComm *comm, void *memory, size_t bytes, void **window,
                           int flags)
{
    (void)flags;
    return calls_register(comm, memory, bytes, window);
}

int ncclCommWindowDeregister(struct ncclComm *comm, void *window)
{
    return calls_deregister(comm, window);
}
