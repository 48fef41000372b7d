/* SPDX-License-Identifier: BSD-3-Clause */
/* Transfers data between ranks: the receiver sends a greeting, then the sender sends the data. */
#include "communicator.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Number of bytes that one move transfers before the next move has its turn. */
#define EXCHANGE_PIECE ((size_t)1 << 18)

void nccl_hang(struct ncclComm *comm)
{
    standin_lock();
    while (!comm->aborted)
        standin_wait();
    standin_unlock();
}

static int exchange_fd(const struct ncclComm *comm, const struct nccl_move *move)
{
    return move->sends ? comm->to[move->peer] : comm->from[move->peer];
}

static bool exchange_is_done(const struct nccl_move *move)
{
    return move->greeted == sizeof(move->greeting) && move->moved == move->bytes;
}

/* True if this side writes next. The greeting goes in the opposite direction of the data. */
static bool exchange_writes(const struct nccl_move *move)
{
    return move->sends == (move->greeted == sizeof(move->greeting));
}

/* True if moves[at] is the first unfinished move of its direction and peer. */
static bool exchange_is_due(const struct nccl_move *moves, int at)
{
    if (moves[at].dead || exchange_is_done(&moves[at]))
        return false;
    for (int i = 0; i < at; i++) {
        if (moves[i].peer == moves[at].peer && moves[i].sends == moves[at].sends &&
            !exchange_is_done(&moves[i]))
            return false;
    }
    return true;
}

/*
 * Transfers some bytes and returns their number; 0 if none can be transferred at the moment. As
 * with NCCL, this does not detect that a peer has exited.
 */
static size_t exchange_some(int fd, struct nccl_move *move, void *data, size_t bytes)
{
    ssize_t n;

    if (bytes > EXCHANGE_PIECE)
        bytes = EXCHANGE_PIECE;
    n = exchange_writes(move) ? send(fd, data, bytes, MSG_NOSIGNAL) : recv(fd, data, bytes, 0);
    if (n > 0)
        return (size_t)n;
    move->dead = n == 0 || (errno != EAGAIN && errno != EINTR);
    return 0;
}

/* Compares the receiver's greeting with the data to send. Returns false if they differ. */
static bool exchange_fits(struct ncclComm *comm, const struct nccl_move *move)
{
    if (!move->sends || (move->greeting[0] == move->bytes && move->greeting[1] == move->label))
        return true;
    nccl_fail_async(comm,
                    nccl_fail(RESULT_InternalError,
                              "rank %d sends %zu bytes of %llx where rank %d expects %llu of %llx",
                              comm->rank, move->bytes, (unsigned long long)move->label, move->peer,
                              (unsigned long long)move->greeting[0],
                              (unsigned long long)move->greeting[1]));
    return false;
}

/* Makes one step. Returns false if the two sides do not match. */
static bool exchange_step(struct ncclComm *comm, struct nccl_move *move, bool *progress_p)
{
    const size_t greeting = sizeof(move->greeting);
    int fd = exchange_fd(comm, move);
    size_t n;

    if (move->greeted < greeting) {
        n = exchange_some(fd, move, (unsigned char *)move->greeting + move->greeted,
                          greeting - move->greeted);
        move->greeted += n;
        *progress_p |= n > 0;
        if (move->greeted < greeting)
            return true;
        if (!exchange_fits(comm, move))
            return false;
    }
    n = move->moved < move->bytes
            ? exchange_some(fd, move, move->data + move->moved, move->bytes - move->moved)
            : 0;
    move->moved += n;
    *progress_p |= n > 0;
    return true;
}

/* Sleeps until some move can continue, or until the abort. */
static void exchange_sleep(struct ncclComm *comm, const struct nccl_move *moves, int count,
                           struct pollfd *fds)
{
    nfds_t n = 1;

    fds[0] = (struct pollfd){.fd = comm->doorbell, .events = POLLIN};
    for (int i = 0; i < count; i++) {
        if (exchange_is_due(moves, i))
            fds[n++] = (struct pollfd){.fd = exchange_fd(comm, &moves[i]),
                                       .events = exchange_writes(&moves[i]) ? POLLOUT : POLLIN};
    }
    while (poll(fds, n, -1) < 0 && errno == EINTR)
        ;
}

/* Copies what this rank sends to itself: its sends and receives in pairs. */
static void exchange_own(const struct ncclComm *comm, struct nccl_move *moves, int count)
{
    int from = 0;

    for (int to = 0; to < count; to++) {
        if (moves[to].peer != comm->rank || moves[to].sends)
            continue;
        while (from < count && !(moves[from].peer == comm->rank && moves[from].sends))
            from++;
        if (from == count)
            return;
        if (moves[to].bytes)
            memmove(moves[to].data, moves[from].data, moves[to].bytes);
        moves[to].greeted = moves[from].greeted = sizeof(moves[to].greeting);
        moves[to].moved = moves[to].bytes;
        moves[from].moved = moves[from].bytes;
        from++;
    }
}

bool nccl_exchange(struct ncclComm *comm, struct nccl_move *moves, int count)
{
    struct pollfd *fds = calloc((size_t)count + 1, sizeof(*fds));
    bool fits = fds != NULL, left = fits, progress;

    for (int i = 0; i < count; i++) {
        moves[i].greeting[0] = moves[i].bytes;
        moves[i].greeting[1] = moves[i].label;
    }
    exchange_own(comm, moves, count);
    while (left && fits && !comm->aborted) {
        left = progress = false;
        for (int i = 0; i < count && fits; i++) {
            if (exchange_is_due(moves, i))
                fits = exchange_step(comm, &moves[i], &progress);
            left |= !exchange_is_done(&moves[i]);
        }
        if (left && fits && !progress)
            exchange_sleep(comm, moves, count, fds);
    }
    free(fds);
    if (!fits)
        nccl_hang(comm);
    return fits && !comm->aborted;
}
