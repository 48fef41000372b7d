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

    if (peer->phase != TCP_PHASE_UP || peer->send_status != DIST_OK)
        return;
    disti_tcp_send_turn(state, peer);
    if (peer->phase != TCP_PHASE_UP || peer->send_status != DIST_OK ||
        disti_tcp_first_begun(peer) || peer->control.begin != peer->control.end ||
        peer->stripes.sending)
        return;
    disti_tcp_frame_encode(DISTI_TCP_GOODBYE, &(struct dist_envelope){0, 0, 0}, bytes);
    (void)!send(peer->fd, bytes, sizeof(bytes), MSG_NOSIGNAL);
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
static bool leave_pending(struct tcp_state *state, struct tcp_peer *peer, int fd,
                          struct tcp_zerocopy *zerocopy)
{
    if (disti_tcp_zerocopy_pending(zerocopy))
        disti_tcp_zerocopy_reap(state, peer, fd, zerocopy);
    return disti_tcp_zerocopy_pending(zerocopy);
}

static void leave_close(struct tcp_state *state, struct tcp_peer *peer, int *fd,
                        enum tcp_phase phase, struct tcp_zerocopy *zerocopy, int64_t deadline)
{
    if (*fd < 0)
        return;
    while (phase == TCP_PHASE_UP && !disti_expired(deadline) &&
           (!leave_drained(state, *fd) || leave_pending(state, peer, *fd, zerocopy)))
        disti_sleep_ns(100 * 1000);
    disti_tcp_silence_leave(*fd);
    shutdown(*fd, SHUT_WR);
    disti_tcp_close(*fd, zerocopy);
    *fd = -1;
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

        if (!peer)
            continue;
        leave_close(state, peer, &peer->fd, peer->phase, peer->zerocopy, deadline);
        for (int number = 1; number < DISTI_TCP_SOCKETS && peer->rails; number++) {
            struct tcp_rail *rail = &peer->rails->rail[number];

            leave_close(state, peer, &rail->fd, rail->phase, rail->out.zerocopy, deadline);
        }
    }
}
