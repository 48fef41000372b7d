/* SPDX-License-Identifier: BSD-3-Clause */
/* What context.c and session.c share. */
#ifndef DISTI_BASE_TLS_CONTEXT_H
#define DISTI_BASE_TLS_CONTEXT_H

#include "base/tls/library.h"
#include "base/tls/tls.h"

struct disti_tls_context {
    const struct disti_tls_library *lib;
    SSL_CTX *ssl;
};

#endif
