/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What another process of the user says to a rank before they share memory. A byte says what comes
 * with the next words:
 *
 *     bit 0       a hello that is right, with the input's bytes over its fields
 *     bits 1, 2   descriptors: none; memory as it should be; memory that is too short; no memory
 *     bit 3       a doorbell
 */
#include "tests/fuzz/fuzz.h"

#include "base/hash.h"
#include "transports/shm/hello.h"
#include "transports/shm/machine.h"
#include "transports/shm/memory.h"
#include "transports/shm/shm.h"

#include <dist/backend.h>

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define SHM_JOB "fuzz"

static dist_status shm_fail(dist_status status, const char *format, ...)
{
    (void)format;
    return status;
}

static const struct dist_host shm_host = {.fail = shm_fail};

static void *shm_open_rank(struct shm_address *address)
{
    static const struct dist_transport_config config = {.size = sizeof(config),
                                                        .rank = 1,
                                                        .world_size = 2,
                                                        .timeout_ms = 60000,
                                                        .job = SHM_JOB,
                                                        .local_ranks = 2,
                                                        .host = &shm_host};
    void *state = calloc(1, disti_transport_shm.state_size);
    size_t bytes;

    FUZZ_MUST(state && disti_transport_shm.open(state, &config) == DIST_OK);
    FUZZ_MUST(disti_transport_shm.address(state, address, &bytes) == DIST_OK);
    return state;
}

static int shm_call(const struct shm_address *address)
{
    struct sockaddr_un name;
    socklen_t size = disti_shm_machine_socket(address, &name);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    FUZZ_MUST(fd >= 0 && connect(fd, (struct sockaddr *)&name, size) == 0);
    return fd;
}

/* As the kind says; -1: none. */
static int shm_memory(int kind)
{
    struct shm_pair *pair;
    int fd = -1;

    if (kind == 1 && disti_shm_memory_make(SHM_FIFO_MIN, &fd, &pair) == DIST_OK)
        disti_shm_memory_unmap(pair, SHM_FIFO_MIN);
    else if (kind == 2 && (fd = memfd_create("short", MFD_CLOEXEC | MFD_ALLOW_SEALING)) >= 0)
        FUZZ_MUST(ftruncate(fd, 4096) == 0);
    else if (kind == 3)
        fd = dup(STDIN_FILENO);
    return fd;
}

static void shm_say_hello(int fd, uint8_t what, struct fuzz_input *input)
{
    int fds[SHM_HELLO_FDS], count = 0;
    struct shm_hello hello;
    struct fuzz_input at, over;

    disti_shm_hello_init(&hello, SHM_CALL, 0, 1, disti_hash_text(DISTI_HASH_START, SHM_JOB));
    hello.key = 1;
    hello.fifo_bytes = SHM_FIFO_MIN;
    at = fuzz_take(input, 1);
    over = fuzz_take(input, at.left ? *at.at >> 6 : 0);
    for (size_t i = 0; i < over.left; i++)
        ((unsigned char *)&hello)[(*at.at + i) % sizeof(hello)] = over.at[i];
    fds[count] = shm_memory(what >> 1 & 3);
    count += fds[count] >= 0;
    if (what & 8)
        fds[count++] = eventfd(0, EFD_CLOEXEC);
    disti_shm_hello_send(fd, &hello, fds, count);
    while (count-- > 0)
        close(fds[count]);
}

static void shm_say(int fd, struct fuzz_input *input)
{
    uint8_t what = fuzz_byte(input);
    struct fuzz_input piece;

    if (what & 1) {
        shm_say_hello(fd, what, input);
    } else {
        piece = fuzz_take(input, fuzz_byte(input));
        send(fd, piece.at, piece.left, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

static void shm_drive(void *state)
{
    disti_transport_shm.arm(state);
    disti_transport_shm.disarm(state);
    FUZZ_MUST(disti_transport_shm.progress(state) >= 0);
}

void fuzz_shm(struct fuzz_input *input)
{
    struct shm_address address;
    void *state = shm_open_rank(&address);
    int fd = shm_call(&address);

    while (input->left) {
        shm_say(fd, input);
        shm_drive(state);
        if (input->left && *input->at & 0x80) {
            close(fd);
            fd = shm_call(&address);
        }
    }
    close(fd);
    shm_drive(state);
    disti_transport_shm.close(state);
    free(state);
}
