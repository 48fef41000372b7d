/* SPDX-License-Identifier: BSD-3-Clause */
/* The hellos of the handshake: making them, and judging them. */
#include "transports/tcp/state.h"

#include <string.h>
#include <sys/socket.h>

/* The proof of a packed hello, which holds on this session alone, if there is one. */
static void greet_prove(const struct tcp_state *state, struct disti_tls *tls,
                        const unsigned char *bytes, const unsigned char *nonce,
                        unsigned char proof[DISTI_HMAC_BYTES])
{
    unsigned char binding[DISTI_TLS_BINDING];
    const struct disti_hmac_piece session = {binding, disti_tls_binding(tls, binding)};

    disti_tcp_hello_prove(&state->key, bytes, nonce, &session, proof);
}

bool disti_tcp_greet(const struct tcp_state *state, int fd, struct disti_tls *tls, int to,
                     int number, enum disti_tcp_step step, const unsigned char *nonce,
                     const unsigned char *other)
{
    unsigned char bytes[DISTI_TCP_HELLO_BYTES];
    struct disti_tcp_hello hello = {.world_size = (uint32_t)state->world_size,
                                    .from = (uint32_t)state->rank,
                                    .to = (uint32_t)to,
                                    .job = state->job,
                                    .credit = state->unexpected_limit,
                                    .socket = number,
                                    .checksum = state->checksum,
                                    .step = step};

    memcpy(hello.nonce, nonce, sizeof(hello.nonce));
    disti_tcp_hello_encode(&hello, bytes);
    if (step == DISTI_TCP_PROOF || step == DISTI_TCP_ANSWER) {
        greet_prove(state, tls, bytes, other, hello.proof);
        disti_tcp_hello_encode(&hello, bytes);
    }
    return disti_tls_or_send(tls, fd, bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes);
}

bool disti_tcp_hello_valid(const struct tcp_state *state, const unsigned char *bytes,
                           enum disti_tcp_step step, struct disti_tcp_hello *hello_p)
{
    return disti_tcp_hello_decode(bytes, hello_p) && hello_p->step == step &&
           hello_p->job == state->job && hello_p->world_size == (uint32_t)state->world_size &&
           hello_p->checksum == state->checksum && hello_p->to == (uint32_t)state->rank &&
           hello_p->from < hello_p->world_size && hello_p->from != hello_p->to;
}

bool disti_tcp_hello_proved(const struct tcp_state *state, struct disti_tls *tls,
                            const unsigned char *bytes, const unsigned char *nonce)
{
    unsigned char proof[DISTI_HMAC_BYTES];

    greet_prove(state, tls, bytes, nonce, proof);
    return disti_hmac_same(proof, bytes + DISTI_TCP_HELLO_BYTES - DISTI_HMAC_BYTES);
}
