/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads libssl, once a process. */
#include <config.h>

#ifdef HAVE_OPENSSL
#include "base/tls/library.h"
#include "base/tls/tls.h"

#include <dlfcn.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <stdio.h>

#define LIBRARY_TEXT_OF(version) #version
#define LIBRARY_TEXT(version) LIBRARY_TEXT_OF(version)
/* That which belongs to the libcrypto that we are linked with. */
#define LIBRARY_NAME "libssl.so." LIBRARY_TEXT(OPENSSL_SHLIB_VERSION)

static struct disti_tls_library library;
static char library_why[DISTI_TLS_WHY];

static void library_load(void)
{
    const char *why;

    /* Threads may still use it in exit(), and forked children have no use for its clean-up. */
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
    library.handle = dlopen(LIBRARY_NAME, RTLD_NOW | RTLD_LOCAL);
    if (!library.handle) {
        why = dlerror();
        snprintf(library_why, sizeof(library_why), "%s", why ? why : LIBRARY_NAME);
        return;
    }
#define LIBRARY_FIND(name)                                                                         \
    *(void **)&library.name = dlsym(library.handle, #name);                                        \
    if (!library.name)                                                                             \
        snprintf(library_why, sizeof(library_why), LIBRARY_NAME " has no " #name);
    DISTI_TLS_FUNCTIONS(LIBRARY_FIND)
}

const struct disti_tls_library *disti_tls_library(char *why, size_t size)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, library_load);
    if (!library_why[0])
        return &library;
    snprintf(why, size,
             "TLS needs OpenSSL's libssl (Debian package libssl3), which cannot be loaded: %.150s",
             library_why);
    return NULL;
}
#endif
