/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections over the loopback address, for parsers that read from sockets. */
#include "tests/fuzz/fuzz.h"

#include "store/wire.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define STREAMS_PATIENCE_MS 20000

static struct sockaddr_in streams_loopback(int port)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

int fuzz_listen(int *port_p)
{
    struct sockaddr_in address = streams_loopback(0);
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    FUZZ_MUST(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    FUZZ_MUST(listen(fd, 8) == 0 && getsockname(fd, (struct sockaddr *)&address, &size) == 0);
    *port_p = ntohs(address.sin_port);
    return fd;
}

int fuzz_connect(int port)
{
    struct sockaddr_in address = streams_loopback(port);
    bool again = true;

    while (again) { /* interrupted by libFuzzer's alarm */
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        FUZZ_MUST(fd >= 0);
        if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
            return fd;
        again = errno == EINTR;
        close(fd);
    }
    return -1;
}

bool fuzz_send(int fd, const void *data, size_t bytes)
{
    return send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0 || errno == EAGAIN;
}

bool fuzz_drain(int fd)
{
    char bytes[4096];
    ssize_t got;

    while ((got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
        ;
    return got < 0 && (errno == EAGAIN || errno == EINTR);
}

void fuzz_await(int fd)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    int got;

    /* libFuzzer's clock uses a signal. */
    do
        got = poll(&ready, 1, STREAMS_PATIENCE_MS);
    while (got < 0 && errno == EINTR);
    FUZZ_MUST(got == 1);
}

bool fuzz_read(int fd, void *data, size_t bytes)
{
    for (size_t have = 0; have < bytes;) {
        ssize_t got;

        fuzz_await(fd);
        got = recv(fd, (char *)data + have, bytes - have, MSG_DONTWAIT);
        if (got <= 0)
            return false;
        have += (size_t)got;
    }
    return true;
}

void fuzz_close(int fd)
{
    const struct linger at_once = {1, 0};

    if (fd < 0)
        return;
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    close(fd);
}

/* ---- frames of store/wire.h ---- */

#define STREAMS_FRAME_MOST 4096

void fuzz_send_frame(int fd, uint8_t op, uint32_t id, int32_t arg, struct fuzz_input key,
                     const void *value, size_t bytes)
{
    unsigned char frame[STREAMS_FRAME_MOST];
    const struct disti_wire_head head = {
        .op = op, .id = id, .arg = arg, .key_bytes = (uint32_t)key.left, .value_bytes = bytes};
    const size_t all = DISTI_WIRE_HEAD + key.left + bytes;

    FUZZ_MUST(all <= sizeof(frame));
    disti_wire_put_head(frame, &head);
    if (key.left)
        memcpy(frame + DISTI_WIRE_HEAD, key.at, key.left);
    if (bytes)
        memcpy(frame + DISTI_WIRE_HEAD + key.left, value, bytes);
    fuzz_send(fd, frame, all);
}

void fuzz_send_some_frame(int fd, struct fuzz_input *input)
{
    uint8_t op = fuzz_byte(input), id = fuzz_byte(input), arg = fuzz_byte(input);
    struct fuzz_input key = fuzz_take(input, fuzz_byte(input) & 15);
    struct fuzz_input value = fuzz_take(input, (size_t)fuzz_byte(input) << (arg & 2));

    fuzz_send_frame(fd, op, id, (int8_t)arg, key, value.at, value.left);
}

bool fuzz_read_frame(int fd, struct disti_wire_head *head_p, void *value, size_t bytes)
{
    unsigned char head[DISTI_WIRE_HEAD], body[STREAMS_FRAME_MOST];
    size_t has;

    if (!fuzz_read(fd, head, sizeof(head)))
        return false;
    FUZZ_MUST(disti_wire_get_head(head, head_p));
    FUZZ_MUST(head_p->key_bytes + head_p->value_bytes <= sizeof(body));
    if (!fuzz_read(fd, body, head_p->key_bytes + (size_t)head_p->value_bytes))
        return false;
    has = head_p->value_bytes < bytes ? (size_t)head_p->value_bytes : bytes;
    memset(value, 0, bytes);
    memcpy(value, body + head_p->key_bytes, has);
    return true;
}
