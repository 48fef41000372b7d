/* SPDX-License-Identifier: BSD-3-Clause */
/* TLS: the files that DIST_TLS_CERT, DIST_TLS_KEY and DIST_TLS_CA name, and the names in them. */
#include <config.h>

#include "doctor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* By the variables: the certificate, its key, and who has signed it and the others'. */
enum { TLS_CERT, TLS_KEY, TLS_CA, TLS_FILES };
static const char *const tls_variables[] = {"DIST_TLS_CERT", "DIST_TLS_KEY", "DIST_TLS_CA"};

/* Their values; "" for one that is not set. Returns how many are. */
static int tls_paths(const char *paths[TLS_FILES])
{
    int set = 0;

    for (int i = 0; i < TLS_FILES; i++) {
        const char *value = getenv(tls_variables[i]);

        paths[i] = value ? value : "";
        set += *paths[i] != '\0';
    }
    return set;
}

static void tls_incomplete(struct doctor_report *report, const char *const paths[TLS_FILES])
{
    int missing = 0;

    while (*paths[missing])
        missing++;
    doctor_fault(report, "tls",
                 "%s is not set: TLS needs all three of DIST_TLS_CERT, DIST_TLS_KEY "
                 "and DIST_TLS_CA",
                 tls_variables[missing]);
    doctor_mend(report, "unset DIST_TLS_CERT DIST_TLS_KEY DIST_TLS_CA");
    doctor_other(report, "set it to the path of a PEM file, on all ranks");
}

#ifdef HAVE_OPENSSL
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <unistd.h>

/* A certificate that ends within so long is worth a note. */
#define TLS_SOON_S (7 * 24 * 3600)

/* What has been read of the files. */
struct tls_found {
    const char *paths[TLS_FILES];
    X509 *cert;
    EVP_PKEY *key;
};

static bool tls_wrong(struct doctor_report *report, const struct tls_found *found, int file,
                      const char *what, const char *next)
{
    doctor_fault(report, "tls", "%s=%.120s %s", tls_variables[file], found->paths[file], what);
    doctor_other(report, "%s", next);
    return false;
}

static bool tls_readable(struct doctor_report *report, const struct tls_found *found, int file)
{
    FILE *stream = fopen(found->paths[file], "re");
    char what[80];
    struct stat about;
    bool open_to_all;

    if (!stream) {
        snprintf(what, sizeof(what), "cannot be read: %s", strerror(errno));
        return tls_wrong(report, found, file, what,
                         "name a file that this user may read, on each machine");
    }
    open_to_all = file == TLS_KEY && fstat(fileno(stream), &about) == 0 && about.st_mode & S_IRWXO;
    fclose(stream);
    if (!open_to_all)
        return true;
    tls_wrong(report, found, file, "can be opened by every user",
              "then have another key made: this one may be known");
    doctor_mend(report, "chmod 600 '%.200s'", found->paths[file]);
    return false;
}

/* A key with a passphrase would have OpenSSL ask at the terminal. */
static int tls_no_passphrase(char *text, int size, int writing, void *arg)
{
    (void)text, (void)size, (void)writing, (void)arg;
    return 0;
}

/* Certificate and key can be read, and belong together. */
static bool tls_pair(struct doctor_report *report, struct tls_found *found)
{
    FILE *cert = fopen(found->paths[TLS_CERT], "re"), *key = fopen(found->paths[TLS_KEY], "re");

    found->cert = cert ? PEM_read_X509(cert, NULL, tls_no_passphrase, NULL) : NULL;
    found->key = key ? PEM_read_PrivateKey(key, NULL, tls_no_passphrase, NULL) : NULL;
    if (cert)
        fclose(cert);
    if (key)
        fclose(key);
    if (!found->cert)
        return tls_wrong(report, found, TLS_CERT, "begins with no certificate",
                         "give one in PEM form: -----BEGIN CERTIFICATE-----");
    if (!found->key)
        return tls_wrong(report, found, TLS_KEY, "holds no key that can be used",
                         "give the certificate's key, in PEM form and without a passphrase");
    if (X509_check_private_key(found->cert, found->key) != 1)
        return tls_wrong(report, found, TLS_KEY, "is not the key of DIST_TLS_CERT",
                         "give the key with which that certificate was asked for");
    return true;
}

static bool tls_in_time(struct doctor_report *report, const struct tls_found *found)
{
    time_t soon = time(NULL) + TLS_SOON_S;

    if (X509_cmp_current_time(X509_get0_notBefore(found->cert)) > 0)
        return tls_wrong(report, found, TLS_CERT, "does not hold yet",
                         "see the clock of this machine, or when it begins (openssl x509 -dates)");
    if (X509_cmp_current_time(X509_get0_notAfter(found->cert)) < 0)
        return tls_wrong(report, found, TLS_CERT, "has expired",
                         "renew it; openssl x509 -dates says when it ended");
    if (X509_cmp_time(X509_get0_notAfter(found->cert), &soon) < 0) {
        doctor_note(report, "tls-expiry", "%.120s expires within a week", found->paths[TLS_CERT]);
        doctor_other(report, "renew it before");
    }
    return true;
}

/* What follows the certificate in its file: those between it and the authority. */
static STACK_OF(X509) * tls_chain(const struct tls_found *found)
{
    STACK_OF(X509) *chain = sk_X509_new_null();
    FILE *file = fopen(found->paths[TLS_CERT], "re");
    X509 *next;

    while (chain && file && (next = PEM_read_X509(file, NULL, tls_no_passphrase, NULL)))
        sk_X509_push(chain, next);
    if (file)
        fclose(file);
    return chain;
}

/* Does the certificate hold for that purpose? Returns OpenSSL's error; X509_V_OK: it does. */
static int tls_verify(const struct tls_found *found, X509_STORE *trusted, STACK_OF(X509) * chain,
                      int purpose)
{
    X509_STORE_CTX *check = X509_STORE_CTX_new();
    int error = X509_V_ERR_OUT_OF_MEM;

    if (check && X509_STORE_CTX_init(check, trusted, found->cert, chain) == 1 &&
        X509_STORE_CTX_set_purpose(check, purpose) == 1) {
        (void)X509_verify_cert(check);
        error = X509_STORE_CTX_get_error(check);
    }
    X509_STORE_CTX_free(check);
    return error;
}

/* The authority has signed it, for both ends of a connection: each rank calls some, and is called
 * by others. */
static bool tls_signed(struct doctor_report *report, const struct tls_found *found)
{
    X509_STORE *trusted = X509_STORE_new();
    STACK_OF(X509) *chain = tls_chain(found);
    bool loaded = trusted && X509_STORE_load_locations(trusted, found->paths[TLS_CA], NULL) == 1;
    int error = X509_V_OK;
    char what[112];

    if (loaded)
        error = tls_verify(found, trusted, chain, X509_PURPOSE_SSL_CLIENT);
    if (loaded && error == X509_V_OK)
        error = tls_verify(found, trusted, chain, X509_PURPOSE_SSL_SERVER);
    X509_STORE_free(trusted);
    sk_X509_pop_free(chain, X509_free);
    if (!loaded)
        return tls_wrong(report, found, TLS_CA, "holds no certificate of an authority",
                         "give that of whoever signs the ranks' certificates, in PEM form");
    if (error == X509_V_OK)
        return true;
    snprintf(what, sizeof(what), "does not hold: %.80s", X509_verify_cert_error_string(error));
    return tls_wrong(report, found, TLS_CERT, what,
                     error == X509_V_ERR_INVALID_PURPOSE
                         ? "have one made for both ends: extendedKeyUsage=serverAuth,clientAuth"
                         : "DIST_TLS_CA must be the certificate of what signed it");
}

/* As certificates have it. False: ranks meet at no such address. */
static bool tls_address(const struct sockaddr *address, char *text, size_t size)
{
    const struct sockaddr_in *four = (const void *)address;
    const struct sockaddr_in6 *six = (const void *)address;

    if (address && address->sa_family == AF_INET)
        return inet_ntop(AF_INET, &four->sin_addr, text, (socklen_t)size);
    return address && address->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr) &&
           inet_ntop(AF_INET6, &six->sin6_addr, text, (socklen_t)size);
}

/* By what the certificate names this machine. */
struct tls_names {
    bool address, loopback, host;
    char addresses[160]; /* the machine's, as a new certificate would have them */
};

/* Ranks call each other by address; the host name counts only where the store is called by it. */
static void tls_names_machine(const struct tls_found *found, struct tls_names *names)
{
    const size_t size = sizeof(names->addresses);
    char name[HOST_NAME_MAX + 1] = "", text[INET6_ADDRSTRLEN];
    struct ifaddrs *all = NULL;
    size_t used = 0;

    *names = (struct tls_names){0};
    gethostname(name, sizeof(name));
    names->host =
        X509_check_host(found->cert, name, 0, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT, NULL) == 1;
    for (struct ifaddrs *at = getifaddrs(&all) == 0 ? all : NULL; at; at = at->ifa_next) {
        if (!tls_address(at->ifa_addr, text, sizeof(text)))
            continue;
        if (X509_check_ip_asc(found->cert, text, 0) == 1)
            *(at->ifa_flags & IFF_LOOPBACK ? &names->loopback : &names->address) = true;
        if (used + sizeof(text) + 4 < size)
            used += (size_t)snprintf(names->addresses + used, size - used, "%sIP:%s",
                                     used ? "," : "", text);
    }
    freeifaddrs(all);
}

static void tls_named(struct doctor_report *report, const struct tls_found *found)
{
    struct tls_names names;

    tls_names_machine(found, &names);
    if (names.address) {
        doctor_ok(report, "tls",
                  "certificate, key and authority fit, and name an address of this machine");
    } else if (names.loopback) {
        doctor_note(report, "tls",
                    "%.120s names this machine by the loopback alone: its ranks can "
                    "have no others",
                    found->paths[TLS_CERT]);
        doctor_other(report, "for several machines: subjectAltName=%s", names.addresses);
    } else {
        doctor_fault(report, "tls", "%.120s names %s: no rank will connect with one here",
                     found->paths[TLS_CERT],
                     names.host ? "this machine by its host name alone, not by an address"
                                : "no address of this machine");
        doctor_other(report, "have one made with subjectAltName=%s", names.addresses);
    }
}

static void tls_files(struct doctor_report *report, const char *const paths[TLS_FILES])
{
    struct tls_found found = {.paths = {paths[TLS_CERT], paths[TLS_KEY], paths[TLS_CA]}};
    bool fine = true;

    for (int i = 0; i < TLS_FILES && fine; i++)
        fine = tls_readable(report, &found, i);
    if (fine && tls_pair(report, &found) && tls_in_time(report, &found) &&
        tls_signed(report, &found))
        tls_named(report, &found);
    X509_free(found.cert);
    EVP_PKEY_free(found.key);
}
#else
static void tls_files(struct doctor_report *report, const char *const paths[TLS_FILES])
{
    (void)paths;
    doctor_fault(report, "tls", "this libdist was built without OpenSSL, and so without TLS");
    doctor_mend(report, "unset DIST_TLS_CERT DIST_TLS_KEY DIST_TLS_CA");
    doctor_other(report, "install OpenSSL's headers (libssl-dev), and build libdist again");
}
#endif

void doctor_tls(struct doctor_report *report)
{
    const char *paths[TLS_FILES];
    const int set = tls_paths(paths);

    if (!set)
        doctor_ok(report, "tls", "not asked for: DIST_TLS_CERT is not set");
    else if (set < TLS_FILES)
        tls_incomplete(report, paths);
    else
        tls_files(report, paths);
}
