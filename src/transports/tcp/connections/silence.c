/* SPDX-License-Identifier: BSD-3-Clause */
/* Finding a machine that answers no more, and sparing one whose program computes. */
#include "base/clock.h"
#include "transports/tcp/state.h"

#include <errno.h>
#include <linux/tcp.h>

/*
 * What a connection shows, by the kernel of the peer:
 *
 *      all is acknowledged               keepalive asks now and then
 *      data are under way                acknowledged, or sent repeatedly
 *      the peer's window is zero         acknowledges each probe: its program takes its time
 *
 * TCP_USER_TIMEOUT would end the third too, and with it messages whose sends have ended well;
 * without it the second goes on for a quarter of an hour. So the second is watched here: what has
 * been repeated, or probed, and is not answered for the group's timeout.
 */

/* Looks in the time that ends a connection, and the bounds of the time between two. */
#define SILENCE_LOOKS 16
#define SILENCE_LEAST_MS 50
#define SILENCE_MOST_MS 1000
/* Linux 6.15: the longest time between two probes or repetitions, at least 1 s. */
#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44
#endif

static int silence_between(int value, int least, int most)
{
    return value < least ? least : value > most ? most : value;
}

void disti_tcp_silence_tune(const struct tcp_state *state, int fd)
{
    int one = 1, probes = 4;
    int idle = silence_between(state->timeout_ms / 3000, 1, 32767);
    int interval = silence_between(state->timeout_ms / 6000, 1, 32767);
    int apart = silence_between(state->timeout_ms / 4, 1000, 120000);

    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, &apart, sizeof(apart));
}

void disti_tcp_silence_leave(int fd)
{
    int apart = 120000;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, &apart, sizeof(apart));
}

static void silence_extend(const struct tcp_state *state, struct tcp_conn *conn, int64_t more_ns)
{
    if (conn->fd >= 0)
        disti_tcp_silence_tune(state, conn->fd);
    if (conn->number == 0 && conn->deadline)
        conn->deadline += more_ns;
}

void disti_tcp_silence_extend(struct tcp_state *state)
{
    const int64_t more_ms = state->config->timeout_ms - state->timeout_ms;

    state->timeout_ms = state->config->timeout_ms;
    for (int rank = 0; rank < state->world_size; rank++) {
        struct tcp_peer *peer = state->peers[rank];

        for (int number = 0; peer && number < peer->conns; number++)
            silence_extend(state, &peer->conn[number], more_ms * 1000000);
    }
}

/* Has the peer's machine left this connection unanswered for the group's timeout? */
static bool silence_too_long(const struct tcp_state *state, struct tcp_conn *conn, int64_t now)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof(info);
    int64_t heard;

    if (getsockopt(conn->fd, IPPROTO_TCP, TCP_INFO, &info, &size) ||
        (info.tcpi_retransmits == 0 && info.tcpi_probes == 0)) {
        conn->silent_ns = 0;
        return false;
    }
    heard = now - (int64_t)info.tcpi_last_ack_recv * 1000000;
    if (!conn->silent_ns)
        conn->silent_ns = now;
    else if (heard > conn->silent_ns)
        conn->silent_ns = heard;
    return now - conn->silent_ns > (int64_t)state->timeout_ms * 1000000;
}

/* One probe or repetition may be under way to a peer that is well. */
#define SILENCE_SHOWS 2

bool disti_tcp_silence_shows(const struct tcp_conn *conn)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof(info);

    return disti_tcp_conn_is_open(conn) &&
           getsockopt(conn->fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
           info.tcpi_retransmits + info.tcpi_probes >= SILENCE_SHOWS;
}

bool disti_tcp_silence_stuck(const struct tcp_conn *conn, struct tcp_stuck *stuck_p)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof(info);

    if (!disti_tcp_conn_is_open(conn) ||
        getsockopt(conn->fd, IPPROTO_TCP, TCP_INFO, &info, &size) ||
        (info.tcpi_unacked == 0 && info.tcpi_notsent_bytes == 0) ||
        (info.tcpi_retransmits + info.tcpi_probes < SILENCE_SHOWS &&
         (info.tcpi_unacked == 0 || info.tcpi_backoff < SILENCE_SHOWS)))
        return false;
    *stuck_p = (struct tcp_stuck){.packet_bytes = info.tcpi_snd_mss,
                                  .waiting_bytes = info.tcpi_notsent_bytes,
                                  .acked_bytes = info.tcpi_bytes_acked,
                                  .silent_ms = info.tcpi_last_ack_recv};
    return true;
}

static void silence_peer(struct tcp_state *state, struct tcp_peer *peer, int64_t now)
{
    if (!disti_tcp_conn_is_open(peer->conn) ||
        (!disti_tcp_has_sends(peer) && !disti_tcp_has_receives(peer)))
        return;
    for (int number = 0; number < peer->conns; number++) {
        struct tcp_conn *conn = &peer->conn[number];

        if (disti_tcp_conn_is_open(conn) && silence_too_long(state, conn, now)) {
            disti_tcp_lose(state, peer, ETIMEDOUT, NULL);
            return;
        }
    }
}

void disti_tcp_silence(struct tcp_state *state)
{
    int64_t now = disti_now_ns();
    struct tcp_peer *next;

    if (now < state->silence_ns)
        return;
    state->silence_ns = now + 1000000LL * silence_between(state->timeout_ms / SILENCE_LOOKS,
                                                          SILENCE_LEAST_MS, SILENCE_MOST_MS);
    for (struct tcp_peer *peer = state->list; peer; peer = next) {
        next = peer->next;
        silence_peer(state, peer, now);
    }
}
