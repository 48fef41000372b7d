/* SPDX-License-Identifier: BSD-3-Clause */
/* The user's cookie file: made by whoever needs it first, the same for all who come after. */
#include "base/proof/secret.h"

#include "base/file.h"
#include "base/settings/env.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define COOKIE_HEX 64 /* of 32 random bytes */

static bool cookie_wrong(char *why, const char *path, const char *what)
{
    snprintf(why, DISTI_SECRET_WHY, "the cookie file %s %s (%s)", path, what, strerror(errno));
    return false;
}

/* The folder of the file, and that in which it is; false: neither variable is set, or too long. */
static bool cookie_place(char folder[DISTI_SECRET_PATH], char *why)
{
    const char *config = disti_env("XDG_CONFIG_HOME"), *home = disti_env("HOME");
    const char *base = config ? config : home;
    int length =
        base ? snprintf(folder, DISTI_SECRET_PATH, "%s%s/libdist", base, config ? "" : "/.config")
             : 0;

    /* A setuid program's variables count for nothing, and its files are another user's. */
    if (base && base[0] == '/' && length + 64 < DISTI_SECRET_PATH && getuid() == geteuid())
        return true;
    snprintf(why, DISTI_SECRET_WHY, "there is no place for a cookie file: HOME is not set");
    return false;
}

/*
 * In a folder of this user's, that is: sudo may have kept another user's HOME, where folders of
 * root's would be in the way.
 */
static void cookie_make_folders(char *folder)
{
    struct stat here = {.st_uid = geteuid() + 1};

    for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (stat(folder, &here) != 0 && here.st_uid == geteuid())
            (void)mkdir(folder, 0700);
        *slash = '/';
    }
    if (here.st_uid == geteuid())
        (void)mkdir(folder, 0700);
}

/* A new file with a name that nobody else has, whole on the disk. */
static bool cookie_draft(const char *folder, char draft[DISTI_SECRET_PATH], char *why)
{
    unsigned char random[COOKIE_HEX / 2 + 8];
    char text[2 * sizeof(random) + 1];
    bool written;
    int fd;

    if (getrandom(random, sizeof(random), 0) != sizeof(random))
        return cookie_wrong(why, folder, "cannot be made");
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(text + 2 * i, 3, "%02x", random[i]);
    snprintf(draft, DISTI_SECRET_PATH, "%.*s/.%.16s", DISTI_SECRET_PATH - 32, folder,
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

/* Who links first has made it: the others throw their drafts away. link(2) never replaces. */
static bool cookie_create(char folder[DISTI_SECRET_PATH], const char *path, char *why)
{
    char draft[DISTI_SECRET_PATH];
    bool made;

    cookie_make_folders(folder);
    if (!cookie_draft(folder, draft, why))
        return false;
    made = link(draft, path) == 0 || errno == EEXIST;
    if (!made)
        cookie_wrong(why, path, "cannot be created");
    unlink(draft);
    return made;
}

bool disti_secret_cookie(struct disti_secret *secret_p, char why[DISTI_SECRET_WHY])
{
    char folder[DISTI_SECRET_PATH], path[DISTI_SECRET_PATH];
    struct stat file, holder;
    bool taken;

    disti_secret_wipe(secret_p);
    if (!cookie_place(folder, why))
        return false;
    snprintf(path, sizeof(path), "%.*s/cookie", DISTI_SECRET_PATH - 16, folder);
    if (lstat(path, &file) != 0 && !cookie_create(folder, path, why))
        return false;
    /* Who has the folder could exchange the file behind these looks. */
    taken = stat(folder, &holder) == 0 && holder.st_uid == geteuid() &&
            (lstat(path, &file) != 0 || (S_ISREG(file.st_mode) && file.st_uid == geteuid()));
    if (!taken)
        snprintf(why, DISTI_SECRET_WHY,
                 "the cookie file %s is no regular file of this user in a folder of this user: "
                 "remove it, or set HOME to this user's, or DIST_AUTH=none to go on without a "
                 "secret",
                 path);
    taken = taken && disti_secret_read(path, secret_p, why);
    if (!taken)
        snprintf(secret_p->path, sizeof(secret_p->path), "%s", path);
    return taken;
}
