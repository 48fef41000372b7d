/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections to peers: making and ending them; private to connection.c, call.c, accept.c. */
#ifndef DISTI_TRANSPORTS_SHM_CONNECTION_H
#define DISTI_TRANSPORTS_SHM_CONNECTION_H

#include "transports/shm/state.h"

/* What an event of the epoll is about; its data is event << 32 | rank or index. */
enum shm_event { SHM_ON_LISTENER, SHM_ON_DOORBELL, SHM_ON_PENDING, SHM_ON_SOCKET, SHM_ON_PROCESS };

bool disti_shm_watch(struct shm_state *state, int fd, enum shm_event event, int index,
                     uint32_t flags);

/* Says once that there are no descriptors. */
void disti_shm_report_descriptors(struct shm_state *state);

/* There is no descriptor for what came on this socket: it is listened to again in a while. */
void disti_shm_back_off(struct shm_state *state, int fd, enum shm_event event, int index);

/* Closes what is not -1 and makes it -1. */
void disti_shm_close_fd(int *fd_p);
void disti_shm_close_fds(int *fds, int count);

/* Fills a hello to this peer. */
void disti_shm_connection_hello(const struct shm_state *state, const struct shm_peer *peer,
                                enum shm_word word, struct shm_hello *hello);

/* Closes what a connection or a call is made of. Requests stay, and so does the phase. */
void disti_shm_connection_hang_up(const struct shm_state *state, struct shm_peer *peer);

/* Both have agreed, and this is what the peer said last: messages may flow. `side` is ours. */
void disti_shm_connection_connected(struct shm_state *state, struct shm_peer *peer, int side,
                                    const struct shm_hello *hello);

/* The peer's end was seen: what it had sent completely still counts. */
void disti_shm_connection_ended(struct shm_state *state, struct shm_peer *peer);

/* Calls those whose time has come. */
void disti_shm_call_due(struct shm_state *state);
/* The answer to our call may be there. */
void disti_shm_call_answered(struct shm_state *state, struct shm_peer *peer);

/* The listener, a caller that had not spoken yet, and the time limit for such. */
void disti_shm_accept_callers(struct shm_state *state);
void disti_shm_accept_pending(struct shm_state *state, int slot);
void disti_shm_accept_expire(struct shm_state *state);

#endif
