/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds, checks and loads modules. A file is checked before dlopen, since mapping a truncated file
 * would crash the process. */
#include <config.h>

#include "backends/module.h"
#include "backends/registry.h"
#include "base/ascii.h"
#include "base/file.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/settings/config.h"
#include "base/settings/variables.h"

#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Limit of the program headers examined; a shared object has about ten. */
#define FILE_HEADERS_MAX 64

static bool file_read(int fd, void *data, size_t bytes, uint64_t offset)
{
    return pread(fd, data, bytes, (off_t)offset) == (ssize_t)bytes;
}

/* Defined by the linker: the ELF header of the library or program that contains this code.
 * /proc/self/exe is not used, since under an emulator it may name the emulator. */
extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

/* Returns the end of the last loaded segment in the file. */
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

/* Writes the reason. Returns true. */
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

/* True if an open file of `bytes` bytes is not a valid shared object; writes the reason. */
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

/* True if another user owns the file or can write it; writes the reason. The module's code runs as
 * this user. Users and groups that can write this library itself are trusted. */
static bool file_is_unsafe(const struct stat *status, char *reason, size_t size)
{
    struct stat library = {.st_uid = 0};
    uid_t user = geteuid();
    Dl_info info;
    /* True if this library's own file, which is trusted, can be examined. */
    bool known = dladdr((void *)(uintptr_t)disti_module_loadable, &info) && info.dli_fname &&
                 stat(info.dli_fname, &library) == 0;
    mode_t safe =
        known && (library.st_mode & S_IWGRP) && library.st_gid == status->st_gid ? S_IWGRP : 0;

    if (status->st_uid != user && status->st_uid != 0 &&
        !(known && status->st_uid == library.st_uid))
        return file_reject(
            reason, size,
            "belongs to user %u, but only modules of root or this user are loaded: if "
            "you trust it, chown it to user %u or root, or copy it",
            (unsigned)status->st_uid, (unsigned)user);
    if (status->st_mode & (S_IWGRP | S_IWOTH) & ~safe)
        return file_reject(reason, size,
                           "is writable by %s (mode %04o), so it is not loaded: if you trust it, "
                           "run chmod go-w on it",
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
        snprintf(reason, reason_size, "is %s, not a regular file: remove it",
                 S_ISDIR(status.st_mode) ? "a directory" : "a device or a pipe");
    else
        bad = file_is_unsafe(&status, reason, reason_size) ||
              file_is_bad(fd, (uint64_t)status.st_size, reason, reason_size);
    if (fd >= 0)
        close(fd);
    return !bad;
}

/* ---- the directories above a module: no other user may replace the file before dlopen ---- */

/* Limit of the owners recorded; an owner beyond it is not trusted. */
#define PLACE_OWNERS 32

/* The users and groups that can replace this library. They are trusted with modules too. */
struct place_trust {
    uid_t users[PLACE_OWNERS];
    gid_t groups[PLACE_OWNERS];
    int user_count, group_count;
    bool anybody;
};

/* Calls fn for each directory above an absolute path, until it returns false. */
static bool place_walk(const char *path, bool (*fn)(const char *directory, void *arg), void *arg)
{
    char directory[PATH_MAX];

    snprintf(directory, sizeof(directory), "%s", path);
    for (char *end = strrchr(directory, '/'); end; end = strrchr(directory, '/')) {
        if (end == directory)
            return fn("/", arg);
        *end = '\0';
        if (!fn(directory, arg))
            return false;
    }
    return true;
}

/*
 * True if the group or everybody (`to`) can replace files in the directory: they can write it, and
 * it does not have the sticky bit, which /tmp has.
 */
static bool place_is_open(const struct stat *status, mode_t to)
{
    return (status->st_mode & to) && !(status->st_mode & S_ISVTX);
}

static bool place_trust_directory(const char *directory, void *arg)
{
    struct place_trust *trust = arg;
    struct stat status;

    if (stat(directory, &status) < 0)
        return true;
    if (trust->user_count < PLACE_OWNERS)
        trust->users[trust->user_count++] = status.st_uid;
    if (place_is_open(&status, S_IWGRP) && trust->group_count < PLACE_OWNERS)
        trust->groups[trust->group_count++] = status.st_gid;
    trust->anybody |= place_is_open(&status, S_IWOTH);
    return true;
}

static bool place_trusts_user(const struct place_trust *trust, uid_t user)
{
    for (int i = 0; i < trust->user_count; i++) {
        if (trust->users[i] == user)
            return true;
    }
    return trust->anybody || disti_file_owner_is_safe(user);
}

/*
 * True if the group that may write the directory is trusted. A group is always trusted in a
 * directory of root, since the administrator has chosen it.
 */
static bool place_trusts_group(const struct place_trust *trust, const struct stat *status)
{
    for (int i = 0; i < trust->group_count; i++) {
        if (trust->groups[i] == status->st_gid)
            return true;
    }
    return trust->anybody || status->st_uid == 0 ||
           (status->st_uid != geteuid() && disti_file_owner_is_safe(status->st_uid));
}

struct place_check {
    struct place_trust trust;
    char *reason;
    size_t size;
};

static bool place_directory_is_safe(const char *directory, void *arg)
{
    struct place_check *look = arg;
    struct stat status;

    if (stat(directory, &status) < 0) {
        snprintf(look->reason, look->size, "is in directory %s, which cannot be examined: %s",
                 directory, strerror(errno));
        return false;
    }
    if (!place_trusts_user(&look->trust, status.st_uid)) {
        snprintf(look->reason, look->size,
                 "is in directory %s, which belongs to user %u, who could replace it: copy it to a "
                 "directory of your own",
                 directory, (unsigned)status.st_uid);
        return false;
    }
    if ((place_is_open(&status, S_IWOTH) && !look->trust.anybody) ||
        (place_is_open(&status, S_IWGRP) && !place_trusts_group(&look->trust, &status))) {
        snprintf(
            look->reason, look->size,
            "is in directory %s, where %s could replace it (mode %04o): run chmod go-w on that "
            "directory, or copy the module to another one",
            directory, status.st_mode & S_IWOTH ? "everybody" : "its group",
            (unsigned)status.st_mode & 07777);
        return false;
    }
    return true;
}

/* True if no other user can replace the file. Stores the resolved path in `place`; all its
 * directories are safe from other users. On failure writes the reason. */
static bool module_place(const char *path, char place[PATH_MAX], char *reason, size_t size)
{
    struct place_check look;
    struct stat status;
    char library[PATH_MAX];
    Dl_info info;
    size_t used = (size_t)snprintf(reason, size, "module %s ", path);

    if (used >= size)
        return false;
    look.reason = reason + used;
    look.size = size - used;
    look.trust = (struct place_trust){.user_count = 0};
    if (dladdr((void *)(uintptr_t)module_place, &info) && info.dli_fname &&
        realpath(info.dli_fname, library)) {
        if (stat(library, &status) == 0)
            look.trust.users[look.trust.user_count++] = status.st_uid;
        (void)place_walk(library, place_trust_directory, &look.trust);
    }
    if (lstat(path, &status) == 0 && S_ISLNK(status.st_mode) &&
        !place_trusts_user(&look.trust, status.st_uid)) {
        snprintf(look.reason, look.size, "is a link of user %u: remove it, or create it yourself",
                 (unsigned)status.st_uid);
        return false;
    }
    if (!realpath(path, place)) {
        snprintf(look.reason, look.size, "cannot be read: %s%s", strerror(errno),
                 errno == EACCES ? ": let this user read it" : "");
        return false;
    }
    return place_walk(place, place_directory_is_safe, &look);
}

/* ---- directories where modules are searched for, and the modules in them ---- */

#ifndef DISTI_MODULE_DIR
#define DISTI_MODULE_DIR "/usr/local/lib/dist"
#endif

/* Stores the directory from which this library was loaded, so that an installation can be moved. */
static bool directories_own(char *directory, size_t size)
{
    Dl_info info;
    const char *slash;

    if (!dladdr((void *)(uintptr_t)&disti_host, &info) || !info.dli_fname)
        return false;
    slash = strrchr(info.dli_fname, '/');
    if (!slash || (size_t)(slash - info.dli_fname) >= size)
        return false;
    snprintf(directory, size, "%.*s", (int)(slash - info.dli_fname), info.dli_fname);
    return true;
}

/*
 * Stores the i-th directory where modules are searched for: the directories of DIST_PLUGIN_PATH
 * (separated by ':'), dist/ beside the library, the library's own directory (for a build tree), the
 * configured installation directory. Returns false if there are no more.
 */
static bool directories_item(int i, char *directory, size_t size)
{
    const char *list = disti_env("DIST_PLUGIN_PATH");
    char own[PATH_MAX - sizeof("/dist")];
    int listed = 0;

    while (list && disti_list_item(list, ':', listed, directory, size)) {
        if (listed++ == i)
            return true;
    }
    i -= listed;
    if (!directories_own(own, sizeof(own)))
        i += 2;
    if (i > 2)
        return false;
    snprintf(directory, size, "%s%s", i == 2 ? DISTI_MODULE_DIR : own, i == 0 ? "/dist" : "");
    return true;
}

/* Any existing entry counts, whatever its type, so that a bad file is reported instead of
 * ignored. */
int disti_module_locate(const char *name, char paths[][PATH_MAX], int capacity)
{
    char directory[PATH_MAX];
    struct stat status;
    int found = 0;

    for (int i = 0; found < capacity && directories_item(i, directory, sizeof(directory)); i++) {
        int n = snprintf(paths[found], PATH_MAX, "%s/dist_%s.so", directory, name);

        if (n > 0 && n < PATH_MAX && lstat(paths[found], &status) == 0)
            found++;
    }
    return found;
}

size_t dist_list_module_folders(char *buffer, size_t size)
{
    char directory[PATH_MAX];
    size_t used = 0;

    size = buffer ? size : 0;
    if (size)
        buffer[0] = '\0';
    for (int i = 0; directories_item(i, directory, sizeof(directory)); i++)
        used += (size_t)snprintf(used < size ? buffer + used : NULL, used < size ? size - used : 0,
                                 "%s\n", directory);
    return used;
}

size_t disti_module_directories(char *text, size_t size)
{
    char directory[PATH_MAX];
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; used < size && directories_item(i, directory, sizeof(directory)); i++) {
        int error = access(directory, R_OK | X_OK) == 0 ? 0 : errno;

        used += (size_t)snprintf(text + used, size - used, "%s%s%s%s%s", i ? ", " : "", directory,
                                 error ? " (" : "", error ? strerror(error) : "", error ? ")" : "");
    }
    return used;
}

/* ---- lists of modules ---- */

/*
 * Inserts a name in alphabetical order, if it is not in the list yet. Returns false if there is no
 * memory.
 */
static bool directories_add(struct disti_module_names *names, const char *name)
{
    void *grown;
    int index = 0;

    while (index < names->count && strcmp(names->names[index], name) < 0)
        index++;
    if (index < names->count && strcmp(names->names[index], name) == 0)
        return true;
    grown = realloc(names->names, (size_t)(names->count + 1) * sizeof(*names->names));
    if (!grown)
        return false;
    names->names = grown;
    memmove(names->names + index + 1, names->names + index,
            (size_t)(names->count - index) * sizeof(*names->names));
    snprintf(names->names[index], sizeof(names->names[index]), "%s", name);
    names->count++;
    return true;
}

void disti_module_names(struct disti_module_names *names_p)
{
    char directory[PATH_MAX], name[DISTI_MODULE_NAME];
    const struct dirent *entry;

    *names_p = (struct disti_module_names){0};
    for (int i = 0; directories_item(i, directory, sizeof(directory)); i++) {
        DIR *dir = opendir(directory);

        while (dir && (entry = readdir(dir))) {
            size_t length = strlen(entry->d_name);

            /* "dist_NAME.so" */
            if (length <= strlen("dist_.so") || length - strlen("dist_.so") >= sizeof(name) ||
                strncmp(entry->d_name, "dist_", strlen("dist_")) != 0 ||
                strcmp(entry->d_name + length - 3, ".so") != 0)
                continue;
            snprintf(name, sizeof(name), "%.*s", (int)(length - strlen("dist_.so")),
                     entry->d_name + strlen("dist_"));
            if (!directories_add(names_p, name))
                break;
        }
        if (dir)
            closedir(dir);
    }
}

bool disti_module_has_variable(const char *variable)
{
    struct disti_module_names names;
    bool found = false;

    disti_module_names(&names);
    for (int i = 0; i < names.count && !found; i++) {
        const char *module = names.names[i], *at = variable + strlen("DIST_");

        /* "hccl" owns DIST_HCCL and DIST_HCCL_LIBRARY. Characters not allowed in variables become
         * _. */
        while (*module && *at == (disti_ascii_alnum(*module) ? disti_ascii_upper(*module) : '_')) {
            module++;
            at++;
        }
        found = !disti_module_is_own(names.names[i]) && !*module && (*at == '\0' || *at == '_');
    }
    free(names.names);
    return found;
}

/* ---- loading ---- */

/* The loaded modules; never removed. */
DISTI_PROCESS_LOCK(module_lock);
static struct disti_module *module_loaded;

#define MODULE_NEEDS(what, packages)                                                               \
    "configure found no " what " (apt-get install " packages                                       \
    ", then configure and build libdist again)"

/* For each module of this project: why it may be missing, and how to build it. */
static const struct {
    const char *name, *why;
} module_makers[] = {
    {"mpi_openmpi", MODULE_NEEDS("Open MPI", "libopenmpi-dev openmpi-bin")},
    {"mpi_mpich", MODULE_NEEDS("MPICH", "libmpich-dev mpich")},
    {"nccl", "this build omits it (configure --with-nccl=no): configure without that option, "
             "build and install again"},
    {"ucx", MODULE_NEEDS("UCX", "libucx-dev")},
};

static void module_missing(const char *name, char *reason, size_t size)
{
    char similar[256];
    struct disti_module_names names;
    size_t used, length = strlen(name);

    for (size_t i = 0; i < sizeof(module_makers) / sizeof(module_makers[0]); i++) {
        if (strcmp(module_makers[i].name, name) != 0)
            continue;
        snprintf(reason, size, "there is no module dist_%s.so: %s", name,
                 DISTI_SHARED ? module_makers[i].why
                              : "libdist was configured with --disable-shared: configure, build "
                                "and install it without that");
        return;
    }
    used = 0;
    similar[0] = '\0';
    disti_module_names(&names);
    for (int i = 0; i < names.count && used < sizeof(similar); i++) {
        const char *other = names.names[i];

        if (length && length < DISTI_MODULE_NAME &&
            (strstr(other, name) || strstr(name, other) ||
             disti_name_distance(name, other) <= 1 + (int)length / 4))
            used += (size_t)snprintf(similar + used, sizeof(similar) - used, "%sdist_%s.so",
                                     used ? ", " : "; there is ", other);
    }
    free(names.names);
    snprintf(reason, size, "there is no module dist_%s.so%s", name, similar);
}

/* ---- content of a module ---- */

/* Checks the module's tables before any function in them is called. */
static dist_status module_check(const struct dist_module *entry, const char *path)
{
    dist_status status = DIST_OK;
    char from[PATH_MAX + 64];

    if (entry->abi != DIST_ABI)
        return disti_fail(DIST_ERR_ABI,
                          "module %s was built for ABI %u, this library has ABI %d: build the "
                          "module again with this library's headers",
                          path, entry->abi, DIST_ABI);
    if (entry->size < sizeof(*entry))
        return disti_fail(DIST_ERR_ABI,
                          "module %s: its struct dist_module has %u bytes, this library's has %zu: "
                          "set its size to sizeof(struct dist_module)",
                          path, entry->size, sizeof(*entry));
    if (!entry->backend && (!entry->transports || !entry->transports[0]))
        return disti_fail(DIST_ERR_ABI,
                          "module %s provides neither a backend nor a transport: set one in "
                          "its " DIST_MODULE_SYMBOL,
                          path);
    snprintf(from, sizeof(from), "the backend of module %s", path);
    if (entry->backend)
        status = disti_backend_check(entry->backend, from);
    for (int i = 0; status == DIST_OK && entry->transports && entry->transports[i]; i++) {
        snprintf(from, sizeof(from), "transport %d of module %s", i + 1, path);
        status = disti_transport_check(entry->transports[i], from);
    }
    return status;
}

/* ---- dlopen ---- */

/* Returns advice for an error of the dynamic linker. */
static const char *module_advice(const char *text)
{
    static const struct {
        const char *fragment, *advice;
    } advices[] = {
        {"undefined symbol: dist_", "a module must call the library through struct dist_host"},
        {"undefined symbol", "link the module with the library that has this symbol"},
        {"cannot open shared object file", "install that library, or add its directory to "
                                           "LD_LIBRARY_PATH"},
        {"version `",
         "build the module on this machine, or on one with older versions of its libraries"},
    };

    for (size_t i = 0; i < sizeof(advices) / sizeof(advices[0]); i++) {
        if (strstr(text, advices[i].fragment))
            return advices[i].advice;
    }
    return "build it with cc -shared -fPIC for this machine";
}

static dist_status module_open(const char *path, const struct dist_module **entry_p, char *reason,
                               size_t size)
{
    char place[PATH_MAX];
    const char *text;
    void *handle;

    if (!module_place(path, place, reason, size) || !disti_module_loadable(place, reason, size))
        return DIST_ERR_NO_BACKEND;
    handle = dlopen(place, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle) {
        text = dlerror();
        snprintf(reason, size, "module %s cannot be loaded: %s: %s", path, text,
                 module_advice(text));
        return DIST_ERR_NO_BACKEND;
    }
    *entry_p = dlsym(handle, DIST_MODULE_SYMBOL);
    if (*entry_p)
        return DIST_OK;
    snprintf(reason, size,
             "module %s does not define " DIST_MODULE_SYMBOL ": define it as a const struct "
             "dist_module that other objects can see (visibility default)",
             path);
    dlclose(handle);
    return DIST_ERR_ABI;
}

static dist_status module_load(const char *path, struct disti_module **module_p, char *reason,
                               size_t size)
{
    const struct dist_module *entry = NULL;
    struct disti_module *module;
    dist_status status = module_open(path, &entry, reason, size);

    if (status != DIST_OK)
        return status;
    status = module_check(entry, path);
    if (status != DIST_OK) {
        snprintf(reason, size, "%s", dist_last_error());
        return status;
    }
    module = calloc(1, sizeof(*module));
    if (!module) {
        snprintf(reason, size, "no memory for module %s", path);
        return DIST_ERR_NO_MEMORY;
    }
    snprintf(module->path, sizeof(module->path), "%s", path);
    module->entry = entry;
    module->next = module_loaded;
    module_loaded = module;
    *module_p = module;
    return DIST_OK;
}

static struct disti_module *module_find(const char *path)
{
    struct disti_module *module = module_loaded;

    while (module && strcmp(module->path, path) != 0)
        module = module->next;
    return module;
}

bool disti_module_is_loaded(const char *name)
{
    char path[1][PATH_MAX];
    bool loaded = false;

    if (strchr(name, '/') || disti_module_locate(name, path, 1) == 0)
        return false;
    pthread_mutex_lock(&module_lock);
    loaded = module_find(path[0]) != NULL;
    pthread_mutex_unlock(&module_lock);
    return loaded;
}

dist_status disti_module_load(const char *name, const struct disti_module **module_p, char *reason,
                              size_t reason_size)
{
    char(*paths)[PATH_MAX] = calloc(2, sizeof(*paths)); /* too large for a small stack */
    int found = !paths || strchr(name, '/') ? 0 : disti_module_locate(name, paths, 2);
    struct disti_module *module;
    dist_status status = DIST_OK;

    if (!found) {
        module_missing(name, reason, reason_size);
        free(paths);
        return DIST_ERR_NO_BACKEND;
    }
    pthread_mutex_lock(&module_lock);
    module = module_find(paths[0]);
    if (!module) {
        status = module_load(paths[0], &module, reason, reason_size);
        if (status == DIST_OK)
            disti_info("module %s loaded", paths[0]);
        if (found > 1)
            disti_info("module %s is ignored: %s comes first", paths[1], paths[0]);
    }
    pthread_mutex_unlock(&module_lock);
    free(paths);
    if (status == DIST_OK)
        *module_p = module;
    return status;
}
