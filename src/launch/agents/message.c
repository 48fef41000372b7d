/* SPDX-License-Identifier: BSD-3-Clause */
/* Packing what agents tell each other, and reading it with suspicion. */
#include "launch/agents/message.h"
#include "base/clock.h"
#include "base/descriptor.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

void disti_agents_put_text(unsigned char *bytes, const char *text, size_t size)
{
    memset(bytes, 0, size);
    for (size_t i = 0; i < size - 1 && text[i]; i++) {
        unsigned char c = (unsigned char)text[i];

        bytes[i] = c < ' ' || c == 0x7f ? '?' : c;
    }
}

bool disti_agents_get_text(const unsigned char *bytes, size_t size, char *text)
{
    size_t length = strnlen((const char *)bytes, size);

    if (length == size)
        return false;
    for (size_t i = 0; i < size; i++) {
        if (i < length ? bytes[i] < ' ' || bytes[i] == 0x7f : bytes[i] != 0)
            return false;
    }
    memcpy(text, bytes, size);
    return true;
}

bool disti_agents_get_sentence(const struct disti_wire_reader *frame, char text[DISTI_AGENTS_TEXT])
{
    size_t bytes = (size_t)frame->head.value_bytes;

    /* The reader keeps a zero byte behind the value. */
    return bytes < DISTI_AGENTS_TEXT &&
           disti_agents_get_text(disti_wire_value(frame), bytes + 1, text);
}

static unsigned char *message_put(unsigned char *bytes, const uint32_t *numbers, int count)
{
    for (int i = 0; i < count; i++)
        disti_wire_put32(bytes + 4 * i, numbers[i]);
    return bytes + 4 * count;
}

static const unsigned char *message_get(const unsigned char *bytes, uint32_t *numbers, int count)
{
    for (int i = 0; i < count; i++)
        numbers[i] = disti_wire_get32(bytes + 4 * i);
    return bytes + 4 * count;
}

void disti_agents_put_member(unsigned char *bytes, const struct agents_member *member)
{
    const uint32_t numbers[12] = {member->pid,          (uint32_t)member->node_rank,
                                  member->min_nodes,    member->max_nodes,
                                  member->max_restarts, member->workers,
                                  member->same_workers, member->join_now,
                                  member->serves,       member->master_port,
                                  member->store_port,   member->goes_on};

    bytes = message_put(bytes, numbers, 12);
    disti_agents_put_text(bytes, member->host, sizeof(member->host));
    disti_agents_put_text(bytes + sizeof(member->host), member->address, sizeof(member->address));
}

bool disti_agents_get_member(const unsigned char *bytes, struct agents_member *member_p)
{
    uint32_t n[12];

    bytes = message_get(bytes, n, 12);
    *member_p = (struct agents_member){.pid = n[0],
                                       .node_rank = (int32_t)n[1],
                                       .min_nodes = n[2],
                                       .max_nodes = n[3],
                                       .max_restarts = n[4],
                                       .workers = n[5],
                                       .same_workers = n[6],
                                       .join_now = n[7],
                                       .serves = n[8],
                                       .master_port = n[9],
                                       .store_port = n[10],
                                       .goes_on = n[11]};
    return n[0] <= INT_MAX && member_p->node_rank >= -1 && n[2] >= 1 && n[2] <= n[3] &&
           n[3] <= DISTI_AGENTS_NODES_MAX && member_p->node_rank < (int32_t)n[3] &&
           n[4] <= INT_MAX && n[5] >= 1 && n[5] <= DISTI_AGENTS_WORKERS_MAX && n[6] <= 1 &&
           n[7] <= 1 && n[8] <= 1 && n[9] <= 65535 && n[10] <= 65535 && n[11] <= 1 &&
           disti_agents_get_text(bytes, sizeof(member_p->host), member_p->host) &&
           member_p->host[0] &&
           disti_agents_get_text(bytes + sizeof(member_p->host), sizeof(member_p->address),
                                 member_p->address) &&
           member_p->address[0];
}

void disti_agents_put_welcome(unsigned char *bytes, const struct agents_welcome *welcome)
{
    const uint32_t numbers[3] = {welcome->pid, welcome->interval_ms, welcome->silence_ms};

    disti_agents_put_text(message_put(bytes, numbers, 3), welcome->host, sizeof(welcome->host));
}

bool disti_agents_get_welcome(const unsigned char *bytes, struct agents_welcome *welcome_p)
{
    uint32_t n[3];

    bytes = message_get(bytes, n, 3);
    welcome_p->pid = n[0];
    welcome_p->interval_ms = n[1];
    welcome_p->silence_ms = n[2];
    return n[0] <= INT_MAX && n[1] >= 1 && n[1] <= n[2] && n[2] <= INT_MAX &&
           disti_agents_get_text(bytes, sizeof(welcome_p->host), welcome_p->host);
}

void disti_agents_put_failure(unsigned char *bytes, const struct disti_agents_failure *f)
{
    const uint32_t numbers[9] = {
        (uint32_t)f->cause,  (uint32_t)f->node_rank,
        (uint32_t)f->rank,   (uint32_t)f->local_rank,
        (uint32_t)f->pid,    (uint32_t)f->exit_code,
        (uint32_t)f->signal, f->is_consequence | (uint32_t)f->is_out_of_memory << 1,
        f->is_final};

    bytes = message_put(bytes, numbers, 9);
    disti_wire_put64(bytes, (uint64_t)f->time_ms);
    disti_agents_put_text(bytes + 8, f->host, sizeof(f->host));
    disti_agents_put_text(bytes + 8 + sizeof(f->host), f->text, sizeof(f->text));
}

bool disti_agents_get_failure(const struct disti_wire_reader *frame, struct disti_agents_failure *f)
{
    const unsigned char *bytes;
    uint32_t n[9];

    if (frame->head.value_bytes != AGENTS_FAILURE_BYTES)
        return false;
    bytes = message_get(disti_wire_value(frame), n, 9);
    *f = (struct disti_agents_failure){.node_rank = (int32_t)n[1],
                                       .rank = (int32_t)n[2],
                                       .local_rank = (int32_t)n[3],
                                       .pid = (int32_t)n[4],
                                       .exit_code = (int32_t)n[5],
                                       .signal = (int32_t)n[6],
                                       .time_ms = (int64_t)disti_wire_get64(bytes),
                                       .is_consequence = n[7] & 1,
                                       .is_out_of_memory = n[7] & 2,
                                       .is_final = n[8] == 1};
    if (n[0] < DISTI_AGENTS_WORKER_FAILED || n[0] > DISTI_AGENTS_NODE_JOINS || n[7] > 3 || n[8] > 1)
        return false;
    f->cause = (enum disti_agents_cause)n[0];
    return f->node_rank >= -1 && f->rank >= -1 && f->local_rank >= -1 && f->pid >= -1 &&
           f->signal >= 0 && f->signal <= 128 && f->time_ms >= 0 &&
           disti_agents_get_text(bytes + 8, sizeof(f->host), f->host) &&
           disti_agents_get_text(bytes + 8 + sizeof(f->host), sizeof(f->text), f->text);
}

void disti_agents_put_round(unsigned char *bytes, const struct disti_agents_round *round)
{
    const uint32_t numbers[6] = {(uint32_t)round->round,       (uint32_t)round->restarts,
                                 (uint32_t)round->node_rank,   (uint32_t)round->nodes,
                                 (uint32_t)round->master_port, (uint32_t)round->store_port};

    bytes = message_put(bytes, numbers, 6);
    disti_agents_put_text(bytes, round->store_secret, AGENTS_SECRET);
    bytes += AGENTS_SECRET;
    disti_agents_put_text(bytes, round->master_address, sizeof(round->master_address));
    for (int i = 0; i < round->nodes; i++)
        disti_wire_put32(bytes + AGENTS_ADDRESS + 4 * i, (uint32_t)round->workers[i]);
}

bool disti_agents_round_count(struct disti_agents_round *round)
{
    int64_t sum = 0;

    for (int i = 0; i < round->nodes; i++) {
        if (i == round->node_rank)
            round->first_rank = (int)sum;
        sum += round->workers[i];
        if (sum > INT_MAX)
            return false;
    }
    round->world_size = (int)sum;
    return true;
}

bool disti_agents_get_round(const struct disti_wire_reader *frame,
                            struct disti_agents_round *round_p, int *workers_p)
{
    const unsigned char *bytes = disti_wire_value(frame);
    uint32_t n[6];

    if (frame->head.value_bytes < AGENTS_ROUND_BYTES)
        return false;
    bytes = message_get(bytes, n, 6);
    if (n[0] > INT_MAX || n[1] > INT_MAX || n[2] >= n[3] || n[3] > DISTI_AGENTS_NODES_MAX ||
        n[4] > 65535 || n[5] > 65535 ||
        frame->head.value_bytes != AGENTS_ROUND_BYTES + 4 * (size_t)n[3] ||
        !disti_agents_get_text(bytes, AGENTS_SECRET, round_p->store_secret))
        return false;
    bytes += AGENTS_SECRET;
    if (!disti_agents_get_text(bytes, AGENTS_ADDRESS, round_p->master_address))
        return false;
    for (uint32_t i = 0; i < n[3]; i++) {
        uint32_t workers = disti_wire_get32(bytes + AGENTS_ADDRESS + 4 * (size_t)i);

        if (workers < 1 || workers > DISTI_AGENTS_WORKERS_MAX)
            return false;
        workers_p[i] = (int)workers;
    }
    round_p->round = (int)n[0];
    round_p->restarts = (int)n[1];
    round_p->node_rank = (int)n[2];
    round_p->nodes = (int)n[3];
    round_p->master_port = (int)n[4];
    round_p->store_port = (int)n[5];
    round_p->workers = workers_p;
    return disti_agents_round_count(round_p);
}

void disti_agents_prove(const struct agents_transcript *transcript, const char *who,
                        const void *value, size_t bytes, unsigned char proof[DISTI_HMAC_BYTES])
{
    const struct disti_hmac_piece pieces[] = {{who, strlen(who) + 1},
                                              {transcript->agent_nonce, AGENTS_NONCE},
                                              {transcript->server_nonce, AGENTS_NONCE},
                                              {transcript->job, AGENTS_JOB},
                                              {value, bytes},
                                              {transcript->binding, transcript->binding_bytes}};

    if (transcript->secret_bytes == 0)
        memset(proof, 0, DISTI_HMAC_BYTES);
    else
        disti_hmac(transcript->secret, transcript->secret_bytes, pieces, 6, proof);
}

void disti_agents_store_word(const struct agents_transcript *transcript, char word[AGENTS_SECRET])
{
    const struct disti_hmac_piece pieces[] = {
        {"store", 6}, {transcript->job, AGENTS_JOB}, {word, AGENTS_SECRET}};
    unsigned char mac[DISTI_HMAC_BYTES];

    if (transcript->secret_bytes == 0)
        return;
    disti_hmac(transcript->secret, transcript->secret_bytes, pieces, 3, mac);
    for (int i = 0; i < AGENTS_SECRET / 2; i++)
        snprintf(word + 2 * (size_t)i, 3, "%02x", mac[i]);
}

/* Frames over a socket that never blocks. */

/* A link takes a round of the most nodes, and some news behind it. */
#define LINK_OUT_MAX (4 * (size_t)AGENTS_LIMIT_SERVER)
#define NS_PER_MS 1000000

static void link_watch(struct agents_link *link)
{
    uint32_t events = EPOLLIN;
    struct epoll_event event = {.data.ptr = link->tag};

    if (link->out_bytes || (link->in.tls && disti_tls_waits_to_send(link->in.tls)))
        events |= EPOLLOUT;
    event.events = events;
    if (events == link->events)
        return;
    if (epoll_ctl(link->epoll_fd, EPOLL_CTL_MOD, link->fd, &event))
        link->is_broken = true;
    link->events = events;
}

bool disti_agents_link_open(struct agents_link *link, int fd, int epoll_fd, void *tag, size_t limit)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.ptr = tag};

    *link = (struct agents_link){.fd = fd,
                                 .epoll_fd = epoll_fd,
                                 .tag = tag,
                                 .events = event.events,
                                 .in.limit = limit,
                                 .heard_ns = disti_now_ns(),
                                 .told_ns = disti_now_ns()};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0)
        return true;
    disti_agents_link_close(link);
    return false;
}

void disti_agents_link_close(struct agents_link *link)
{
    if (link->fd >= 0) {
        epoll_ctl(link->epoll_fd, EPOLL_CTL_DEL, link->fd, NULL);
        disti_descriptor_close(link->fd);
    }
    disti_wire_next(&link->in);
    disti_tls_free(link->in.tls);
    free(link->out);
    *link = (struct agents_link){.fd = -1};
}

void disti_agents_link_flush(struct agents_link *link)
{
    if (link->fd < 0)
        return;
    while (link->out_bytes && !link->is_broken) {
        ssize_t n = disti_tls_or_send(link->in.tls, link->fd, link->out, link->out_bytes);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (n < 0) {
            link->is_broken = true;
            break;
        }
        link->out_bytes -= (size_t)n;
        memmove(link->out, link->out + n, link->out_bytes);
    }
    if (link->is_broken)
        link->out_bytes = 0;
    link_watch(link);
}

void disti_agents_link_send(struct agents_link *link, uint8_t op, const void *value, size_t bytes)
{
    struct disti_wire_head head = {.op = op, .value_bytes = bytes};
    size_t room = link->out_bytes + DISTI_WIRE_HEAD + bytes;
    unsigned char *out = link->out;

    if (link->fd < 0 || link->is_broken)
        return;
    if (room > link->out_room) {
        out = room > LINK_OUT_MAX ? NULL : realloc(link->out, room);
        if (!out) {
            link->is_broken = true;
            return;
        }
        link->out = out;
        link->out_room = room;
    }
    disti_wire_put_head(out + link->out_bytes, &head);
    if (bytes)
        memcpy(out + link->out_bytes + DISTI_WIRE_HEAD, value, bytes);
    link->out_bytes = room;
    link->told_ns = disti_now_ns();
    disti_agents_link_flush(link);
}

void disti_agents_link_send_text(struct agents_link *link, uint8_t op, const char *text)
{
    unsigned char value[DISTI_AGENTS_TEXT];

    disti_agents_put_text(value, text, sizeof(value));
    disti_agents_link_send(link, op, value, strlen((const char *)value));
}

enum disti_wire_event disti_agents_link_read(struct agents_link *link)
{
    size_t had = link->in.got;
    enum disti_wire_event event = disti_wire_read(&link->in, link->fd);

    if (link->in.tls && !link->is_broken)
        link_watch(link); /* the handshake may have something to say */
    if (link->in.got > had)
        link->heard_ns = disti_now_ns();
    if (event == DISTI_WIRE_FRAME &&
        (link->in.head.version != DISTI_WIRE_VERSION || link->in.head.id != 0 ||
         link->in.head.arg != 0 || link->in.head.key_bytes != 0))
        return DISTI_WIRE_STRANGE;
    return event;
}

void disti_agents_link_beat(struct agents_link *link, uint32_t interval_ms, int64_t *when_p)
{
    if (disti_now_ns() >= link->told_ns + (int64_t)interval_ms * NS_PER_MS)
        disti_agents_link_send(link, AGENTS_BEAT, NULL, 0);
    agents_sooner(when_p, link->told_ns + (int64_t)interval_ms * NS_PER_MS);
}

bool disti_agents_link_is_silent(const struct agents_link *link, uint32_t silence_ms,
                                 int64_t *when_p)
{
    int64_t until = link->heard_ns + (int64_t)silence_ms * NS_PER_MS;

    agents_sooner(when_p, until);
    return disti_now_ns() >= until;
}
