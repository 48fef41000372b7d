/* SPDX-License-Identifier: BSD-3-Clause */
/* What two ranks say to each other before they share memory. */
#ifndef DISTI_TRANSPORTS_SHM_HELLO_H
#define DISTI_TRANSPORTS_SHM_HELLO_H

#include <dist/transport.h>

/*
 * One packet each way, over a SOCK_SEQPACKET socket that stays open afterwards: its end
 * is the peer's.
 *
 *      caller                          called
 *        CALL, memory and doorbell  ------>
 *                               <------ ACCEPT, doorbell
 *                                    or DEFER: both call at once, the lower rank's call counts
 *                                    or REFUSE, with a status
 */
enum shm_word { SHM_CALL = 1, SHM_ACCEPT, SHM_DEFER, SHM_REFUSE };

#define SHM_HELLO_FDS 2

struct shm_hello {
    uint64_t magic;
    uint32_t version;
    uint32_t word;
    int32_t from, to; /* ranks */
    int32_t status;   /* REFUSE: why */
    uint32_t pad;
    uint64_t job;
    uint64_t key;                  /* CALL: the stamps' */
    uint64_t fifo_bytes;           /* CALL */
    uint64_t probe_address, probe; /* a word in the speaker's memory, and its value */
};

/* Fills what every hello has. */
void disti_shm_hello_init(struct shm_hello *hello, enum shm_word word, int from, int to,
                          uint64_t job);

/* Is it one of ours, for this rank, this job, from a rank of this world? */
bool disti_shm_hello_valid(const struct shm_hello *hello, int to, int world_size, uint64_t job);

/* Never blocks. False: it could not be sent (errno). */
bool disti_shm_hello_send(int socket, const struct shm_hello *hello, const int *fds, int count);

/*
 * Never blocks. 1: *hello and fds (-1 where there is none; the caller's to close) are
 * filled; 0: nothing there yet, or, with errno EMFILE or ENFILE, no descriptors for what is there;
 * -1: the peer has gone, or what it sent is no hello.
 */
int disti_shm_hello_receive(int socket, struct shm_hello *hello, int fds[SHM_HELLO_FDS]);

/* The user and process at the other end, as the kernel tells. pid is 0 if it cannot be seen. */
bool disti_shm_hello_peer(int socket, uint32_t *uid_p, int *pid_p);

#endif
