/* SPDX-License-Identifier: BSD-3-Clause */
/* A build without OpenSSL: who asks for TLS is told, and no session ever begins. */
#include <config.h>

#ifndef HAVE_OPENSSL
#include "base/tls/tls.h"

#include <stdio.h>

struct disti_tls_context *disti_tls_context_new(const struct disti_tls_files *files, char *why,
                                                size_t size)
{
    (void)files;
    snprintf(why, size,
             "DIST_TLS_CERT, DIST_TLS_KEY and DIST_TLS_CA ask for TLS, and this libdist was built "
             "without OpenSSL: build it with (Debian package libssl-dev), or unset them");
    return NULL;
}

void disti_tls_context_free(struct disti_tls_context *context)
{
    (void)context;
}

struct disti_tls *disti_tls_call(struct disti_tls_context *context, int fd, const char *host)
{
    (void)context, (void)fd, (void)host;
    return NULL;
}

struct disti_tls *disti_tls_accept(struct disti_tls_context *context, int fd)
{
    (void)context, (void)fd;
    return NULL;
}

void disti_tls_free(struct disti_tls *tls)
{
    (void)tls;
}

ssize_t disti_tls_recv(struct disti_tls *tls, const struct iovec *parts, int count)
{
    (void)tls, (void)parts, (void)count;
    errno = ENOTSUP;
    return -1;
}

ssize_t disti_tls_send(struct disti_tls *tls, const struct iovec *parts, int count)
{
    return disti_tls_recv(tls, parts, count);
}

void disti_tls_trust(struct disti_tls *tls)
{
    (void)tls;
}

bool disti_tls_is_up(const struct disti_tls *tls)
{
    (void)tls;
    return false;
}

bool disti_tls_waits_to_send(const struct disti_tls *tls)
{
    (void)tls;
    return false;
}

const char *disti_tls_why(const struct disti_tls *tls)
{
    (void)tls;
    return "";
}

size_t disti_tls_binding(struct disti_tls *tls, unsigned char binding[DISTI_TLS_BINDING])
{
    (void)tls, (void)binding;
    return 0;
}
#endif
