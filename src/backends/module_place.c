/* SPDX-License-Identifier: BSD-3-Clause */
/* Where a module lies: nobody may exchange its file between the look at it and dlopen. */
#include "backends/module.h"

#include "base/file.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* More of them than this library's path has folders are not known. */
#define PLACE_OWNERS 32

/* Who can exchange this library gains nothing by a module. */
struct place_trust {
    uid_t users[PLACE_OWNERS];
    gid_t groups[PLACE_OWNERS];
    int user_count, group_count;
    bool anybody;
};

/* Calls fn for each folder above the file of an absolute path, until it returns false. */
static bool place_walk(const char *path, bool (*fn)(const char *folder, void *arg), void *arg)
{
    char folder[PATH_MAX];

    snprintf(folder, sizeof(folder), "%s", path);
    for (char *end = strrchr(folder, '/'); end; end = strrchr(folder, '/')) {
        if (end == folder)
            return fn("/", arg);
        *end = '\0';
        if (!fn(folder, arg))
            return false;
    }
    return true;
}

/* Whoever may write may exchange what lies there, but for a folder as /tmp is. */
static bool place_is_open(const struct stat *status, mode_t to)
{
    return (status->st_mode & to) && !(status->st_mode & S_ISVTX);
}

static bool place_trust_folder(const char *folder, void *arg)
{
    struct place_trust *trust = arg;
    struct stat status;

    if (stat(folder, &status) < 0)
        return true;
    if (trust->user_count < PLACE_OWNERS)
        trust->users[trust->user_count++] = status.st_uid;
    if (place_is_open(&status, S_IWGRP) && trust->group_count < PLACE_OWNERS)
        trust->groups[trust->group_count++] = status.st_gid;
    trust->anybody |= place_is_open(&status, S_IWOTH);
    return true;
}

static void place_trust(struct place_trust *trust)
{
    char library[PATH_MAX];
    struct stat status;
    Dl_info info;

    *trust = (struct place_trust){.user_count = 0};
    if (!dladdr((void *)(uintptr_t)disti_module_place, &info) || !info.dli_fname ||
        !realpath(info.dli_fname, library))
        return;
    if (stat(library, &status) == 0)
        trust->users[trust->user_count++] = status.st_uid;
    (void)place_walk(library, place_trust_folder, trust);
}

static bool place_trusts_user(const struct place_trust *trust, uid_t user)
{
    for (int i = 0; i < trust->user_count; i++) {
        if (trust->users[i] == user)
            return true;
    }
    return trust->anybody || disti_file_owner_is_safe(user);
}

/* A folder of root's that a group may write to is the administrator's choice. */
static bool place_trusts_group(const struct place_trust *trust, const struct stat *status)
{
    for (int i = 0; i < trust->group_count; i++) {
        if (trust->groups[i] == status->st_gid)
            return true;
    }
    return trust->anybody || status->st_uid == 0 ||
           (status->st_uid != geteuid() && disti_file_owner_is_safe(status->st_uid));
}

struct place_look {
    struct place_trust trust;
    char *reason;
    size_t size;
};

static bool place_folder_is_safe(const char *folder, void *arg)
{
    struct place_look *look = arg;
    struct stat status;

    if (stat(folder, &status) < 0) {
        snprintf(look->reason, look->size, "lies in %s, which cannot be examined: %s", folder,
                 strerror(errno));
        return false;
    }
    if (!place_trusts_user(&look->trust, status.st_uid)) {
        snprintf(look->reason, look->size,
                 "lies in %s, which belongs to user %u: he could exchange it; copy it to a folder "
                 "of your own",
                 folder, (unsigned)status.st_uid);
        return false;
    }
    if ((place_is_open(&status, S_IWOTH) && !look->trust.anybody) ||
        (place_is_open(&status, S_IWGRP) && !place_trusts_group(&look->trust, &status))) {
        snprintf(look->reason, look->size,
                 "lies in %s, where %s could exchange it (mode %04o): run chmod go-w on that "
                 "folder, or copy the module to another",
                 folder, status.st_mode & S_IWOTH ? "everybody" : "its group",
                 (unsigned)status.st_mode & 07777);
        return false;
    }
    return true;
}

bool disti_module_place(const char *path, char place[PATH_MAX], char *reason, size_t size)
{
    struct place_look look;
    struct stat status;
    size_t used = (size_t)snprintf(reason, size, "module %s ", path);

    if (used >= size)
        return false;
    look.reason = reason + used;
    look.size = size - used;
    place_trust(&look.trust);
    if (lstat(path, &status) == 0 && S_ISLNK(status.st_mode) &&
        !place_trusts_user(&look.trust, status.st_uid)) {
        snprintf(look.reason, look.size, "is a link of user %u's: remove it, or make it yourself",
                 (unsigned)status.st_uid);
        return false;
    }
    if (!realpath(path, place)) {
        snprintf(look.reason, look.size, "cannot be read: %s%s", strerror(errno),
                 errno == EACCES ? ": let this user read it" : "");
        return false;
    }
    return place_walk(place, place_folder_is_safe, &look);
}
