/* SPDX-License-Identifier: BSD-3-Clause */
/* Secrets, the cookie file, and proofs with HMAC. */
#include <config.h>

#include "base/auth.h"
#include "base/file.h"
#include "base/settings/env.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the user's cookie file: the first process creates it, all later ones read it ---- */

#define COOKIE_HEX 64 /* 32 random bytes in hexadecimal */

static bool cookie_wrong(char *why, const char *path, const char *what)
{
    snprintf(why, DISTI_SECRET_WHY, "the cookie file %s %s (%s)", path, what, strerror(errno));
    return false;
}

/* Creates a file with a unique name and writes it to disk completely. */
static bool cookie_draft(const char *directory, char draft[DISTI_SECRET_PATH], char *why)
{
    unsigned char random[COOKIE_HEX / 2 + 8];
    char text[2 * sizeof(random) + 1];
    bool written;
    int fd;

    if (getrandom(random, sizeof(random), 0) != sizeof(random))
        return cookie_wrong(why, directory, "cannot be made");
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(text + 2 * i, 3, "%02x", random[i]);
    snprintf(draft, DISTI_SECRET_PATH, "%.*s/.%.16s", DISTI_SECRET_PATH - 32, directory,
             text + COOKIE_HEX);
    text[COOKIE_HEX] = '\n';
    fd = open(draft, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return cookie_wrong(why, draft, "cannot be created");
    written = disti_file_write(fd, text, COOKIE_HEX + 1) == COOKIE_HEX + 1 && fsync(fd) == 0;
    explicit_bzero(text, sizeof(text));
    explicit_bzero(random, sizeof(random));
    close(fd);
    if (written)
        return true;
    cookie_wrong(why, draft, "cannot be written");
    unlink(draft);
    return false;
}

/*
 * The first process to link its draft creates the cookie; other processes discard their drafts,
 * since link(2) never replaces a file.
 */
static bool cookie_create(char directory[DISTI_SECRET_PATH], const char *path, char *why)
{
    struct stat here = {.st_uid = geteuid() + 1};
    char draft[DISTI_SECRET_PATH];
    bool made;

    /*
     * Create directories only inside a directory of this user. sudo may have kept another user's
     * HOME, and that user could not use directories that root owns.
     */
    for (char *slash = strchr(directory + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (stat(directory, &here) != 0 && here.st_uid == geteuid())
            (void)mkdir(directory, 0700);
        *slash = '/';
    }
    if (here.st_uid == geteuid())
        (void)mkdir(directory, 0700);
    if (!cookie_draft(directory, draft, why))
        return false;
    made = link(draft, path) == 0 || errno == EEXIST;
    if (!made)
        cookie_wrong(why, path, "cannot be created");
    unlink(draft);
    return made;
}

bool disti_secret_cookie(struct disti_secret *secret_p, char why[DISTI_SECRET_WHY])
{
    const char *config = disti_env("XDG_CONFIG_HOME"), *home = disti_env("HOME");
    const char *base = config ? config : home;
    char directory[DISTI_SECRET_PATH], path[DISTI_SECRET_PATH];
    struct stat file, holder;
    bool taken;
    int length = base ? snprintf(directory, sizeof(directory), "%s%s/libdist", base,
                                 config ? "" : "/.config")
                      : 0;

    disti_secret_wipe(secret_p);
    /* A setuid program ignores the environment, and its files belong to another user. */
    if (!base || base[0] != '/' || length + 64 >= DISTI_SECRET_PATH || getuid() != geteuid()) {
        snprintf(
            why, DISTI_SECRET_WHY,
            "there is no place for a cookie file: set HOME (or XDG_CONFIG_HOME, if it is used) to "
            "an absolute path; a setuid program has no cookie");
        return false;
    }
    snprintf(path, sizeof(path), "%.*s/cookie", DISTI_SECRET_PATH - 16, directory);
    if (lstat(path, &file) != 0 && !cookie_create(directory, path, why))
        return false;
    /* The owner of the directory could replace the file after these checks. */
    taken = stat(directory, &holder) == 0 && holder.st_uid == geteuid() &&
            (lstat(path, &file) != 0 || (S_ISREG(file.st_mode) && file.st_uid == geteuid()));
    if (!taken)
        snprintf(
            why, DISTI_SECRET_WHY,
            "the cookie file %s is not a regular file of this user in a directory of this user: "
            "remove it, or set HOME to this user's home directory, or DIST_AUTH=none to run "
            "without a secret",
            path);
    taken = taken && disti_secret_read(path, secret_p, why);
    if (!taken)
        snprintf(secret_p->path, sizeof(secret_p->path), "%s", path);
    return taken;
}

/* ---- nonces and proofs ---- */

bool disti_nonce(unsigned char nonce[DISTI_NONCE_BYTES])
{
    return getrandom(nonce, DISTI_NONCE_BYTES, 0) == DISTI_NONCE_BYTES;
}

void disti_prove(const struct disti_secret *secret, const char *role,
                 const struct disti_hmac_piece *pieces, int count,
                 unsigned char proof[DISTI_HMAC_BYTES])
{
    static const char known[] = "libdist: no secret";
    struct disti_hmac_piece all[1 + DISTI_PROOF_PIECES] = {{role, strlen(role) + 1}};
    const bool has = secret->length > 0;

    for (int i = 0; i < count; i++)
        all[1 + i] = pieces[i];
    disti_hmac(has ? secret->bytes : (const unsigned char *)known,
               has ? secret->length : sizeof(known), all, 1 + count, proof);
}

/* ---- HMAC-SHA-256 over the hash of OpenSSL ---- */

#ifdef HAVE_OPENSSL
/*
 * Only the hash is from OpenSSL, with its oldest API: the newer one first loads providers and a
 * configuration, which takes more than 1 ms in each process of a job.
 */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <string.h>

bool disti_hmac_exists(void)
{
    return true;
}

/*
 * Computes RFC 2104's inner or outer pad: the key extended to a block of the hash, XORed with a
 * constant.
 */
static void hmac_begin(SHA256_CTX *hash, const unsigned char key[SHA256_CBLOCK], unsigned char pad)
{
    unsigned char block[SHA256_CBLOCK];

    for (int i = 0; i < SHA256_CBLOCK; i++)
        block[i] = key[i] ^ pad;
    SHA256_Init(hash);
    SHA256_Update(hash, block, sizeof(block));
    OPENSSL_cleanse(block, sizeof(block));
}

void disti_hmac(const void *key, size_t key_bytes, const struct disti_hmac_piece *pieces, int count,
                unsigned char mac[DISTI_HMAC_BYTES])
{
    unsigned char block[SHA256_CBLOCK] = {0}, inner[DISTI_HMAC_BYTES];
    SHA256_CTX hash;

    if (key_bytes <= sizeof(block)) {
        memcpy(block, key, key_bytes);
    } else {
        SHA256_Init(&hash);
        SHA256_Update(&hash, key, key_bytes);
        SHA256_Final(block, &hash);
    }
    hmac_begin(&hash, block, 0x36);
    for (int i = 0; i < count; i++)
        SHA256_Update(&hash, pieces[i].data, pieces[i].bytes);
    SHA256_Final(inner, &hash);
    hmac_begin(&hash, block, 0x5c);
    SHA256_Update(&hash, inner, sizeof(inner));
    SHA256_Final(mac, &hash);
    OPENSSL_cleanse(block, sizeof(block));
}

bool disti_hmac_same(const unsigned char a[DISTI_HMAC_BYTES],
                     const unsigned char b[DISTI_HMAC_BYTES])
{
    return CRYPTO_memcmp(a, b, DISTI_HMAC_BYTES) == 0;
}

#else
#include "base/hash.h"

#include <string.h>

bool disti_hmac_exists(void)
{
    return false;
}

/* A hash that only distinguishes keys; it proves nothing. */
void disti_hmac(const void *key, size_t key_bytes, const struct disti_hmac_piece *pieces, int count,
                unsigned char mac[DISTI_HMAC_BYTES])
{
    uint64_t hash = disti_hash_bytes(DISTI_HASH_START, key, key_bytes);

    for (int i = 0; i < count; i++)
        hash = disti_hash_bytes(hash, pieces[i].data, pieces[i].bytes);
    for (int i = 0; i < DISTI_HMAC_BYTES; i++)
        mac[i] = (unsigned char)(hash >> 8 * (i % 8));
}

bool disti_hmac_same(const unsigned char a[DISTI_HMAC_BYTES],
                     const unsigned char b[DISTI_HMAC_BYTES])
{
    return memcmp(a, b, DISTI_HMAC_BYTES) == 0;
}
#endif

/* ---- a secret in a file that only its owner can open ---- */

#define SECRET_GROUPS 1024
#define SECRET_PIPE_MS 10000 /* maximum time to wait for a pipe's writer */

static bool secret_wrong(char *why, const char *path, const char *what, const char *remedy)
{
    snprintf(why, DISTI_SECRET_WHY, "the secret file %s %s: %s", path, what, remedy);
    return false;
}

/*
 * True if root has given the file to a group of this process, as Kubernetes mounts secrets with an
 * fsGroup.
 */
static bool secret_is_groups(const struct stat *file)
{
    gid_t groups[SECRET_GROUPS];
    const int count = getgroups(SECRET_GROUPS, groups);
    bool held = file->st_gid == getegid();

    if (file->st_uid != 0 || file->st_gid == 0 || (file->st_mode & (S_IWGRP | S_IXGRP | S_IRWXO)))
        return false;
    for (int i = 0; i < count; i++)
        held = held || groups[i] == file->st_gid;
    return held;
}

/* Reads the complete secret without its final newline. */
static bool secret_load(const char *path, int fd, struct disti_secret *secret, char *why)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN}; /* regular files are always ready */
    const size_t capacity = sizeof(secret->bytes);
    ssize_t got;

    while (secret->length < capacity &&
           (got = read(fd, secret->bytes + secret->length, capacity - secret->length)) != 0) {
        if (got < 0 && errno == EAGAIN && poll(&ready, 1, SECRET_PIPE_MS) <= 0)
            return secret_wrong(why, path, "is a pipe to which no process writes", "name a file");
        if (got < 0 && errno != EINTR && errno != EAGAIN)
            return secret_wrong(why, path, "cannot be read", strerror(errno));
        secret->length += got > 0 ? (size_t)got : 0;
    }
    if (secret->length > 0 && secret->bytes[secret->length - 1] == '\n')
        secret->length--;
    if (secret->length > DISTI_SECRET_MOST)
        return secret_wrong(why, path, "is too long", "a secret has at most 256 bytes");
    if (secret->length < DISTI_SECRET_LEAST)
        return secret_wrong(why, path, "is too short",
                            "a secret has at least 16 bytes (openssl rand -hex 32)");
    return true;
}

bool disti_secret_read(const char *path, struct disti_secret *secret_p, char why[DISTI_SECRET_WHY])
{
    struct stat file;
    bool taken;
    int fd;

    disti_secret_wipe(secret_p);
    if (strlen(path) >= sizeof(secret_p->path))
        return secret_wrong(why, "named", "has too long a path", "move it");
    fd = disti_file_open(path);
    if (fd < 0 && errno == EPERM)
        return secret_wrong(why, path, "is a link of another user's", "name the file itself");
    if (fd < 0)
        return secret_wrong(why, path, "cannot be read", strerror(errno));
    /* Only the owner may access it; this also holds for a pipe, such as a shell's <(...). */
    if (fstat(fd, &file) != 0)
        taken = secret_wrong(why, path, "cannot be examined", strerror(errno));
    else if (!S_ISREG(file.st_mode) && !S_ISFIFO(file.st_mode))
        taken =
            secret_wrong(why, path, "is not a file", "name a file that contains the job's secret");
    else if (file.st_uid != geteuid() && file.st_uid != 0)
        taken = secret_wrong(why, path, "belongs to another user", "create one of your own");
    else if ((file.st_mode & (S_IRWXG | S_IRWXO)) && !secret_is_groups(&file))
        taken = secret_wrong(why, path, "can be opened by other users",
                             "chmod 600 it, and change the secret");
    else
        taken = secret_load(path, fd, secret_p, why);
    close(fd);
    if (taken)
        snprintf(secret_p->path, sizeof(secret_p->path), "%s", path);
    else
        disti_secret_wipe(secret_p);
    return taken;
}

void disti_secret_set_bytes(struct disti_secret *secret, const void *bytes, size_t length)
{
    disti_secret_wipe(secret);
    if (!bytes)
        return;
    secret->length = length < DISTI_SECRET_MOST ? length : DISTI_SECRET_MOST;
    memcpy(secret->bytes, bytes, secret->length);
}

void disti_secret_set_token(struct disti_secret *secret, const char *token)
{
    disti_secret_set_bytes(secret, token, strlen(token));
}

void disti_secret_wipe(struct disti_secret *secret)
{
    explicit_bzero(secret, sizeof(*secret));
}
