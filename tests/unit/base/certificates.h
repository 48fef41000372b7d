/* SPDX-License-Identifier: BSD-3-Clause */
/* Certificates for tests of TLS, made in the test itself. */
#ifndef DIST_TESTS_CERTIFICATES_H
#define DIST_TESTS_CERTIFICATES_H

#include <openssl/x509.h>

struct authority {
    EVP_PKEY *key;
    X509 *cert;
};

struct authority certificates_authority(const char *name);
void certificates_free(struct authority *authority);

/* Writes PATH.pem and PATH.key: for these names ("IP:127.0.0.1"), from and to days from now. */
void certificates_write(const struct authority *by, const char *path, const char *names, int from,
                        int to);
void certificates_write_authority(const struct authority *authority, const char *path);

#endif
