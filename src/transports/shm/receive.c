/* SPDX-License-Identifier: BSD-3-Clause */
/* Incoming messages: frames from the ring into sinks. */
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/kernels/sink.h"
#include "base/log.h"
#include "base/thread.h"
#include "transports/shm/state.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

int disti_shm_corrupt(struct shm_peer *peer, const char *what)
{
    peer->corrupt = true;
    return disti_fail(DIST_ERR_PEER_LOST,
                      "shm: rank %d (pid %d) sent an invalid message (%s): give all ranks the same "
                      "version of libdist",
                      peer->rank, peer->pid, what);
}

/* A receive takes an announced message: it is asked for. */
static dist_status receive_ask(struct shm_peer *peer, struct dist_request *request, uint32_t name)
{
    dist_status status = disti_shm_answer(peer, name, true);

    request->own[1] = name;
    request->moved = 0;
    if (status == DIST_OK)
        disti_shm_append(&peer->asked_head, &peer->asked_tail, request);
    else
        disti_shm_end(request, status);
    return status;
}

/* The name in the payload of a frame about an announced message. */
static bool receive_name(const unsigned char *payload, size_t bytes, uint32_t *name_p)
{
    if (bytes != sizeof(*name_p))
        return false;
    memcpy(name_p, payload, sizeof(*name_p));
    return true;
}

static int receive_announced(struct shm_peer *peer, const struct dist_envelope *envelope,
                             const unsigned char *payload, size_t bytes)
{
    struct dist_request *request;
    struct disti_unexpected *unexpected;
    bool mismatch = false;
    uint32_t name;

    if (!receive_name(payload, bytes, &name))
        return disti_shm_corrupt(peer, "announcement");
    request = disti_match_arrival(&peer->match, envelope, &mismatch);
    if (mismatch)
        return disti_shm_answer(peer, name, false);
    if (request)
        return receive_ask(peer, request, name);
    unexpected = disti_match_hold(&peer->match, envelope, true);
    if (!unexpected)
        return disti_fail(DIST_ERR_NO_MEMORY, "shm: no memory to record a message");
    unexpected->note[0] = SHM_NOTE_ANNOUNCED;
    unexpected->note[1] = name;
    return 0;
}

/* What the receiver of an announced message says. */
static int receive_answer(struct shm_peer *peer, const unsigned char *payload, size_t bytes,
                          bool wanted)
{
    uint32_t name;

    if (!receive_name(payload, bytes, &name) || !disti_shm_announce_answered(peer, name, wanted))
        return disti_shm_corrupt(peer, "answer to an announcement");
    return 0;
}

/* A message that was sent unasked is kept no more. */
static void receive_return(struct shm_peer *peer, uint64_t bytes)
{
    if (disti_credit_return(&peer->debit, bytes) && peer->mine)
        atomic_store_explicit(&peer->mine->returned, peer->debit.told, memory_order_release);
}

static void receive_release(struct shm_peer *peer, struct disti_unexpected *unexpected)
{
    receive_return(peer, unexpected->envelope.bytes);
    disti_match_release(&peer->match, unexpected);
}

/* All of the message that arrives in pieces is there. */
static void receive_finish(struct shm_peer *peer)
{
    struct shm_arrival arrival = peer->arrival;
    struct dist_request *claimed;

    memset(&peer->arrival, 0, sizeof(peer->arrival));
    if (arrival.request) {
        disti_shm_end(arrival.request, DIST_OK);
    } else if (arrival.unexpected && arrival.unexpected->refused) {
        receive_release(peer, arrival.unexpected);
    } else if (arrival.unexpected && arrival.unexpected->claimed) {
        claimed = arrival.unexpected->claimed;
        disti_sink_apply(&claimed->sink, 0, arrival.unexpected->payload, arrival.bytes);
        receive_release(peer, arrival.unexpected);
        disti_shm_end(claimed, DIST_OK);
    }
}

/* The next bytes of the message that is arriving; src points into the ring. */
static void receive_piece(struct shm_peer *peer, const unsigned char *src, size_t bytes)
{
    struct shm_arrival *arrival = &peer->arrival;
    size_t skip = arrival->skip > arrival->arrived ? arrival->skip - arrival->arrived : 0;

    if (arrival->request && skip < bytes) {
        disti_sink_apply(&arrival->request->sink, arrival->arrived + skip, src + skip,
                         bytes - skip);
    } else if (arrival->unexpected) {
        memcpy(arrival->unexpected->payload + arrival->arrived, src, bytes);
        arrival->unexpected->arrived += bytes;
    }
    arrival->arrived += bytes;
    if (arrival->arrived == arrival->bytes)
        receive_finish(peer);
}

/* The first or only frame of a message that is copied. */
static int receive_first(struct shm_peer *peer, const struct dist_envelope *envelope,
                         const unsigned char *payload, size_t bytes, bool whole)
{
    bool mismatch = false;
    struct dist_request *request;
    struct disti_unexpected *unexpected = NULL;

    if (peer->arrival.active || (whole ? bytes != envelope->bytes : bytes >= envelope->bytes))
        return disti_shm_corrupt(peer, "first frame");
    if (!disti_credit_came(&peer->debit, envelope->bytes))
        return disti_shm_corrupt(peer, "message without credit");
    request = disti_match_arrival(&peer->match, envelope, &mismatch);
    if (request)
        receive_return(peer, envelope->bytes);
    if (whole && request && !mismatch) {
        disti_sink_apply(&request->sink, 0, payload, bytes);
        disti_shm_end(request, DIST_OK);
        return 0;
    }
    if (mismatch) {
        request = NULL;
    } else if (!request) {
        unexpected = disti_match_hold(&peer->match, envelope, false);
        if (!unexpected)
            return disti_fail(DIST_ERR_NO_MEMORY,
                              "shm: no memory to keep %llu unexpected bytes of rank %d",
                              (unsigned long long)envelope->bytes, peer->rank);
    }
    peer->arrival = (struct shm_arrival){.active = true,
                                         .request = request,
                                         .unexpected = unexpected,
                                         .bytes = (size_t)envelope->bytes};
    receive_piece(peer, payload, bytes);
    return 0;
}

static int receive_more(struct shm_peer *peer, const unsigned char *payload, size_t bytes)
{
    if (!peer->arrival.active || bytes == 0 ||
        bytes > peer->arrival.bytes - peer->arrival.arrived ||
        (bytes % SHM_LINE && bytes != peer->arrival.bytes - peer->arrival.arrived))
        return disti_shm_corrupt(peer, "further frame");
    receive_piece(peer, payload, bytes);
    return 0;
}

/* The first or only frame of a message that was asked for. */
static int receive_asked(struct shm_peer *peer, const struct dist_envelope *envelope,
                         const unsigned char *payload, size_t bytes)
{
    struct dist_request *request = peer->asked_head;

    if (peer->arrival.active || !request || request->own[1] != envelope->tag ||
        bytes > request->envelope.bytes)
        return disti_shm_corrupt(peer, "message that was asked for");
    if (!bytes && envelope->tag & SHM_NAME_LOAN) {
        disti_shm_loan_gone(peer);
        return 0;
    }
    if (!bytes && request->envelope.bytes)
        return disti_shm_corrupt(peer, "message that was asked for");
    disti_shm_pop(&peer->asked_head);
    peer->arrival = (struct shm_arrival){.active = true,
                                         .request = request,
                                         .bytes = (size_t)request->envelope.bytes,
                                         .skip = request->moved};
    receive_piece(peer, payload, bytes);
    return 0;
}

/* One frame; the ring's bytes that it took go to *taken_p. */
static int receive_frame(struct shm_peer *peer, struct shm_frame *frame, size_t *taken_p)
{
    size_t bytes = frame->bytes, to_end = disti_shm_fifo_to_end(&peer->in);
    uint32_t kind = frame->kind;
    struct dist_envelope envelope;
    const unsigned char *payload;

    if (kind == SHM_PAD) {
        *taken_p = to_end;
        return bytes == to_end ? 0 : disti_shm_corrupt(peer, "padding");
    }
    if (bytes > disti_shm_frame_max(peer->in.size) || disti_shm_frame_bytes(bytes) > to_end)
        return disti_shm_corrupt(peer, "frame length");
    *taken_p = disti_shm_frame_bytes(bytes);
    envelope = frame->envelope;
    payload = disti_shm_frame_payload(frame, bytes);
    switch (kind) {
    case SHM_WHOLE:
    case SHM_FIRST:
        return receive_first(peer, &envelope, payload, bytes, kind == SHM_WHOLE);
    case SHM_MORE:
        return receive_more(peer, payload, bytes);
    case SHM_LENT:
        return disti_shm_loan_came(peer, &envelope, payload, bytes);
    case SHM_ANNOUNCED:
        return receive_announced(peer, &envelope, payload, bytes);
    case SHM_WANTED:
    case SHM_UNWANTED:
        return receive_answer(peer, payload, bytes, kind == SHM_WANTED);
    case SHM_ASKED:
        return receive_asked(peer, &envelope, payload, bytes);
    default:
        return disti_shm_corrupt(peer, "frame kind");
    }
}

int disti_shm_receive_turn(struct shm_peer *peer)
{
    size_t done = 0;
    int frames = 0;

    while (frames < SHM_TURN_FRAMES && done < SHM_TURN_BYTES) {
        struct shm_frame *frame = disti_shm_fifo_peek(&peer->in);
        size_t taken = 0;
        int result;

        if (!frame)
            break;
        result = receive_frame(peer, frame, &taken);
        if (result < 0)
            return result;
        if (disti_shm_fifo_take(&peer->in, taken))
            disti_shm_ring(peer);
        done += taken;
        frames++;
    }
    return frames;
}

/* A message that came first is wanted now. */
static void receive_unexpected(struct shm_peer *peer, struct dist_request *request,
                               struct disti_unexpected *unexpected)
{
    if (unexpected->descriptor && unexpected->note[0] == SHM_NOTE_ANNOUNCED) {
        receive_ask(peer, request,
                    (uint32_t)unexpected->note[1]); /* a failure shows in the request */
        disti_match_release(&peer->match, unexpected);
    } else if (unexpected->descriptor) {
        struct shm_loan loan = {.address = unexpected->note[2], .id = unexpected->note[1]};

        disti_match_release(&peer->match, unexpected);
        disti_shm_loan_take(peer, request, &loan);
    } else if (unexpected->arrived == unexpected->envelope.bytes) {
        disti_sink_apply(&request->sink, 0, unexpected->payload, unexpected->arrived);
        receive_release(peer, unexpected);
        disti_shm_end(request, DIST_OK);
    }
}

void disti_shm_receive_refuse(struct shm_peer *peer, struct disti_unexpected *unexpected)
{
    bool whole = disti_match_is_whole(unexpected); /* else the rest is still to be taken */

    unexpected->refused = true;
    unexpected->claimed = NULL;
    if (unexpected->descriptor && unexpected->note[0] == SHM_NOTE_ANNOUNCED)
        disti_shm_answer(peer, (uint32_t)unexpected->note[1],
                         false); /* without memory the sender waits on */
    else if (unexpected->descriptor)
        disti_shm_loan_return(peer, unexpected->note[1]);
    else if (whole)
        receive_return(peer, unexpected->envelope.bytes);
    if (whole)
        disti_match_release(&peer->match, unexpected);
}

void disti_shm_receive_start(struct shm_peer *peer, struct dist_request *request)
{
    const struct disti_unexpected *found = disti_match_waiting(&peer->match, request->envelope.tag);
    struct disti_unexpected *unexpected;

    if (peer->phase == SHM_LOST && (!found || found->descriptor)) {
        disti_shm_end(request, disti_shm_lost(peer));
        return;
    }
    unexpected = disti_match_post(&peer->match, request);
    if (unexpected && unexpected->refused)
        disti_shm_receive_refuse(peer, unexpected);
    else if (unexpected)
        receive_unexpected(peer, request, unexpected);
}

void disti_shm_receive_fail(struct shm_peer *peer, dist_status status)
{
    struct shm_arrival arrival = peer->arrival;

    memset(&peer->arrival, 0, sizeof(peer->arrival));
    disti_match_fail(&peer->match, status);
    if (arrival.unexpected) {
        struct dist_request *claimed = arrival.unexpected->claimed;

        disti_match_release(&peer->match, arrival.unexpected);
        if (claimed)
            disti_shm_end(claimed, status);
    }
    if (arrival.request)
        disti_shm_end(arrival.request, status);
    while (peer->asked_head)
        disti_shm_end(disti_shm_pop(&peer->asked_head), status);
    while (peer->pull_head)
        disti_shm_end(disti_shm_pop(&peer->pull_head), status);
    disti_match_release_descriptors(&peer->match);
}

/* What the transport listens to: the epoll, who is told of its events, and doing without one. */

#define WATCH_BACKLOG 4096
#define WATCH_EVENTS 32
#define WATCH_BACKOFF_NS (50 * 1000 * 1000) /* without a descriptor */

static bool watch_epoll(struct shm_state *state, int operation, int fd, uint32_t events,
                        enum shm_event event, int index)
{
    struct epoll_event watched = {.events = events,
                                  .data.u64 = (uint64_t)event << 32 | (uint32_t)index};

    return epoll_ctl(state->poll, operation, fd, &watched) == 0;
}

bool disti_shm_watch(struct shm_state *state, int fd, enum shm_event event, int index,
                     uint32_t flags)
{
    return watch_epoll(state, EPOLL_CTL_ADD, fd, EPOLLIN | flags, event, index);
}

void disti_shm_report_descriptors(struct shm_state *state)
{
    if (!state->reported_descriptors)
        disti_notice(
            "shm: rank %d has no file descriptor left for a connection to a rank; it tries "
            "again until there is one: raise `ulimit -n`",
            state->config.rank);
    state->reported_descriptors = true;
}

void disti_shm_back_off(struct shm_state *state, int fd, enum shm_event event, int index)
{
    disti_shm_report_descriptors(state);
    watch_epoll(state, EPOLL_CTL_MOD, fd, 0, event, index);
    state->resume_ns = disti_now_ns() + WATCH_BACKOFF_NS;
}

static void watch_resume_one(struct shm_state *state, int fd, enum shm_event event, int index)
{
    if (fd >= 0)
        watch_epoll(state, EPOLL_CTL_MOD, fd, EPOLLIN, event, index);
}

/* What was not listened to for lack of descriptors is, when it is time. */
static void watch_resume(struct shm_state *state)
{
    if (!state->resume_ns || disti_now_ns() < state->resume_ns)
        return;
    state->resume_ns = 0;
    watch_resume_one(state, state->listener, SHM_ON_LISTENER, 0);
    for (int i = 0; i < state->pending_room; i++)
        watch_resume_one(state, state->pending[i].socket, SHM_ON_PENDING, i);
    for (int rank = 0; rank < state->config.world_size; rank++) {
        if (state->peers[rank] && state->peers[rank]->phase == SHM_CALLING)
            watch_resume_one(state, state->peers[rank]->socket, SHM_ON_SOCKET, rank);
    }
}

dist_status disti_shm_connection_open(struct shm_state *state)
{
    struct sockaddr_un name;
    socklen_t size = disti_shm_machine_socket(&state->address, &name);

    state->poll = disti_descriptor_own(epoll_create1(EPOLL_CLOEXEC));
    state->doorbell = disti_descriptor_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    state->listener =
        disti_descriptor_own(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (state->poll < 0 || state->doorbell < 0 || state->listener < 0)
        return disti_fail_call("epoll_create1, eventfd or socket",
                               "shm: rank %d cannot listen to its peers", state->config.rank);
    if (bind(state->listener, (struct sockaddr *)&name, size) < 0 ||
        listen(state->listener, WATCH_BACKLOG) < 0)
        return disti_fail_errno(DIST_ERR_SYSTEM, "shm: cannot listen on a Unix socket");
    /* The doorbell is edge-triggered: it is never read, and counts up to 2^64 rings. */
    if (!disti_shm_watch(state, state->listener, SHM_ON_LISTENER, 0, 0) ||
        !disti_shm_watch(state, state->doorbell, SHM_ON_DOORBELL, 0, EPOLLET))
        return disti_fail_errno(DIST_ERR_SYSTEM, "shm: epoll_ctl failed");
    return DIST_OK;
}

/* A connected peer says nothing more on its socket: it becomes readable when it ends. */
static void watch_socket(struct shm_state *state, struct shm_peer *peer)
{
    char byte;

    if (peer->phase == SHM_CALLING)
        disti_shm_call_answered(state, peer);
    else if (peer->phase == SHM_CONNECTED &&
             (recv(peer->socket, &byte, 1, MSG_DONTWAIT) >= 0 || errno != EAGAIN))
        disti_shm_connection_ended(state, peer);
}

static void watch_handle(struct shm_state *state, uint64_t data)
{
    int index = (int)(uint32_t)data;

    switch ((enum shm_event)(data >> 32)) {
    case SHM_ON_LISTENER:
        disti_shm_accept_callers(state);
        break;
    case SHM_ON_PENDING:
        disti_shm_accept_pending(state, index);
        break;
    case SHM_ON_SOCKET:
        watch_socket(state, state->peers[index]);
        break;
    case SHM_ON_PROCESS:
        if (state->peers[index]->phase == SHM_CONNECTED)
            disti_shm_connection_ended(state, state->peers[index]);
        break;
    case SHM_ON_DOORBELL:
        break;
    }
}

int disti_shm_connection_look(struct shm_state *state)
{
    struct epoll_event events[WATCH_EVENTS];
    int count, handled = 0, held = disti_cancel_hold();

    watch_resume(state);
    count = epoll_wait(state->poll, events, WATCH_EVENTS, 0);
    state->calls = 0;
    state->look = count == WATCH_EVENTS;
    for (int i = 0; i < count; i++) {
        watch_handle(state, events[i].data.u64);
        handled += events[i].data.u64 >> 32 != SHM_ON_DOORBELL;
    }
    disti_shm_accept_expire(state);
    if (state->wanting)
        disti_shm_call_due(state);
    disti_cancel_let(held);
    return handled;
}
