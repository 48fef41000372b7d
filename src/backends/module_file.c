/* SPDX-License-Identifier: BSD-3-Clause */
/* A module's file, before the dynamic linker has it: that maps a file that was cut off, and the
 * process dies of it. */
#include "backends/module.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Program headers that are looked at; a shared object has about ten. */
#define FILE_HEADERS_MAX 64

static bool file_read(int fd, void *data, size_t bytes, uint64_t offset)
{
    return pread(fd, data, bytes, (off_t)offset) == (ssize_t)bytes;
}

/*
 * Defined by the linker: the header of the library or program that contains this file. Under an
 * emulator /proc/self/exe may name the emulator.
 */
extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

/* Where the last loaded segment ends. */
static uint64_t file_end(int fd, const ElfW(Ehdr) * header)
{
    ElfW(Phdr) segment;
    uint64_t end = header->e_phoff + (uint64_t)header->e_phnum * sizeof(segment);

    for (int i = 0; i < header->e_phnum && i < FILE_HEADERS_MAX; i++) {
        if (!file_read(fd, &segment, sizeof(segment),
                       header->e_phoff + (uint64_t)i * sizeof(segment)))
            break;
        if (segment.p_type == PT_LOAD && segment.p_offset + segment.p_filesz > end)
            end = segment.p_offset + segment.p_filesz;
    }
    return end;
}

/* True. */
static bool file_reject(char *reason, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static bool file_reject(char *reason, size_t size, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(reason, size, format, args);
    va_end(args);
    return true;
}

/* What is wrong with an open file of so many bytes; false: nothing. */
static bool file_is_bad(int fd, uint64_t bytes, char *reason, size_t size)
{
    const ElfW(Ehdr) *own = &__ehdr_start;
    ElfW(Ehdr) header;
    uint64_t end;

    if (!file_read(fd, &header, sizeof(header), 0) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
        return file_reject(reason, size,
                           "is not a shared object (%llu bytes): build it with cc -shared -fPIC",
                           (unsigned long long)bytes);
    if (header.e_ident[EI_CLASS] != own->e_ident[EI_CLASS] ||
        header.e_ident[EI_DATA] != own->e_ident[EI_DATA] || header.e_machine != own->e_machine)
        return file_reject(
            reason, size,
            "was built for another machine (ELF machine %d, class %d; this process is "
            "%d, class %d): build it for this one",
            header.e_machine, header.e_ident[EI_CLASS], own->e_machine, own->e_ident[EI_CLASS]);
    if (header.e_type != ET_DYN)
        return file_reject(reason, size, "is %s, not a shared object: link it with cc -shared",
                           header.e_type == ET_REL ? "an object file" : "a program");
    end = file_end(fd, &header);
    if (end > bytes)
        return file_reject(reason, size,
                           "is truncated: it has %llu bytes of at least %llu: copy it again",
                           (unsigned long long)bytes, (unsigned long long)end);
    return false;
}

/* This library's own file, which is trusted already; false: it cannot be examined. */
static bool file_of_library(struct stat *status)
{
    Dl_info info;

    return dladdr((void *)(uintptr_t)disti_module_loadable, &info) && info.dli_fname &&
           stat(info.dli_fname, status) == 0;
}

/*
 * Its code runs as this user: nobody else may have written it, or still write to it. Who can do
 * that to this library, its owner or its group, gains nothing by a module.
 */
static bool file_is_others(const struct stat *status, char *reason, size_t size)
{
    struct stat library = {.st_uid = 0};
    uid_t user = geteuid();
    bool known = file_of_library(&library);
    mode_t safe =
        known && (library.st_mode & S_IWGRP) && library.st_gid == status->st_gid ? S_IWGRP : 0;

    if (status->st_uid != user && status->st_uid != 0 &&
        !(known && status->st_uid == library.st_uid))
        return file_reject(reason, size,
                           "belongs to user %u: only what is root's or this user's is loaded; if "
                           "you trust it, chown it to user %u or root, or copy it",
                           (unsigned)status->st_uid, (unsigned)user);
    if (status->st_mode & (S_IWGRP | S_IWOTH) & ~safe)
        return file_reject(reason, size,
                           "may be written by %s (mode %04o): only what is safe from others is "
                           "loaded; if you trust it, run chmod go-w on it",
                           status->st_mode & S_IWOTH ? "everybody" : "its group",
                           (unsigned)status->st_mode & 07777);
    return false;
}

bool disti_module_loadable(const char *path, char *reason, size_t reason_size)
{
    struct stat status;
    size_t used;
    bool bad = true;
    int fd;

    used = (size_t)snprintf(reason, reason_size, "module %s ", path);
    if (used >= reason_size)
        return false;
    reason += used;
    reason_size -= used;
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        snprintf(reason, reason_size, "cannot be read: %s%s", strerror(errno),
                 errno == EACCES ? ": let this user read it" : "");
    else if (fstat(fd, &status) < 0)
        snprintf(reason, reason_size, "cannot be examined: %s", strerror(errno));
    else if (!S_ISREG(status.st_mode))
        snprintf(reason, reason_size, "is %s, not a file: remove it",
                 S_ISDIR(status.st_mode) ? "a folder" : "a device or a pipe");
    else
        bad = file_is_others(&status, reason, reason_size) ||
              file_is_bad(fd, (uint64_t)status.st_size, reason, reason_size);
    if (fd >= 0)
        close(fd);
    return !bad;
}
