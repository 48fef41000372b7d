/* SPDX-License-Identifier: BSD-3-Clause */
/* Certificate, key and trust: read from files, and looked at before anybody is met with them. */
#include <config.h>

#include "base/log.h"
#include "base/process.h"
#include "base/settings/config.h"
#include "base/tls/tls.h"

#include <string.h>

bool disti_tls_wanted(void)
{
    return disti_env("DIST_TLS_CERT") || disti_env("DIST_TLS_KEY") || disti_env("DIST_TLS_CA");
}

dist_status disti_tls_open(struct disti_tls_context **context_p)
{
    const struct disti_tls_files files = {.cert = disti_env("DIST_TLS_CERT"),
                                          .key = disti_env("DIST_TLS_KEY"),
                                          .ca = disti_env("DIST_TLS_CA")};
    char why[DISTI_TLS_WHY];

    *context_p = NULL;
    if (!disti_tls_wanted())
        return DIST_OK;
    if (!files.cert || !files.key || !files.ca)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "%s is not set: TLS needs DIST_TLS_CERT, DIST_TLS_KEY and DIST_TLS_CA "
                          "together, or none of them",
                          !files.cert  ? "DIST_TLS_CERT"
                          : !files.key ? "DIST_TLS_KEY"
                                       : "DIST_TLS_CA");
    *context_p = disti_tls_context_new(&files, why, sizeof(why));
    return *context_p ? DIST_OK : disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s", why);
}

#ifdef HAVE_OPENSSL
#include "base/file.h"
#include "base/tls/context.h"

#include <openssl/err.h>
#include <openssl/x509_vfy.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* A key with a passphrase would have OpenSSL ask at the terminal. */
static int context_no_passphrase(char *text, int size, int writing, void *arg)
{
    (void)text, (void)size, (void)writing, (void)arg;
    return 0;
}

static bool context_wrong(char *why, size_t size, const char *setting, const char *path,
                          const char *what)
{
    snprintf(why, size, "%s: the file %.100s %s", setting, path, what);
    ERR_clear_error();
    return false;
}

/* The files of a context, open; and the names by which OpenSSL is to open these and no others. */
struct context_file {
    const char *setting, *path;
    int fd;
    char name[64];
};

/* Owned by this user or root, by no link of another's; a key is the owner's alone, or a group's. */
static bool context_open(struct context_file *file, mode_t closed_to, char *why, size_t size)
{
    struct stat status;
    char what[96];

    file->fd = disti_file_open(file->path);
    if (file->fd < 0 || fstat(file->fd, &status) != 0) {
        snprintf(what, sizeof(what), "cannot be read (%s)",
                 errno == EPERM ? "it is a link of another user's" : strerror(errno));
        return context_wrong(why, size, file->setting, file->path, what);
    }
    if (!disti_file_owner_is_safe(status.st_uid))
        return context_wrong(why, size, file->setting, file->path,
                             "belongs to another user: copy it, if you trust it");
    if (status.st_mode & closed_to & S_IROTH)
        return context_wrong(why, size, file->setting, file->path,
                             "can be opened by every user: chmod 600 it, and change the key");
    if (status.st_mode & closed_to)
        return context_wrong(why, size, file->setting, file->path,
                             "can be changed by others: chmod go-w it");
    snprintf(file->name, sizeof(file->name), DISTI_PROCESS_OWN "/fd/%d", file->fd);
    return true;
}

/* Without /proc it is opened by its own name again. */
static const char *context_name(const struct context_file *file)
{
    return access(file->name, R_OK) == 0 ? file->name : file->path;
}

static bool context_use(struct disti_tls_context *context, const struct context_file of[3],
                        char *why, size_t size)
{
    const struct disti_tls_library *lib = context->lib;

    if (lib->SSL_CTX_use_certificate_chain_file(context->ssl, context_name(&of[0])) != 1)
        return context_wrong(why, size, of[0].setting, of[0].path,
                             "begins with no certificate that can be used: give one in PEM form");
    if (lib->SSL_CTX_use_PrivateKey_file(context->ssl, context_name(&of[1]), SSL_FILETYPE_PEM) != 1)
        return context_wrong(why, size, of[1].setting, of[1].path,
                             "does not hold the key of DIST_TLS_CERT, in PEM form and without a "
                             "passphrase: give that key");
    if (lib->SSL_CTX_load_verify_file(context->ssl, context_name(&of[2])) != 1)
        return context_wrong(why, size, of[2].setting, of[2].path,
                             "holds no certificate of an authority: give it in PEM form");
    return true;
}

static bool context_load(struct disti_tls_context *context, const struct disti_tls_files *files,
                         char *why, size_t size)
{
    struct context_file of[3] = {
        {"DIST_TLS_CERT", files->cert, -1, ""},
        {"DIST_TLS_KEY", files->key, -1, ""},
        {"DIST_TLS_CA", files->ca, -1, ""},
    };
    const bool loaded =
        context_open(&of[0], S_IWOTH, why, size) && context_open(&of[1], S_IRWXO, why, size) &&
        context_open(&of[2], S_IWOTH, why, size) && context_use(context, of, why, size);

    for (int i = 0; i < 3; i++) {
        if (of[i].fd >= 0)
            close(of[i].fd);
    }
    return loaded;
}

/* Would a peer with the same authorities take our certificate today? */
static bool context_fits(struct disti_tls_context *context, const struct disti_tls_files *files,
                         char *why, size_t size)
{
    X509 *own = context->lib->SSL_CTX_get0_certificate(context->ssl);
    X509_STORE_CTX *check = X509_STORE_CTX_new();
    int error = X509_V_ERR_OUT_OF_MEM;
    char what[140];

    if (check &&
        X509_STORE_CTX_init(check, context->lib->SSL_CTX_get_cert_store(context->ssl), own, NULL)) {
        /* The file may hold a chain. */
        STACK_OF(X509) *chain = NULL;

        context->lib->SSL_CTX_ctrl(context->ssl, SSL_CTRL_GET_CHAIN_CERTS, 0, &chain);
        X509_STORE_CTX_set0_untrusted(check, chain);
        (void)X509_verify_cert(check);
        error = X509_STORE_CTX_get_error(check);
    }
    X509_STORE_CTX_free(check);
    if (error == X509_V_OK)
        return true;
    snprintf(what, sizeof(what), "%.60s: %s", X509_verify_cert_error_string(error),
             error == X509_V_ERR_CERT_HAS_EXPIRED     ? "renew it"
             : error == X509_V_ERR_CERT_NOT_YET_VALID ? "see the clock of this machine"
                                                      : "DIST_TLS_CA must be what signed it");
    return context_wrong(why, size, "DIST_TLS_CERT", files->cert, what);
}

static bool context_rules(struct disti_tls_context *context)
{
    const struct disti_tls_library *lib = context->lib;

    lib->SSL_CTX_ctrl(context->ssl, SSL_CTRL_MODE,
                      SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                          SSL_MODE_RELEASE_BUFFERS,
                      NULL);
    lib->SSL_CTX_ctrl(context->ssl, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, NULL);
    /* The frames inside say how a connection ends. */
    lib->SSL_CTX_set_options(context->ssl, SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_TICKET);
    lib->SSL_CTX_set_num_tickets(context->ssl, 0);
    lib->SSL_CTX_set_verify(context->ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    lib->SSL_CTX_set_default_passwd_cb(context->ssl, context_no_passphrase);
    return lib->SSL_CTX_ctrl(context->ssl, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, NULL);
}

struct disti_tls_context *disti_tls_context_new(const struct disti_tls_files *files, char *why,
                                                size_t size)
{
    const struct disti_tls_library *lib = disti_tls_library(why, size);
    struct disti_tls_context *context = lib ? calloc(1, sizeof(*context)) : NULL;

    if (!lib)
        return NULL;
    if (context) {
        context->lib = lib;
        context->ssl = lib->SSL_CTX_new(lib->TLS_method());
    }
    if (!context || !context->ssl) {
        snprintf(why, size, "TLS cannot be set up: no memory");
        free(context);
        return NULL;
    }
    if (!context_rules(context))
        snprintf(why, size,
                 "TLS 1.3 is not to be had: this machine's OpenSSL was built without it, or "
                 "its configuration (openssl.cnf) forbids it");
    else if (context_load(context, files, why, size) && context_fits(context, files, why, size))
        return context;
    disti_tls_context_free(context);
    return NULL;
}

void disti_tls_context_free(struct disti_tls_context *context)
{
    if (!context)
        return;
    context->lib->SSL_CTX_free(context->ssl);
    free(context);
}
#endif
