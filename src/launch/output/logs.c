/* SPDX-License-Identifier: BSD-3-Clause */
/* Folders and files of a job. */
#include "launch/output/logs.h"

#include "base/log.h"
#include "base/settings/env.h"
#include "launch/options/words.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static dist_status logs_fail(const char *path)
{
    return disti_fail_errno(
        DIST_ERR_SYSTEM, "cannot make %.400s: give --log-dir a folder where you may write", path);
}

/* With all folders above it. */
static dist_status logs_make(const char *path)
{
    char part[DISTI_RUN_PATH + 64];

    snprintf(part, sizeof(part), "%s", path);
    for (char *at = part + 1; *at; at++) {
        if (*at != '/')
            continue;
        *at = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return logs_fail(part);
        *at = '/';
    }
    return mkdir(part, 0777) != 0 && errno != EEXIST ? logs_fail(part) : DIST_OK;
}

/* A job's name may be a path to some file system; here it is a name. */
static void logs_clean(char *name)
{
    for (; *name; name++)
        *name = *name == '/' ? '_' : *name;
}

static dist_status logs_temporary(char *base, size_t size)
{
    const char *folder = disti_env("TMPDIR");

    snprintf(base, size, "%s/distrun_XXXXXX", folder ? folder : "/tmp");
    if (!mkdtemp(base))
        return logs_fail(base);
    fprintf(stderr, "distrun: the output goes to %s\n", base);
    return DIST_OK;
}

dist_status disti_run_logs_open(const struct disti_run_options *options, const char *job,
                                struct disti_run_logs *logs_p)
{
    char base[DISTI_RUN_PATH / 2] = "", name[160];
    dist_status status = DIST_OK;

    logs_p->folder[0] = '\0';
    if (!options->log_dir && !options->redirects && !options->tee)
        return DIST_OK;
    if (options->log_dir && strlen(options->log_dir) >= sizeof(base))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "--log-dir: the path is too long");
    if (options->log_dir) {
        snprintf(base, sizeof(base), "%s", options->log_dir);
        status = logs_make(base);
    } else {
        status = logs_temporary(base, sizeof(base));
    }
    if (status != DIST_OK)
        return status;
    snprintf(name, sizeof(name), "%s_XXXXXX", job);
    logs_clean(name);
    snprintf(logs_p->folder, sizeof(logs_p->folder), "%s/%s", base, name);
    if (!mkdtemp(logs_p->folder))
        return logs_fail(logs_p->folder);
    /* mkdtemp's is for its user alone; log files are as open as others. */
    return chmod(logs_p->folder, 0755) == 0 ? DIST_OK : logs_fail(logs_p->folder);
}

void disti_run_logs_path(const struct disti_run_logs *logs, int restarts, int local_rank,
                         const char *name, char path[DISTI_RUN_PATH + 64])
{
    char worker[16];

    disti_run_rank_name(local_rank, worker);
    snprintf(path, DISTI_RUN_PATH + 64, "%s/attempt_%d/%s%s%s", logs->folder, restarts, worker,
             *name ? "/" : "", name);
}

/* The job's folder, open; -1: errno. Who has the folder above may have put another in its place. */
static int logs_folder(const struct disti_run_logs *logs)
{
    const int fd = open(logs->folder, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat status;

    if (fd < 0 || (fstat(fd, &status) == 0 && status.st_uid == geteuid()))
        return fd;
    close(fd);
    errno = EPERM;
    return -1;
}

static bool logs_made(int folder, const char *name)
{
    return mkdirat(folder, name, 0777) == 0 || errno == EEXIST;
}

dist_status disti_run_logs_add(const struct disti_run_logs *logs, int restarts, int local_rank)
{
    char path[DISTI_RUN_PATH + 64], attempt[32];
    int folder;
    bool made;

    if (!logs->folder[0])
        return DIST_OK;
    disti_run_logs_path(logs, restarts, local_rank, "", path);
    snprintf(attempt, sizeof(attempt), "attempt_%d", restarts);
    folder = logs_folder(logs);
    made = folder >= 0 && logs_made(folder, attempt) &&
           logs_made(folder, path + strlen(logs->folder) + 1);
    if (folder >= 0)
        close(folder);
    return made ? DIST_OK : logs_fail(path);
}

dist_status disti_run_logs_file(const struct disti_run_logs *logs, int restarts, int local_rank,
                                const char *name, int *fd_p)
{
    char path[DISTI_RUN_PATH + 64];
    int folder, fd = -1;

    disti_run_logs_path(logs, restarts, local_rank, name, path);
    folder = logs_folder(logs);
    if (folder >= 0) {
        fd = openat(folder, path + strlen(logs->folder) + 1,
                    O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
        close(folder);
    }
    if (fd < 0)
        return logs_fail(path);
    *fd_p = fd;
    return DIST_OK;
}
