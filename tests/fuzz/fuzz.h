/* SPDX-License-Identifier: BSD-3-Clause */
/* Targets of fuzzing, and how they take their input apart. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fuzz_input {
    const uint8_t *at;
    size_t left;
};

/* Feeds a parser; what it leaves behind must be as it was before. */
typedef void fuzz_target(struct fuzz_input *input);

fuzz_target fuzz_agents_client, fuzz_agents_server;
fuzz_target fuzz_baseline, fuzz_checkpoint, fuzz_cifar10, fuzz_idx;
fuzz_target fuzz_command, fuzz_launch, fuzz_secret, fuzz_settings, fuzz_url;
fuzz_target fuzz_hostfile, fuzz_module, fuzz_tuning;
fuzz_target fuzz_shm, fuzz_store_client, fuzz_store_server, fuzz_tcp;

/* Prints what does not hold, and aborts. */
#define FUZZ_MUST(holds)                                                                           \
    do {                                                                                           \
        if (!(holds))                                                                              \
            fuzz_fail(__FILE__, __LINE__, #holds);                                                 \
    } while (0)
_Noreturn void fuzz_fail(const char *file, int line, const char *what);

/* ---- input.c ---- */

/* The next byte; 0 behind the end. */
uint8_t fuzz_byte(struct fuzz_input *input);

/* So many bytes, or as many as there are. */
struct fuzz_input fuzz_take(struct fuzz_input *input, size_t bytes);

/* A line without its end, or the rest: a text of its own, to be freed. */
char *fuzz_line(struct fuzz_input *input);
/* All that is left, in the same way. */
char *fuzz_text(struct fuzz_input *input);

/* A file with all that is left; its path is valid until the next. */
const char *fuzz_file(struct fuzz_input *input);

/* A folder for files, which goes with the program. */
const char *fuzz_folder(void);

/* ---- clock.c ---- */

/* So many seconds pass at once, for this process alone. */
void fuzz_later(int seconds);

/* ---- streams.c: connections over TCP on the loopback address ---- */

int fuzz_listen(int *port_p);
int fuzz_connect(int port);
/* Sends what the socket takes. False: the other end has closed. */
bool fuzz_send(int fd, const void *data, size_t bytes);
/* Reads away what has come. False: the other end has closed. */
bool fuzz_drain(int fd);
/* Waits for bytes, or the other end's closing; one of them must come before long. */
void fuzz_await(int fd);
/* Waits for so many bytes, which must come before long. False: the other end has closed. */
bool fuzz_hear(int fd, void *data, size_t bytes);
/* Closes without a TIME_WAIT; -1 is accepted. */
void fuzz_hang_up(int fd);

/* A frame of the store's and the agents' protocol. */
void fuzz_send_frame(int fd, uint8_t op, uint32_t id, int32_t arg, struct fuzz_input key,
                     const void *value, size_t bytes);
/* One whose head is right, and whose fields are the input's. */
void fuzz_send_some_frame(int fd, struct fuzz_input *input);
/* Waits for one, as fuzz_hear does: its head, and the first bytes of its value, then zeroes. */
struct disti_wire_head;
bool fuzz_hear_frame(int fd, struct disti_wire_head *head_p, void *value, size_t bytes);

#endif
