/* SPDX-License-Identifier: BSD-3-Clause */
/* What OpenSSL reads from and writes to: our socket, without SIGPIPE, and counted. */
#ifndef DISTI_BASE_TLS_WIRE_H
#define DISTI_BASE_TLS_WIRE_H

#include <openssl/bio.h>
#include <stdbool.h>
#include <stddef.h>

struct disti_tls_wire {
    int fd;
    int error;         /* of the last call; 0: none, or EAGAIN */
    size_t read, most; /* bytes that have come, and may */
    bool closed;       /* the peer has */
    bool full;         /* the last write found no room */
    bool greedy;       /* more than `most` has come */
};

/* Of a wire that outlives it. NULL: no memory. */
BIO *disti_tls_wire_bio(struct disti_tls_wire *wire);

#endif
