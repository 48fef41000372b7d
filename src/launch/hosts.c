/* SPDX-License-Identifier: BSD-3-Clause */
/* Hosts: reads --hostfile and -H, places processes, and starts programs on hosts. */
#include "launch/hosts.h"
#include "base/log.h"
#include "base/net.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOSTS_MAX 16384
#define SLOTS_MAX 65536
#define BLANKS " \t\r\n"

/* Fails with `where`, the place of the error: "-H" or "FILE line 3". */
__attribute__((format(printf, 2, 3))) static dist_status hosts_fail(const char *where,
                                                                    const char *format, ...)
{
    char text[400];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s: %s", where, text);
}

static dist_status hosts_slots(const char *where, const char *text, int *slots_p)
{
    char *end;
    long slots;

    errno = 0;
    slots = strtol(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno || slots < 1 || slots > SLOTS_MAX)
        return hosts_fail(where, "\"%.64s\" is not a number of slots from 1 to %d", text,
                          SLOTS_MAX);
    *slots_p = (int)slots;
    return DIST_OK;
}

static dist_status hosts_add(const char *where, struct disti_hosts *hosts, const char *name,
                             int slots)
{
    /* Names of these characters have no special meaning to shells and option parsers. */
    static const char known[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_:@%";
    struct disti_hosts_entry *entry = NULL;

    if (!name[0] || name[0] == '-' || name[strspn(name, known)] || strlen(name) >= DISTI_HOSTS_NAME)
        return hosts_fail(where, "\"%.64s\" is not a host name", name);
    for (int i = 0; i < hosts->count; i++) {
        if (strcmp(hosts->entries[i].name, name) == 0)
            entry = &hosts->entries[i];
    }
    if (entry) {
        entry->slots = (entry->slots ? entry->slots : 1) + (slots ? slots : 1);
        return entry->slots <= SLOTS_MAX ? DIST_OK
                                         : hosts_fail(where, "%s has too many slots", name);
    }
    if (hosts->count == HOSTS_MAX)
        return hosts_fail(where, "more than %d hosts", HOSTS_MAX);
    entry = realloc(hosts->entries, ((size_t)hosts->count + 1) * sizeof(*entry));
    if (!entry)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for %d hosts: free some", hosts->count);
    hosts->entries = entry;
    entry += hosts->count++;
    snprintf(entry->name, sizeof(entry->name), "%s", name);
    entry->slots = slots;
    return DIST_OK;
}

/*
 * Splits "host:2" or "[fe80::1]:2"; several colons without brackets are an IPv6 address without
 * slots.
 */
static dist_status hosts_split(const char *where, char *word, char **name_p, int *slots_p)
{
    char *colon = strchr(word, ':');

    *name_p = word;
    *slots_p = 0;
    if (word[0] == '[') {
        char *end = strchr(word, ']');

        if (!end || (end[1] && end[1] != ':'))
            return hosts_fail(where, "\"%.64s\" does not have the form [ADDRESS]:SLOTS", word);
        colon = end[1] ? end + 1 : NULL;
        *end = 0;
        *name_p = word + 1;
    } else if (colon && strchr(colon + 1, ':')) {
        return DIST_OK;
    }
    if (!colon)
        return DIST_OK;
    *colon = 0;
    return hosts_slots(where, colon + 1, slots_p);
}

/* Parses a line: a host and its slots. An empty line is valid. */
static dist_status hosts_line(const char *where, char *line, struct disti_hosts *hosts)
{
    static const char *const maximum[] = {"max_slots=", "max-slots=", "maxslots="};
    char *comment = strchr(line, '#'), *rest = NULL, *word, *name;
    dist_status status;
    int slots, most, i;

    if (comment)
        *comment = 0;
    word = strtok_r(line, BLANKS, &rest);
    if (!word)
        return DIST_OK;
    status = hosts_split(where, word, &name, &slots);
    while (status == DIST_OK && (word = strtok_r(NULL, BLANKS, &rest))) {
        for (i = 0; i < 3 && strncmp(word, maximum[i], strlen(maximum[i])) != 0; i++)
            continue;
        if (i < 3)
            status = hosts_slots(where, word + strlen(maximum[i]), &most);
        else if (strncmp(word, "slots=", 6) != 0)
            status = hosts_fail(
                where, "unknown \"%.64s\" after a host (valid: slots=N, max_slots=N)", word);
        else if (slots)
            status = hosts_fail(where, "the number of slots is given twice");
        else
            status = hosts_slots(where, word + 6, &slots);
    }
    return status == DIST_OK ? hosts_add(where, hosts, name, slots) : status;
}

dist_status disti_hosts_parse(const char *text, struct disti_hosts *hosts)
{
    char *copy = strdup(text), *rest = copy, *word;
    dist_status status = DIST_OK;

    if (!copy)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for the hosts: free some");
    while (status == DIST_OK && (word = strsep(&rest, ","))) {
        char *name;
        int slots;

        status = hosts_split("-H", word, &name, &slots);
        if (status == DIST_OK)
            status = hosts_add("-H", hosts, name, slots);
    }
    free(copy);
    return status;
}

dist_status disti_hosts_read(const char *path, struct disti_hosts *hosts)
{
    char *line = NULL, where[PATH_MAX + 32];
    size_t capacity = 0;
    ssize_t length;
    int number = 0, before = hosts->count;
    FILE *file = fopen(path, "re");
    dist_status status = DIST_OK;

    if (!file)
        return disti_fail_errno(DIST_ERR_SYSTEM, "cannot read the hostfile %s", path);
    while (status == DIST_OK && (length = getline(&line, &capacity, file)) >= 0) {
        snprintf(where, sizeof(where), "%s line %d", path, ++number);
        if (strlen(line) != (size_t)length)
            status = hosts_fail(where, "the line contains a zero byte: not a text file");
        else
            status = hosts_line(where, line, hosts);
    }
    if (status == DIST_OK && ferror(file))
        status = disti_fail_errno(DIST_ERR_SYSTEM, "cannot read the hostfile %s", path);
    if (status == DIST_OK && hosts->count == before)
        status = hosts_fail(path, "the hostfile contains no host");
    free(line);
    fclose(file);
    return status;
}

void disti_hosts_free(struct disti_hosts *hosts)
{
    free(hosts->entries);
    *hosts = (struct disti_hosts){0};
}

dist_status disti_hosts_place(const struct disti_hosts *hosts, int processes, int *counts_p)
{
    int left = processes;

    for (int i = 0; i < hosts->count; i++) {
        int slots = hosts->entries[i].slots ? hosts->entries[i].slots : 1;

        counts_p[i] = left < slots ? left : slots;
        left -= counts_p[i];
    }
    if (left > 0)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "%d processes, but the %d host%s %d slots: name more hosts, or give "
                          "them more slots (HOST:SLOTS)",
                          processes, hosts->count, hosts->count == 1 ? " has" : "s have",
                          processes - left);
    return DIST_OK;
}

bool disti_hosts_is_own_address(const char *name)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    struct addrinfo *address;
    bool own;
    int fd;

    if (getaddrinfo(name, NULL, &hints, &address) != 0)
        return false;
    fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    own = fd >= 0 && bind(fd, address->ai_addr, address->ai_addrlen) == 0;
    if (fd >= 0)
        close(fd);
    freeaddrinfo(address);
    return own;
}

bool disti_hosts_is_loopback(const char *name)
{
    return strcmp(name, "localhost") == 0 || strcmp(name, "::1") == 0 ||
           (strncmp(name, "127.", 4) == 0 && disti_hosts_is_own_address(name));
}

bool disti_hosts_is_local(const char *name)
{
    char own[DISTI_HOST_SIZE];

    disti_host_name(own);
    if (strcmp(name, "localhost") == 0 || strcmp(name, own) == 0)
        return true;
    own[strcspn(own, ".")] = '\0';
    return strcmp(name, own) == 0 || disti_hosts_is_own_address(name);
}

/* Starts a program on another host: a remote shell reads a script from its standard input. */

#define WORDS_MAX 64
#define SECRET_END "__end_of_the_secret__"

/* Writes text in single quotes, in which the shell interprets no character. */
static void start_quote(FILE *script, const char *text)
{
    fputc('\'', script);
    for (const char *c = text; *c; c++)
        fputs(*c == '\'' ? "'\\''" : (char[]){*c, '\0'}, script);
    fputc('\'', script);
}

/*
 * Forks; the child executes the agent's command. Returns 0, or the errno of a failed step in the
 * parent or the child.
 */
static int start_fork(char *const *words, int in_fd, int out_fd, int err_fd, pid_t *pid_p)
{
    int ends[2], error = 0;
    pid_t parent = getpid(), pid;
    sigset_t none;
    ssize_t n;

    if (pipe2(ends, O_CLOEXEC))
        return errno;
    pid = fork();
    if (pid == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(126);
        for (int i = 1; i < NSIG; i++)
            signal(i, SIG_DFL);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        /*
         * Duplicates the descriptors above 2, so that dup2 to 0, 1 and 2 does not overwrite them.
         */
        out_fd = fcntl(out_fd, F_DUPFD_CLOEXEC, 3);
        err_fd = fcntl(err_fd, F_DUPFD_CLOEXEC, 3);
        in_fd = fcntl(in_fd, F_DUPFD_CLOEXEC, 3);
        ends[1] = fcntl(ends[1], F_DUPFD_CLOEXEC, 3);
        if (dup2(in_fd, STDIN_FILENO) == 0 && dup2(out_fd, STDOUT_FILENO) == 1 &&
            dup2(err_fd, STDERR_FILENO) == 2)
            execvp(words[0], words);
        error = errno;
        _exit(write(ends[1], &error, sizeof(error)) < 0 ? 126 : 127);
    }
    if (pid < 0)
        error = errno;
    close(ends[1]);
    while (pid > 0 && (n = read(ends[0], &error, sizeof(error))) < 0 && errno == EINTR)
        ;
    close(ends[0]);
    if (error && pid > 0)
        waitpid(pid, NULL, 0);
    else if (pid > 0)
        *pid_p = pid;
    return error;
}

bool disti_hosts_is_variable(const char *entry)
{
    static const char known[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
    const size_t length = strcspn(entry, "=");

    return length > 0 && (entry[0] < '0' || entry[0] > '9') && strspn(entry, known) >= length;
}

dist_status disti_hosts_script(const struct disti_hosts_start *start, char **script_p,
                               size_t *bytes_p)
{
    FILE *script;

    for (const char *const *e = start->environment; e && *e; e++) {
        if (!strchr(*e, '=') || !disti_hosts_is_variable(*e))
            return disti_fail(
                DIST_ERR_INVALID_ARGUMENT,
                "cannot pass \"%s\" to another host: it does not have the form NAME=value", *e);
    }
    if (!start->argv[0] || (start->secret && strstr(start->secret, SECRET_END)))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "no program to start on another host");
    *script_p = NULL;
    script = open_memstream(script_p, bytes_p);
    if (script) {
        /* The shell has read all of this before it executes the program. */
        if (start->directory) {
            fputs("cd ", script);
            start_quote(script, start->directory);
            fputs(" || exit 126\n", script);
        }
        for (const char *const *e = start->environment; e && *e; e++) {
            const char *equals = strchr(*e, '=');

            fprintf(script, "export %.*s=", (int)(equals - *e), *e);
            start_quote(script, equals + 1);
            fputc('\n', script);
        }
        fputs("exec", script);
        for (const char *const *a = start->argv; *a; a++) {
            fputc(' ', script);
            start_quote(script, *a);
        }
        if (start->secret)
            fprintf(script, " %d<<'%s'\n%s\n%s", DISTI_HOSTS_SECRET, SECRET_END, start->secret,
                    SECRET_END);
        fputc('\n', script);
    }
    if (script && fclose(script) == 0 && *script_p)
        return DIST_OK;
    free(*script_p);
    return disti_fail(DIST_ERR_NO_MEMORY, "no memory for the script of another host: free some");
}

dist_status disti_hosts_start(const char *agent, const char *host, int in_fd, int out_fd,
                              int err_fd, pid_t *pid_p)
{
    char *command = strdup(!host ? "" : agent ? agent : DISTI_HOSTS_AGENT), *rest = NULL;
    char *words[WORDS_MAX + 3] = {NULL};
    char *word = command ? strtok_r(command, " \t", &rest) : NULL;
    int count = 0, error = 0;
    dist_status status = DIST_OK;

    for (; word && count < WORDS_MAX; word = strtok_r(NULL, " \t", &rest))
        words[count++] = word;
    if (!command)
        error = ENOMEM;
    else if (word)
        error = E2BIG;
    else if (host && count == 0)
        error = ENOENT;
    if (host)
        words[count++] = (char *)host;
    words[count] = (char[]){"sh"};
    if (!error)
        error = start_fork(words, in_fd, out_fd, err_fd, pid_p);
    errno = error;
    if (error)
        status = disti_fail_errno(DIST_ERR_SYSTEM, "cannot start \"%s %s\"", words[0],
                                  count > 1 ? host : "");
    free(command);
    return status;
}
