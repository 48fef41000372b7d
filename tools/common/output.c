/* SPDX-License-Identifier: BSD-3-Clause */
/* Standard output, files that are replaced atomically, and the progress line. */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static int output_error;     /* errno of the first flush of standard output that failed */
static bool output_reported; /* output_exit has reported the failure */

void output_begin(struct output *output)
{
    *output = (struct output){NULL, NULL, 0};
    output->to = open_memstream(&output->bytes, &output->size);
}

int output_end(struct output *output, const char *path)
{
    const bool lost = !path || !output->to || ferror(output->to);
    int fd, result = -1;
    char *draft;

    if ((output->to && fclose(output->to) != 0) || lost) {
        errno = ENOMEM;
    } else {
        fd = draft_open(path, &draft);
        if (fd >= 0 && draft_write(fd, output->bytes, output->size) == 0 &&
            draft_finish(draft, fd) == 0)
            result = close(fd);
        else if (fd >= 0)
            draft_discard(draft, fd);
        free(draft);
    }
    free(output->bytes);
    return result;
}

void output_flush(void)
{
    if (fflush(stdout) != 0 && output_error == 0)
        output_error = errno;
}

void output_print(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    output_flush();
}

/* True if standard output is a pipe whose reader has closed it. */
static bool output_is_unread(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};

    return poll(&out, 1, 0) == 1 && out.revents & POLLERR;
}

const char *output_failure(void)
{
    output_flush();
    /*
     * If a write failed outside output_flush, for example when stdio's buffer was full, its errno
     * is unknown.
     */
    if (ferror(stdout) && !output_error && output_is_unread())
        output_error = EPIPE;
    if (!output_error && !ferror(stdout))
        return NULL;
    return output_error ? strerror(output_error) : "an earlier write failed";
}

int output_exit(const char *program, int code)
{
    const char *failure = output_failure();

    if (failure && !output_reported && output_error != EPIPE)
        fprintf(stderr, "%s: cannot write to standard output: %s\n", program, failure);
    output_reported = failure != NULL;
    return code == 0 && failure ? 1 : code;
}

/*
 * Several processes may write to one path, for example if a job was queued again while its first
 * run continues. So each process writes a draft of its own, and locks it until it is closed:
 *
 *     open PATH.tmp-1a2b3c4d   lock   write   sync   rename to PATH   close
 *             \__ an unlocked draft belongs to a process that has exited, and is removed
 */

#define DRAFT_MARK ".tmp-"
enum { DRAFT_DIGITS = 8, DRAFT_TRIES = 100 };

size_t draft_base(const char *name)
{
    const size_t length = strlen(name), ending = strlen(DRAFT_MARK) + DRAFT_DIGITS;
    const char *mark = name + length - ending;

    if (length <= ending || strncmp(mark, DRAFT_MARK, strlen(DRAFT_MARK)) != 0 ||
        strspn(mark + strlen(DRAFT_MARK), "0123456789abcdef") != DRAFT_DIGITS)
        return 0;
    return length - ending;
}

/* Keeps a draft that it cannot lock, whatever the reason: an extra file does no harm. */
void draft_remove_dead(DIR *folder, const char *name)
{
    const int fd =
        openat(dirfd(folder), name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

    if (fd < 0)
        return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        unlinkat(dirfd(folder), name, 0);
    close(fd);
}

/*
 * Locks a new draft, if the file system supports locks. Returns false if another process has locked
 * or removed the draft in the meantime.
 */
static bool draft_lock(int fd)
{
    struct stat status;

    if (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
        return false;
    return fstat(fd, &status) == 0 && status.st_nlink > 0;
}

/*
 * Returns the name of the file to replace, which the caller frees, and its status (st_mode is 0 if
 * it does not exist), or NULL with errno. Refuses a symbolic link of another user, which could
 * point to any of our files.
 */
static char *draft_target(const char *path, struct stat *status)
{
    struct stat link;

    memset(status, 0, sizeof(*status));
    if (lstat(path, &link) < 0)
        return errno == ENOENT ? strdup(path) : NULL;
    if (S_ISLNK(link.st_mode) && (link.st_uid != geteuid() && link.st_uid != 0)) {
        errno = EPERM;
        return NULL;
    }
    if (stat(path, status) < 0)
        return S_ISLNK(link.st_mode) && errno == ENOENT ? strdup(path) : NULL;
    return S_ISREG(status->st_mode) ? realpath(path, NULL) : strdup(path);
}

/* Creates and locks a draft of `target`. Retries if the name exists or another process has removed
 * the draft. Returns a descriptor, or -1 with errno. */
static int draft_create(const char *target, char **name_p)
{
    for (int i = 0; i < DRAFT_TRIES; i++) {
        unsigned number;
        int fd;

        free(*name_p);
        *name_p = NULL;
        if (getrandom(&number, sizeof(number), 0) != sizeof(number) ||
            asprintf(name_p, "%s" DRAFT_MARK "%08x", target, number) < 0) {
            *name_p = NULL;
            errno = ENOMEM;
            return -1;
        }
        fd = open(*name_p, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST)
            return -1;
        if (fd >= 0 && draft_lock(fd))
            return fd;
        if (fd >= 0) {
            unlink(*name_p);
            close(fd);
        }
    }
    errno = EEXIST;
    return -1;
}

/*
 * Returns the descriptor of standard output or error if it writes to this file, or -1. Such a file
 * must not be replaced, since later output of the program would be lost.
 */
static int draft_stream(const struct stat *file)
{
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
        struct stat stream;

        if (fstat(fd, &stream) == 0 && stream.st_dev == file->st_dev &&
            stream.st_ino == file->st_ino)
            return fd;
    }
    return -1;
}

int draft_open(const char *path, char **name_p)
{
    struct stat status;
    char *target = draft_target(path, &status);
    int fd = -1;

    *name_p = NULL;
    if (target && S_ISREG(status.st_mode) && draft_stream(&status) >= 0) {
        fflush(NULL); /* earlier output comes first in the file */
        fd = fcntl(draft_stream(&status), F_DUPFD_CLOEXEC, 0);
    } else if (target && status.st_mode != 0 && !S_ISREG(status.st_mode)) {
        fd = open(target, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    } else if (target && (status.st_mode == 0 || access(target, W_OK) == 0)) {
        const char *slash = strrchr(target, '/'), *base = slash ? slash + 1 : target;
        char *where = slash ? strndup(target, (size_t)(base - target)) : strdup(".");
        DIR *folder = where ? opendir(where) : NULL;
        const struct dirent *entry;

        while (folder && (entry = readdir(folder))) {
            const size_t length = draft_base(entry->d_name);

            if (length > 0 && length == strlen(base) && memcmp(entry->d_name, base, length) == 0)
                draft_remove_dead(folder, entry->d_name);
        }
        if (folder)
            closedir(folder);
        free(where);
        fd = draft_create(target, name_p);
        if (fd >= 0 && status.st_mode != 0)
            (void)!fchmod(fd, status.st_mode & 07777);
        if (fd < 0 && status.st_mode != 0 &&
            (errno == EACCES || errno == EPERM ||
             errno == EROFS)) /* the directory is not writable */
            fd = open(target, O_WRONLY | O_CLOEXEC);
    }
    free(target);
    return fd;
}

int draft_write(int fd, const void *bytes, size_t size)
{
    const char *at = bytes;

    while (size > 0) {
        const ssize_t put = write(fd, at, size);

        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return -1;
        at += put;
        size -= (size_t)put;
    }
    return 0;
}

/* Makes the rename itself durable. Errors are ignored: not every file system supports this. */
static void draft_sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    const int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

    free(folder);
    if (fd < 0)
        return;
    (void)!fsync(fd);
    close(fd);
}

/*
 * Truncates a file that was overwritten in place at the current position, since it may have been
 * longer before.
 */
static int draft_cut(int fd)
{
    struct stat status;
    const off_t end = lseek(fd, 0, SEEK_CUR);

    if (fstat(fd, &status) < 0)
        return -1;
    if (!S_ISREG(status.st_mode) || end < 0 || draft_stream(&status) >= 0)
        return 0;
    return ftruncate(fd, end);
}

/*
 * Copies the draft into the target and removes the draft. For a target that is a mount point, which
 * rename cannot replace.
 */
static int draft_copy(const char *name, int fd, const char *target)
{
    const int to = open(target, O_WRONLY | O_CLOEXEC);
    char bytes[4096];
    off_t at = 0;
    ssize_t got = 0;
    int result = -1;

    while (to >= 0 && (got = pread(fd, bytes, sizeof(bytes), at)) > 0) {
        if (draft_write(to, bytes, (size_t)got) < 0)
            got = -1;
        if (got < 0)
            break;
        at += got;
    }
    if (to >= 0 && got == 0 && draft_cut(to) == 0 && fsync(to) == 0)
        result = unlink(name);
    if (to >= 0)
        close(to);
    return result;
}

int draft_finish(const char *name, int fd)
{
    char *target;
    int result = -1;

    if (!name)
        return draft_cut(fd);
    target = strndup(name, draft_base(name));
    if (target && fsync(fd) == 0) {
        result = rename(name, target);
        if (result == 0)
            draft_sync_folder(target);
        else if (errno == EBUSY)
            result = draft_copy(name, fd, target);
    }
    free(target);
    return result;
}

void draft_discard(const char *name, int fd)
{
    const int before = errno;

    if (name)
        unlink(name);
    close(fd);
    errno = before;
}

int draft_is_possible(const char *path)
{
    struct stat status;
    char *name;
    int fd;

    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))
        return access(path, W_OK);
    fd = draft_open(path, &name);
    if (fd >= 0)
        draft_discard(name, fd);
    free(name);
    return fd < 0 ? -1 : 0;
}

/* The progress line on stderr. */

static atomic_bool progress_shown;

void progress_show(const char *format, ...)
{
    char text[79];
    va_list arguments;

    if (!isatty(STDERR_FILENO))
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    atomic_store(&progress_shown, true);
    fprintf(stderr, "\r\033[K%s", text);
    fflush(stderr);
}

void progress_clear(void)
{
    if (!atomic_exchange(&progress_shown, false))
        return;
    fprintf(stderr, "\r\033[K");
    fflush(stderr);
}
