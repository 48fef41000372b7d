/* SPDX-License-Identifier: BSD-3-Clause */
/* Fuzzing targets, and functions to read their input. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fuzz_input {
    const uint8_t *at;
    size_t left;
};

/* Passes the input to a parser, and releases everything that it has opened or allocated. */
typedef void fuzz_target(struct fuzz_input *input);

fuzz_target fuzz_agents_client, fuzz_agents_server;
fuzz_target fuzz_baseline, fuzz_checkpoint, fuzz_cifar10, fuzz_idx;
fuzz_target fuzz_command, fuzz_launch, fuzz_secret, fuzz_settings, fuzz_url;
fuzz_target fuzz_hostfile, fuzz_module, fuzz_tuning;
fuzz_target fuzz_shm, fuzz_store_client, fuzz_store_server, fuzz_tcp;

/* Prints the condition and aborts if it is false. */
#define FUZZ_MUST(holds)                                                                           \
    do {                                                                                           \
        if (!(holds))                                                                              \
            fuzz_fail(__FILE__, __LINE__, #holds);                                                 \
    } while (0)
_Noreturn void fuzz_fail(const char *file, int line, const char *what);

/* ---- input.c ---- */

/* Returns the next byte; 0 after the end. */
uint8_t fuzz_byte(struct fuzz_input *input);

/* Takes `bytes` bytes, or all remaining ones if there are fewer. */
struct fuzz_input fuzz_take(struct fuzz_input *input, size_t bytes);

/* Returns a line without its end, or the remaining text; the caller frees it. */
char *fuzz_line(struct fuzz_input *input);
/* Returns all remaining text; the caller frees it. */
char *fuzz_text(struct fuzz_input *input);

/* Stores all remaining bytes in a file. Returns the path, which is valid until the next call. */
const char *fuzz_file(struct fuzz_input *input);

/* Returns a folder for files, which is removed when the program exits. */
const char *fuzz_folder(void);

/* ---- clock.c ---- */

/* Advances this process's clock by this number of seconds. */
void fuzz_advance_clock(int seconds);

/* ---- streams.c: connections over TCP on the loopback address ---- */

int fuzz_listen(int *port_p);
int fuzz_connect(int port);
/* Sends as much as the socket accepts. Returns false if the other end has closed. */
bool fuzz_send(int fd, const void *data, size_t bytes);
/* Discards received data. Returns false if the other end has closed. */
bool fuzz_drain(int fd);
/* Waits until bytes arrive or the other end closes; aborts if that takes too long. */
void fuzz_await(int fd);
/*
 * Reads this number of bytes; aborts if that takes too long. Returns false if the other end has
 * closed.
 */
bool fuzz_read(int fd, void *data, size_t bytes);
/* Closes a connection without a TIME_WAIT state. Does nothing if fd is -1. */
void fuzz_close(int fd);

/* Sends a frame of the protocol of the store and the agents. */
void fuzz_send_frame(int fd, uint8_t op, uint32_t id, int32_t arg, struct fuzz_input key,
                     const void *value, size_t bytes);
/* Sends a frame with a valid header and fields from the input. */
void fuzz_send_some_frame(int fd, struct fuzz_input *input);
/* Reads a frame, as fuzz_read does: its header and the first bytes of its value, padded with zeros.
 */
struct disti_wire_head;
bool fuzz_read_frame(int fd, struct disti_wire_head *head_p, void *value, size_t bytes);

#endif
