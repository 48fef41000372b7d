/* SPDX-License-Identifier: BSD-3-Clause */
/* Drivers of other libraries: where they are, and whether they can be used here. */
#include "peer.h"

#include "bench/measure/measure.h"
#include "job.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PEER_FOLDERS 3
#define PEER_PROBE_NS 30e9 /* an MPI starts for it */

/* ---- folders ---- */

/* bench/peers beside this program; libtool puts it into .libs. */
static int peer_beside(char *folder, size_t size)
{
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *slash;

    if (length <= 0)
        return -1;
    self[length] = '\0';
    slash = strrchr(self, '/');
    *slash = '\0';
    slash = strrchr(self, '/');
    if (slash && strcmp(slash, "/.libs") == 0)
        *slash = '\0';
    return snprintf(folder, size, "%s/bench/peers", self) < (int)size ? 0 : -1;
}

/* The i-th folder; -1: that one does not exist. */
static int peer_folder(int i, char *folder, size_t size)
{
    const char *own = secure_getenv("DIST_BENCH_PEERS");

    if (i == 0)
        return own && *own && snprintf(folder, size, "%s", own) < (int)size ? 0 : -1;
    if (i == 1)
        return peer_beside(folder, size);
    return snprintf(folder, size, "%s/dist/peers", BENCH_LIBEXECDIR) < (int)size ? 0 : -1;
}

static bool peer_is(const char *path)
{
    struct stat what;

    return stat(path, &what) == 0 && S_ISREG(what.st_mode) && access(path, X_OK) == 0;
}

char *peer_find(const char *name)
{
    char folder[4096], *path = NULL;

    for (int i = 0; !strchr(name, '/') && i < PEER_FOLDERS; i++) {
        if (peer_folder(i, folder, sizeof(folder)) != 0 ||
            asprintf(&path, "%s/%s", folder, name) < 0)
            continue;
        if (peer_is(path))
            return path;
        free(path);
    }
    return NULL;
}

/* Names with a dot are what the build and people leave there; two programs make drivers. */
static int peer_chosen(const struct dirent *entry)
{
    return !strchr(entry->d_name, '.') && strcmp(entry->d_name, "setup") != 0 &&
           strcmp(entry->d_name, "write-peer") != 0;
}

/* Those of an earlier folder come first, and hide others of the same name. */
int peer_each(int (*each)(void *arg, const char *name), void *arg)
{
    char folder[4096], path[8192];
    int ended = 0;

    for (int i = 0; i < PEER_FOLDERS; i++) {
        struct dirent **names = NULL;
        int count = -1;

        if (peer_folder(i, folder, sizeof(folder)) == 0)
            count = scandir(folder, &names, peer_chosen, alphasort);
        for (int n = 0; n < count; n++) {
            char *found = peer_find(names[n]->d_name);

            snprintf(path, sizeof(path), "%s/%s", folder, names[n]->d_name);
            if (!ended && found && strcmp(found, path) == 0)
                ended = each(arg, names[n]->d_name);
            free(found);
            free(names[n]);
        }
        free(names);
    }
    return ended;
}

/* ---- probing ---- */

static pid_t peer_start(const char *path, int out)
{
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    setpgid(0, 0);
    dup2(open("/dev/null", O_RDONLY), 0);
    dup2(out, 1);
    dup2(out, 2);
    job_oversubscribe();
    execl(path, path, "--probe", (char *)NULL);
    _exit(127);
}

/* Its exit code; -1: a signal, or it did not end. */
static int peer_wait(pid_t pid)
{
    double until = measure_now() + PEER_PROBE_NS;
    int how = -1;

    while (waitpid(pid, &how, WNOHANG) == 0) {
        if (measure_now() > until) {
            kill(-pid, SIGKILL);
            waitpid(pid, &how, 0);
            return -1;
        }
        poll(NULL, 0, 10);
    }
    return WIFEXITED(how) ? WEXITSTATUS(how) : -1;
}

bool peer_probe(const char *path, char *text, int size)
{
    FILE *out = tmpfile();
    pid_t pid;
    int code = -1;

    snprintf(text, (size_t)size, "it could not be probed");
    if (!out)
        return false;
    fflush(NULL);
    pid = peer_start(path, fileno(out));
    if (pid > 0) {
        setpgid(pid, pid);
        code = peer_wait(pid);
    }
    rewind(out);
    if (fgets(text, size, out))
        text[strcspn(text, "\n")] = '\0';
    else if (code != 0)
        snprintf(text, (size_t)size, "its probe ended with code %d and said nothing", code);
    fclose(out);
    return code == 0;
}
