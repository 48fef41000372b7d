/* SPDX-License-Identifier: BSD-3-Clause */
/* Helpers for tests of the tcp transport: ranks in one thread, and a client that implements the
 * protocol itself. */
#ifndef TESTS_TCP_FIXTURE_H
#define TESTS_TCP_FIXTURE_H

#include "transports/tcp/tcp.h"
#include "transports/tcp/wire.h"

#define TCP_TEST_JOB "tcp-test"

/* The transport of one rank. */
struct tcp_rank {
    void *state;
    struct dist_transport_config config;
    unsigned char blob[DIST_ADDRESS_MAX];
    size_t blob_bytes;
};

/* Settings of ranks that are opened later: the timeout (initially 20 s), and the key of their world
 * (NULL: none). */
extern int tcp_timeout_ms;
extern const struct disti_secret *tcp_key;

/* Opens rank `number` of `world` on `host`; fails the test if that fails. */
void tcp_rank_open(struct tcp_rank *rank, int number, int world, const char *host);
void tcp_rank_close(struct tcp_rank *rank);
/* Opens two ranks and connects them to each other. */
void tcp_pair_open(struct tcp_rank pair[2], const char *host);
void tcp_pair_close(struct tcp_rank pair[2]);

/* Initialize the request with these values and post it. */
void tcp_send(struct tcp_rank *rank, struct dist_request *request, int peer, uint64_t tag,
              const void *data, size_t bytes);
void tcp_recv(struct tcp_rank *rank, struct dist_request *request, int peer, uint64_t tag,
              void *dst, size_t bytes);

/* Calls progress once for each of `count` ranks. */
void tcp_drive(struct tcp_rank *ranks, int count);
/* Makes progress for `ms`. */
void tcp_drive_ms(struct tcp_rank *ranks, int count, int ms);
/* Makes progress until the request has ended, at most 20 s. Returns its status. */
dist_status tcp_finish(struct tcp_rank *ranks, int count, const struct dist_request *request);

/* The two ranks send each other `bytes` bytes and check them. */
void tcp_exchange(struct tcp_rank pair[2], size_t bytes);

/* True if the transport can be opened on this address. */
bool tcp_host_usable(const char *host);
int tcp_count_files(void);

/* Return a blocking socket. raw_connect connects to the rank; raw_listen creates a listener and
 * gives its address to the rank as the address of rank `as`. */
int raw_connect(const struct tcp_rank *rank);
int raw_listen(struct tcp_rank *rank, int as);
/* Writes all bytes. False if the other end has closed. */
bool raw_write(int fd, const void *data, size_t bytes);
/* Encodes the first hello of a rank in the test's job, which grants RAW_CREDIT bytes of credit.
 * Returns its length. */
#define RAW_CREDIT ((uint64_t)64 << 20)
size_t raw_hello(unsigned char *bytes, int from, int to, int world);
/* Encodes a message with fingerprint 1: header and payload. Returns its length. */
size_t raw_message(unsigned char *bytes, uint64_t tag, const void *data, size_t size);
/* Turns the hello in bytes into a PROOF or an ANSWER to the received hello. */
void raw_prove(unsigned char *bytes, enum disti_tcp_step step, const unsigned char *received);
/* Reads a hello of that step, making progress on the rank. */
void raw_read_hello(struct tcp_rank *rank, int fd, unsigned char *bytes, enum disti_tcp_step step);
/* Calls as rank `as` for socket `number`, up to and including the proof; does not read the
 * answer. */
void raw_call(struct tcp_rank *rank, int fd, int as, int number);
/* Answers a call as rank `as`, up to and including the rank's proof. The answer to send is in
 * bytes; returns its length. */
size_t raw_answer_call(struct tcp_rank *rank, int fd, int as, unsigned char *bytes);
/* Connects, calls as rank `as` and reads the answer, making progress on the rank. Returns the
 * connection. */
int raw_join(struct tcp_rank *rank, int as);
/* Makes progress until the ranks close this connection, at most 20 s. False: timeout. */
bool raw_is_closed(struct tcp_rank *ranks, int count, int fd);

#endif
