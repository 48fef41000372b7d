/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A TLS context and the functions of libssl. A shared libssl is loaded when TLS is first used, so
 * that jobs without TLS do not pay for it. A static libssl is linked.
 */
#ifndef DISTI_BASE_TLS_CONTEXT_H
#define DISTI_BASE_TLS_CONTEXT_H

#include "base/tls/tls.h"

#include <openssl/ssl.h>

/* The functions of libssl that are used. libcrypto is linked. */
#define DISTI_TLS_FUNCTIONS(X)                                                                     \
    X(SSL_CTX_ctrl)                                                                                \
    X(SSL_CTX_free)                                                                                \
    X(SSL_CTX_get0_certificate)                                                                    \
    X(SSL_CTX_get_cert_store)                                                                      \
    X(SSL_CTX_load_verify_file)                                                                    \
    X(SSL_CTX_new)                                                                                 \
    X(SSL_CTX_set_default_passwd_cb)                                                               \
    X(SSL_CTX_set_num_tickets)                                                                     \
    X(SSL_CTX_set_options)                                                                         \
    X(SSL_CTX_set_verify)                                                                          \
    X(SSL_CTX_use_PrivateKey_file)                                                                 \
    X(SSL_CTX_use_certificate_chain_file)                                                          \
    X(SSL_ctrl)                                                                                    \
    X(SSL_do_handshake)                                                                            \
    X(SSL_export_keying_material)                                                                  \
    X(SSL_free)                                                                                    \
    X(SSL_get0_param)                                                                              \
    X(SSL_get_error)                                                                               \
    X(SSL_get_verify_result)                                                                       \
    X(SSL_new)                                                                                     \
    X(SSL_read)                                                                                    \
    X(SSL_set_accept_state)                                                                        \
    X(SSL_set_bio)                                                                                 \
    X(SSL_set_connect_state)                                                                       \
    X(SSL_write)                                                                                   \
    X(TLS_method)

struct disti_tls_library {
    void *handle;
#define DISTI_TLS_MEMBER(name) __typeof__(name) *name;
    DISTI_TLS_FUNCTIONS(DISTI_TLS_MEMBER)
#undef DISTI_TLS_MEMBER
};

struct disti_tls_context {
    const struct disti_tls_library *lib;
    SSL_CTX *ssl;
};

#endif
