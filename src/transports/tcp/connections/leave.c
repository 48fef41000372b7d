/* SPDX-License-Identifier: BSD-3-Clause */
/* Leaving: a goodbye to every peer, and a close that loses none of what was sent. */
#include "base/clock.h"
#include "transports/tcp/state.h"

#include <errno.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* How long all peers together have to make room for what has not yet been sent. */
#define LEAVE_MS 100

/* A goodbye, if the stream is between two messages: then the peer knows that we left. */
static void leave_say_goodbye(struct tcp_state *state, struct tcp_peer *peer)
{
    unsigned char bytes[DISTI_TCP_FRAME_BYTES];

    disti_tcp_send_turn(state, peer);
    if (!disti_tcp_conn_sends(peer->conn) || disti_tcp_first_begun(peer) ||
        peer->control.begin != peer->control.end || peer->stripes.sending)
        return;
    disti_tcp_frame_encode(DISTI_TCP_GOODBYE, &(struct dist_envelope){0, 0, 0}, bytes);
    disti_tcp_seal(peer, bytes, NULL, 0, 0);
    (void)!disti_tls_or_send(peer->conn->tls, peer->conn->fd, bytes, sizeof(bytes));
}

/* Unread bytes would turn the close into a reset, which may cost the peer our last words. */
static bool leave_drained(struct tcp_state *state, int fd)
{
    int unsent = 0;
    ssize_t got;

    do {
        got = recv(fd, state->buffer, TCP_BUFFER_BYTES, MSG_DONTWAIT);
    } while (got > 0 || (got < 0 && errno == EINTR));
    return (got < 0 && errno != EAGAIN) || ioctl(fd, SIOCOUTQNSD, &unsent) || unsent == 0;
}

/* Does the kernel still read memory that is the program's again from now on? */
static bool leave_pending(struct tcp_state *state, struct tcp_conn *conn)
{
    disti_tcp_zerocopy_reap(state, conn);
    return disti_tcp_zerocopy_pending(conn);
}

static void leave_close(struct tcp_state *state, struct tcp_conn *conn, int64_t deadline)
{
    if (conn->fd < 0)
        return;
    while (disti_tcp_conn_is_open(conn) && !disti_expired(deadline) &&
           (!leave_drained(state, conn->fd) || leave_pending(state, conn)))
        disti_sleep_ns(100 * 1000);
    disti_tcp_silence_leave(conn->fd);
    shutdown(conn->fd, SHUT_WR);
    disti_tcp_close(state, conn);
}

void disti_tcp_leave(struct tcp_state *state)
{
    int64_t deadline = disti_deadline_ms(LEAVE_MS);

    for (int rank = 0; rank < state->world_size; rank++) {
        if (state->peers[rank])
            leave_say_goodbye(state, state->peers[rank]);
    }
    for (int rank = 0; rank < state->world_size; rank++) {
        struct tcp_peer *peer = state->peers[rank];

        for (int number = 0; peer && number < peer->conns; number++)
            leave_close(state, &peer->conn[number], deadline);
    }
}
