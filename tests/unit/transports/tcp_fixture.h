/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests of the tcp transport: ranks in one thread, and a client that speaks it by hand. */
#ifndef TESTS_TCP_FIXTURE_H
#define TESTS_TCP_FIXTURE_H

#include "transports/tcp/tcp.h"
#include "transports/tcp/wire.h"

#define TCP_TEST_JOB "tcp-test"

/* One rank's instance. */
struct tcp_rank {
    void *state;
    struct dist_transport_config config;
    unsigned char blob[DIST_ADDRESS_MAX];
    size_t blob_bytes;
};

/* Of ranks that are opened from now on; 10 s at first. */
extern int tcp_timeout_ms;
/* The key of their world; NULL: none. */
extern const struct disti_secret *tcp_key;

/* Opens rank `rank` of `world` on `host`; fails the test if that fails. */
void tcp_rank_open(struct tcp_rank *rank, int number, int world, const char *host);
void tcp_rank_close(struct tcp_rank *rank);
/* Two ranks that know each other. */
void tcp_pair_open(struct tcp_rank pair[2], const char *host);
void tcp_pair_close(struct tcp_rank pair[2]);

/* Zeroed but for what is given; started by tcp_send and tcp_recv. */
void tcp_send(struct tcp_rank *rank, struct dist_request *request, int peer, uint64_t tag,
              const void *data, size_t bytes);
void tcp_recv(struct tcp_rank *rank, struct dist_request *request, int peer, uint64_t tag,
              void *dst, size_t bytes);

/* One call of progress for each of `count` ranks. */
void tcp_drive(struct tcp_rank *ranks, int count);
/* Drives for so long. */
void tcp_drive_ms(struct tcp_rank *ranks, int count, int ms);
/* Drives until the request has ended, at most 10 s. Returns its status. */
dist_status tcp_finish(struct tcp_rank *ranks, int count, const struct dist_request *request);

/* The two send each other so many bytes and check them. */
void tcp_exchange(struct tcp_rank pair[2], size_t bytes);

/* Is there an address to bind? */
bool tcp_host_usable(const char *host);
int tcp_open_files(void);

/* A socket by hand: a blocking connection to that rank, or a listener that rank `rank` knows. */
int raw_connect(const struct tcp_rank *rank);
int raw_listen(struct tcp_rank *rank, int as);
/* Writes all; false if the other end has closed. */
bool raw_write(int fd, const void *data, size_t bytes);
/* A rank's first hello, in the test's job, which grants so much credit. */
#define RAW_CREDIT ((uint64_t)64 << 20)
size_t raw_hello(unsigned char *bytes, int from, int to, int world);
/* A message with fingerprint 1: header and payload. Returns their bytes. */
size_t raw_message(unsigned char *bytes, uint64_t tag, const void *data, size_t size);
/* Makes that a PROOF or an ANSWER to the hello that was heard. */
void raw_prove(unsigned char *bytes, enum disti_tcp_step step, const unsigned char *heard);
/* Reads a hello of that step, driving the rank. */
void raw_hear(struct tcp_rank *rank, int fd, unsigned char *bytes, enum disti_tcp_step step);
/* Calls as rank `as` for that socket, up to the proof; the answer is not read. */
void raw_call(struct tcp_rank *rank, int fd, int as, int number);
/* Is called as rank `as`, up to the rank's proof; the answer is in bytes. */
size_t raw_called(struct tcp_rank *rank, int fd, int as, unsigned char *bytes);
/* Connects, calls as rank `as` and reads the answer, driving the rank. */
int raw_join(struct tcp_rank *rank, int as);
/* Drives the rank until it closes this socket, at most 10 s. */
bool raw_closed(struct tcp_rank *ranks, int count, int fd);

#endif
