/* SPDX-License-Identifier: BSD-3-Clause */
/* Sending without a copy: the kernel reads the program's memory until it says that it has done. */
#include "base/log.h"
#include "base/settings/config.h"
#include "transports/tcp/state.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* It uses struct timespec without including <time.h>. */
#include <linux/errqueue.h>

/*
 * The kernel counts the calls of send that it has taken with MSG_ZEROCOPY, each socket's from 0,
 * and says in the socket's error queue of which it needs the memory no more. A request ends when
 * that has been said of all its calls:
 *
 *      request->own[1]   calls that the kernel has not done with
 *      request->own[2]   all its bytes have been given to the kernel
 */

/* Calls a socket may have under way; what goes beyond is copied. */
#define ZEROCOPY_CALLS 64
/* Below this, pinning pages and the notice cost more than the copy. */
#define ZEROCOPY_LEAST ((uint64_t)64 << 10)

struct tcp_zerocopy {
    bool off;             /* it has been found to gain nothing */
    uint32_t sent, ended; /* calls taken; all before `ended` are done with */
    struct dist_request *request[ZEROCOPY_CALLS]; /* by call; NULL: done with */
};

dist_status disti_tcp_zerocopy_setting(struct tcp_state *state)
{
    static const char *const names[] = {"off", "auto", "on"};
    const char *value = disti_env("DIST_TCP_ZEROCOPY");

    for (int i = 0; value && i < 3; i++) {
        if (strcmp(value, names[i]) == 0) {
            state->zerocopy = (enum tcp_zerocopy_setting)i;
            return DIST_OK;
        }
    }
    return value ? disti_fail(DIST_ERR_INVALID_ARGUMENT,
                              "DIST_TCP_ZEROCOPY is \"%.32s\": set it to off, auto or on", value)
                 : DIST_OK;
}

struct tcp_zerocopy *disti_tcp_zerocopy_open(const struct tcp_state *state, int fd)
{
    struct tcp_zerocopy *zerocopy;
    int one = 1;

    if (state->zerocopy == TCP_ZEROCOPY_OFF || state->tls)
        return NULL;
    zerocopy = calloc(1, sizeof(*zerocopy));
    if (zerocopy && setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one))) {
        disti_info("rank %d sends with copies: %s", state->rank, strerror(errno));
        free(zerocopy);
        return NULL;
    }
    return zerocopy;
}

bool disti_tcp_zerocopy_takes(const struct tcp_zerocopy *zerocopy, uint64_t bytes)
{
    return zerocopy && !zerocopy->off && bytes >= ZEROCOPY_LEAST &&
           zerocopy->sent - zerocopy->ended < ZEROCOPY_CALLS;
}

static ssize_t zerocopy_call(int fd, const void *data, size_t bytes, int flags)
{
    ssize_t sent;

    do {
        sent = send(fd, data, bytes, flags | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent;
}

ssize_t disti_tcp_zerocopy_write(struct tcp_state *state, struct tcp_conn *conn,
                                 struct dist_request *request, struct iovec parts[2])
{
    struct tcp_zerocopy *zerocopy = conn->zerocopy;
    bool pins = !state->ending_mask ||
                !disti_standin_is_for(request, state->ending_tag, state->ending_mask);
    ssize_t first = 0, body;

    if (parts[0].iov_len) {
        first = zerocopy_call(conn->fd, parts[0].iov_base, parts[0].iov_len, MSG_MORE);
        if (first < (ssize_t)parts[0].iov_len)
            return first;
    }
    body = zerocopy_call(conn->fd, parts[1].iov_base, parts[1].iov_len, pins ? MSG_ZEROCOPY : 0);
    if (body > 0 && pins) {
        zerocopy->request[zerocopy->sent++ % ZEROCOPY_CALLS] = request;
        request->own[1]++;
        conn->peer->pinned++;
        state->pinned++;
    } else if (body < 0 && (errno == ENOBUFS || errno == EFAULT)) {
        /* ENOBUFS: as many pages are pinned as this user may pin (net.core.optmem_max,
         * RLIMIT_MEMLOCK). EFAULT: pages of a device, which can be copied but not pinned. */
        body = zerocopy_call(conn->fd, parts[1].iov_base, parts[1].iov_len, 0);
    }
    return body > 0 ? first + body : first ? first : body;
}

/* The kernel has done with this call. */
static void zerocopy_end(struct tcp_state *state, struct tcp_conn *conn, uint32_t call,
                         dist_status status)
{
    struct tcp_zerocopy *zerocopy = conn->zerocopy;
    struct dist_request *request = zerocopy->request[call % ZEROCOPY_CALLS];

    if (call - zerocopy->ended >= zerocopy->sent - zerocopy->ended || !request)
        return;
    zerocopy->request[call % ZEROCOPY_CALLS] = NULL;
    while (zerocopy->ended != zerocopy->sent &&
           !zerocopy->request[zerocopy->ended % ZEROCOPY_CALLS])
        zerocopy->ended++;
    conn->peer->pinned--;
    state->pinned--;
    if (--request->own[1] == 0 && request->own[2])
        request->status = status;
}

/* One notice of the error queue: a range of calls. False: it is something else. */
static bool zerocopy_notice(struct tcp_state *state, struct tcp_conn *conn,
                            const struct cmsghdr *header)
{
    struct sock_extended_err notice;
    bool own = (header->cmsg_level == SOL_IP && header->cmsg_type == IP_RECVERR) ||
               (header->cmsg_level == SOL_IPV6 && header->cmsg_type == IPV6_RECVERR);

    if (!own || header->cmsg_len < CMSG_LEN(sizeof(notice)))
        return false;
    memcpy(&notice, CMSG_DATA(header), sizeof(notice));
    if (notice.ee_origin != SO_EE_ORIGIN_ZEROCOPY || notice.ee_errno != 0)
        return false;
    for (uint32_t i = 0; i <= notice.ee_data - notice.ee_info && i < ZEROCOPY_CALLS; i++)
        zerocopy_end(state, conn, notice.ee_info + i, DIST_OK);
    if (notice.ee_code & SO_EE_CODE_ZEROCOPY_COPIED && state->zerocopy == TCP_ZEROCOPY_AUTO)
        conn->zerocopy->off = true;
    return true;
}

bool disti_tcp_zerocopy_reap(struct tcp_state *state, struct tcp_conn *conn)
{
    bool any = false;

    while (conn->zerocopy) {
        union {
            struct cmsghdr header;
            char bytes[CMSG_SPACE(sizeof(struct sock_extended_err) + sizeof(struct sockaddr_in6))];
        } control;
        struct msghdr message = {.msg_control = &control, .msg_controllen = sizeof(control)};
        ssize_t got = recvmsg(conn->fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT);
        struct cmsghdr *header;

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            break;
        for (header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header))
            any |= zerocopy_notice(state, conn, header);
    }
    return any;
}

void disti_tcp_zerocopy_fail(struct tcp_state *state, struct tcp_conn *conn, dist_status status)
{
    while (disti_tcp_zerocopy_pending(conn))
        zerocopy_end(state, conn, conn->zerocopy->ended, status);
}

bool disti_tcp_zerocopy_pending(const struct tcp_conn *conn)
{
    return conn->zerocopy && conn->zerocopy->ended != conn->zerocopy->sent;
}

bool disti_tcp_zerocopy_holds(const struct tcp_state *state, const struct tcp_conn *conn,
                              uint64_t tag, uint64_t mask)
{
    for (int call = 0; conn->zerocopy && call < ZEROCOPY_CALLS; call++) {
        const struct dist_request *request = conn->zerocopy->request[call];

        if (request && disti_standin_is_for(request, tag, mask) &&
            !disti_standins_have(&state->standins, request))
            return true;
    }
    return false;
}

void disti_tcp_close(const struct tcp_state *state, struct tcp_conn *conn)
{
    struct linger reset = {.l_onoff = 1, .l_linger = 0};

    if (conn->fd < 0)
        return;
    if (disti_tcp_zerocopy_pending(conn))
        setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    disti_tls_free(conn->tls);
    disti_tcp_hang_up(state, conn->fd);
    conn->tls = NULL;
    conn->fd = -1;
}

void disti_tcp_acknowledge(int fd)
{
    int one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &one, sizeof(one));
}
