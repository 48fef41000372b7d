/* SPDX-License-Identifier: BSD-3-Clause */
/* Costs that were measured before: a file for each machine and way to use it. */
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/settings/config.h"
#include "engine/measure/tune.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* No tuning file is longer. */
#define TUNE_TEXT 65536
/* Costs that were measured in another way are no use: the number of this way. */
#define TUNE_WAY 2

/* The CPU's name; nothing that a tuning file would take for the end of the line. */
static void tune_cpu_model(char *model, size_t size)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[256];

    snprintf(model, size, "CPU");
    while (file && fgets(line, sizeof(line), file)) {
        const char *value = strchr(line, ':');

        if (!value || strncmp(line, "model name", 10) != 0)
            continue;
        snprintf(model, size, "%s", value + 1 + strspn(value + 1, " \t"));
        break;
    }
    if (file)
        fclose(file);
    for (char *c = model; *c; c++) {
        if (*c == '#' || *c == '\n' || *c == '\r')
            *c = *c == '#' ? '-' : '\0';
    }
}

void disti_tune_key(int nodes, int local_ranks, const char *transports, char key[TUNE_KEY])
{
    const char *cma = disti_env("DIST_SHM_CMA"), *sockets = disti_env("DIST_TCP_SOCKETS");
    const char *interfaces = disti_env("DIST_SOCKET_IFNAME");
    char model[96];

    tune_cpu_model(model, sizeof(model));
    snprintf(key, TUNE_KEY,
             "libdist %s-%d, %s, %ld CPUs, %d nodes, %d ranks on this one, %.60s%s%s%.8s%s%.40s",
             dist_version(), TUNE_WAY, model, sysconf(_SC_NPROCESSORS_ONLN), nodes, local_ranks,
             transports, cma && strcmp(cma, "0") == 0 ? ", no CMA" : "",
             sockets ? ", sockets " : "", sockets ? sockets : "", interfaces ? ", interfaces " : "",
             interfaces ? interfaces : "");
}

/* The folder of caches; what is no absolute path does not count. */
static bool tune_home(char *folder, size_t size)
{
    const char *cache = disti_env("XDG_CACHE_HOME"), *home = disti_env("HOME");

    if (cache && cache[0] == '/')
        return snprintf(folder, size, "%s", cache) < (int)size;
    return home && home[0] == '/' && snprintf(folder, size, "%s/.cache", home) < (int)size;
}

bool disti_tune_path(const char *key, char path[TUNE_PATH])
{
    char folder[TUNE_PATH - 64];

    return tune_home(folder, sizeof(folder)) &&
           snprintf(path, TUNE_PATH, "%s/libdist/tuning-%016llx", folder,
                    (unsigned long long)disti_hash_text(DISTI_HASH_START, key)) < TUNE_PATH;
}

/* The whole file, terminated. Returns its length; below 0: errno says why not. */
static ssize_t tune_load(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    size_t length = 0;
    ssize_t got = -1;
    struct stat info;

    if (fd < 0)
        return -1;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        errno = EINVAL;
        goto out;
    }
    while ((got = read(fd, text + length, size - 1 - length)) > 0)
        length += (size_t)got;
    text[length] = '\0';
    if (got == 0 && length == size - 1) {
        errno = EFBIG;
        got = -1;
    }
out:
    close(fd);
    return got < 0 ? -1 : (ssize_t)length;
}

dist_status disti_tune_read(const char *path, const char *key, struct disti_tuning *tuning_p,
                            char *why, size_t why_size)
{
    char *text = malloc(TUNE_TEXT);
    dist_status status = DIST_ERR_INVALID_ARGUMENT;
    ssize_t length = text ? tune_load(path, text, TUNE_TEXT) : -1;

    why[0] = '\0';
    if (length < 0)
        snprintf(why, why_size, "%s: %s", path, strerror(text ? errno : ENOMEM));
    else if (strlen(text) != (size_t)length)
        snprintf(why, why_size, "%s: it is not a text file", path);
    else
        status = disti_tuning_parse(text, path, key, tuning_p, why, why_size);
    free(text);
    return status;
}

/* All of it, or none. */
static bool tune_save(const char *path, const char *text, size_t length)
{
    char temporary[TUNE_PATH + 8];
    bool saved;
    int fd;

    snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path);
    fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        return false;
    saved = disti_file_write(fd, text, length) == (ssize_t)length;
    saved = close(fd) == 0 && saved;
    saved = saved && rename(temporary, path) == 0;
    if (!saved)
        unlink(temporary);
    return saved;
}

static bool tune_write_text(const char *key, const char *text, size_t length)
{
    char path[TUNE_PATH], *slash;

    if (!disti_tune_path(key, path)) {
        disti_info("tuning: costs are not cached: neither XDG_CACHE_HOME nor HOME is set");
        return false;
    }
    /* The last two folders may be missing. */
    slash = strrchr(path, '/');
    *slash = '\0';
    if (mkdir(path, 0700) != 0 && errno == ENOENT) {
        char *above = strrchr(path, '/');

        *above = '\0';
        mkdir(path, 0700);
        *above = '/';
        mkdir(path, 0700);
    }
    *slash = '/';
    if (!tune_save(path, text, length)) {
        disti_info("tuning: cannot write %s: %s", path, strerror(errno));
        return false;
    }
    disti_info("tuning: costs were written to %s", path);
    return true;
}

bool disti_tune_write(const struct disti_tuning *tuning, const char *key)
{
    char *text = malloc(DISTI_TUNING_TEXT); /* too large for a small stack */
    size_t length = text ? disti_tuning_print(tuning, key, text, DISTI_TUNING_TEXT) : 0;
    bool written = length && length < DISTI_TUNING_TEXT && tune_write_text(key, text, length);

    free(text);
    return written;
}

dist_status disti_tune_find(const char *key, struct disti_tuning *tuning_p, int32_t *effort_p)
{
    const char *said = disti_env("DIST_TUNING");
    char path[TUNE_PATH], why[TUNE_PATH + 256];
    dist_status status;

    disti_tuning_usual(tuning_p);
    *effort_p = TUNE_NOTHING;
    if (said && strcmp(said, "off") == 0) {
        tuning_p->predict = 0;
        return DIST_OK;
    }
    if (said && strcmp(said, "measure") == 0) {
        *effort_p = TUNE_CARE;
        return DIST_OK;
    }
    if (said) {
        status = disti_tune_read(said, NULL, tuning_p, why, sizeof(why));
        return status == DIST_OK
                   ? DIST_OK
                   : disti_fail(status,
                                "DIST_TUNING is neither off nor measure nor a tuning file: %s",
                                why);
    }
    *effort_p = TUNE_HASTE;
    if (!disti_tune_path(key, path) || access(path, F_OK) != 0)
        return DIST_OK;
    if (disti_tune_read(path, key, tuning_p, why, sizeof(why)) == DIST_OK)
        *effort_p = TUNE_NOTHING;
    else
        disti_warn("tuning: ignoring the cache and measuring again: %s", why);
    return DIST_OK;
}
