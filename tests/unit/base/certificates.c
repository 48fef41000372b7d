/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes keys and certificates with libcrypto, in a directory under /tmp. */
#include <config.h>

#ifdef HAVE_OPENSSL
#include "tests/unit/base/certificates.h"

#include "tests/unit/base/unit.h"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define DAY 86400L

struct authority {
    EVP_PKEY *key;
    X509 *cert;
};

static char folder[] = "/tmp/test_tls.XXXXXX";

const char *certificates_path(const char *name, const char *end)
{
    static char paths[4][256];
    static int next;
    char *path = paths[next++ % 4];

    snprintf(path, sizeof(paths[0]), "%s/%s%s", folder, name, end);
    return path;
}

static void certificates_extend(X509 *cert, int what, const char *value)
{
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, what, value);

    assert_non_null(extension);
    assert_int_equal(X509_add_ext(cert, extension, -1), 1);
    X509_EXTENSION_free(extension);
}

static X509 *certificates_begin(EVP_PKEY *key, const char *name, int from, int to)
{
    static long serial;
    X509 *cert = X509_new();
    X509_NAME *subject = X509_get_subject_name(cert);

    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(cert), from * DAY);
    X509_gmtime_adj(X509_getm_notAfter(cert), to * DAY);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
    X509_set_pubkey(cert, key);
    return cert;
}

static struct authority certificates_authority(const char *name)
{
    struct authority made = {.key = EVP_EC_gen("P-256")};

    assert_non_null(made.key);
    made.cert = certificates_begin(made.key, name, -10, 10);
    X509_set_issuer_name(made.cert, X509_get_subject_name(made.cert));
    certificates_extend(made.cert, NID_basic_constraints, "critical,CA:TRUE");
    assert_true(X509_sign(made.cert, made.key, EVP_sha256()) > 0);
    return made;
}

static void certificates_free(struct authority *authority)
{
    X509_free(authority->cert);
    EVP_PKEY_free(authority->key);
}

static FILE *certificates_open(const char *path, const char *end)
{
    char name[256];
    FILE *stream;

    snprintf(name, sizeof(name), "%s%s", path, end);
    stream = fopen(name, "w");
    assert_non_null(stream);
    assert_int_equal(chmod(name, 0600), 0);
    return stream;
}

static void certificates_write_authority(const struct authority *authority, const char *path)
{
    FILE *stream = certificates_open(path, ".pem");

    assert_int_equal(PEM_write_X509(stream, authority->cert), 1);
    fclose(stream);
}

/* Writes PATH.pem and PATH.key: a certificate for these names, valid between `from` and `to` days
 * from now. */
static void certificates_write(const struct authority *by, const char *path, const char *names,
                               int from, int to)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = certificates_begin(key, "rank", from, to);
    FILE *stream = certificates_open(path, ".key");

    assert_int_equal(PEM_write_PrivateKey(stream, key, NULL, NULL, 0, NULL, NULL), 1);
    fclose(stream);
    X509_set_issuer_name(cert, X509_get_subject_name(by->cert));
    certificates_extend(cert, NID_subject_alt_name, names);
    certificates_extend(cert, NID_ext_key_usage, "serverAuth,clientAuth");
    assert_true(X509_sign(cert, by->key, EVP_sha256()) > 0);
    stream = certificates_open(path, ".pem");
    assert_int_equal(PEM_write_X509(stream, cert), 1);
    fclose(stream);
    X509_free(cert);
    EVP_PKEY_free(key);
}

void certificates_make(void)
{
    struct authority one, two;

    assert_non_null(mkdtemp(folder));
    one = certificates_authority("one");
    two = certificates_authority("two");
    certificates_write_authority(&one, certificates_path("ca", ""));
    certificates_write_authority(&two, certificates_path("ca2", ""));
    certificates_write(&one, certificates_path("good", ""), "IP:127.0.0.1,DNS:localhost", -1, 5);
    certificates_write(&two, certificates_path("other", ""), "IP:127.0.0.1", -1, 5);
    certificates_write(&one, certificates_path("expired", ""), "IP:127.0.0.1", -5, -1);
    certificates_write(&one, certificates_path("early", ""), "IP:127.0.0.1", 1, 5);
    certificates_free(&one);
    certificates_free(&two);
}

int certificates_clear(void)
{
    static const char *const names[] = {"ca", "ca2", "good", "other", "expired", "early"};

    for (int i = 0; i < 6; i++) {
        unlink(certificates_path(names[i], ".pem"));
        unlink(certificates_path(names[i], ".key"));
    }
    return rmdir(folder);
}
#endif
