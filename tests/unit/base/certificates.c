/* SPDX-License-Identifier: BSD-3-Clause */
#include <config.h>

#ifdef HAVE_OPENSSL
#include "tests/unit/base/certificates.h"

#include "tests/unit/base/unit.h"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <sys/stat.h>

#define DAY 86400L

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

struct authority certificates_authority(const char *name)
{
    struct authority made = {.key = EVP_EC_gen("P-256")};

    assert_non_null(made.key);
    made.cert = certificates_begin(made.key, name, -10, 10);
    X509_set_issuer_name(made.cert, X509_get_subject_name(made.cert));
    certificates_extend(made.cert, NID_basic_constraints, "critical,CA:TRUE");
    assert_true(X509_sign(made.cert, made.key, EVP_sha256()) > 0);
    return made;
}

void certificates_free(struct authority *authority)
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

void certificates_write_authority(const struct authority *authority, const char *path)
{
    FILE *stream = certificates_open(path, ".pem");

    assert_int_equal(PEM_write_X509(stream, authority->cert), 1);
    fclose(stream);
}

void certificates_write(const struct authority *by, const char *path, const char *names, int from,
                        int to)
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
#endif
