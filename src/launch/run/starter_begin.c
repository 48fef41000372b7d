/* SPDX-License-Identifier: BSD-3-Clause */
/* What each host is to run, and the remote shells that lead there. */
#include "base/auth.h"
#include "base/descriptor.h"
#include "base/log.h"
#include "base/net.h"
#include "launch/run/round.h"
#include "launch/run/starter.h"
#include "launch/workers/environment.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BEGIN_OWN = 16 /* words besides the options and the program */ };

/* ---- the job ---- */

/* "me@node1" without the user's name. */
static const char *begin_machine(const char *name)
{
    const char *at = strrchr(name, '@');

    return at ? at + 1 : name;
}

static bool begin_is_one_machine(const struct disti_run_starter *starter)
{
    for (int h = 0; h < starter->count; h++) {
        if (!disti_hosts_is_loopback(begin_machine(starter->hosts[h].name)))
            return false;
    }
    return true;
}

/* Where the other hosts find the first one: by its name, or by this machine's own name. */
static void begin_master(struct disti_run_starter *starter)
{
    const char *name = begin_machine(starter->hosts[0].name);
    char own[DISTI_HOST_SIZE];

    disti_host_name(own);
    if (starter->options->master_addr)
        name = starter->options->master_addr;
    else if (disti_hosts_is_loopback(name) && !begin_is_one_machine(starter))
        name = own;
    snprintf(starter->master, sizeof(starter->master), "%s", name);
    disti_host_normalize(starter->master);
}

/* A port that is free here is most likely free there. */
static dist_status begin_job(struct disti_run_starter *starter)
{
    dist_status status = DIST_OK;

    begin_master(starter);
    starter->master_port = (int)starter->options->master_port;
    if (starter->master_port < 0)
        status = disti_run_free_port(&starter->master_port);
    if (status == DIST_OK && disti_hmac_exists())
        status = disti_random_id(starter->secret);
    return status;
}

/* ---- environment ---- */

/* They have become options; a remote shell that leads to this machine would hand them on. */
static void begin_forget_options(void)
{
    char name[256];

    for (int i = 0; environ[i];) {
        const size_t length = strcspn(environ[i], "=");

        snprintf(name, sizeof(name), "%.*s", (int)length, environ[i]);
        /* What has no '=' is no variable, and cannot be unset. */
        if (environ[i][length] && length < sizeof(name) &&
            (strncmp(name, "PET_", 4) == 0 || strcmp(name, "DIST_SECRET_FILE") == 0))
            unsetenv(name);
        else
            i++;
    }
}

/* What belongs to this host, or to this login, or what a shell that is bash will not have set. */
static bool begin_is_here(const char *entry)
{
    static const char *const names[] = {
        "_=",        "BASHOPTS=",   "DISPLAY=", "EUID=",   "HOME=",   "HOST=",
        "HOSTNAME=", "LOGNAME=",    "MAIL=",    "OLDPWD=", "PPID=",   "PWD=",
        "SHELL=",    "SHELLOPTS=",  "SHLVL=",   "TERM=",   "TMPDIR=", "UID=",
        "USER=",     "XAUTHORITY=", "DBUS_",    "SSH_",    "XDG_"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strncmp(entry, names[i], strlen(names[i])) == 0)
            return true;
    }
    return !strchr(entry, '=') || !disti_hosts_is_variable(entry);
}

/* All else goes along: there is no login on the other side that would set it. NULL: no memory. */
static const char **begin_environment(void)
{
    const char **environment;
    int count = 0, kept = 0;

    while (environ[count])
        count++;
    environment = calloc((size_t)count + 1, sizeof(*environment));
    for (int i = 0; environment && i < count; i++) {
        if (!begin_is_here(environ[i]))
            environment[kept++] = environ[i];
    }
    return environment;
}

/* ---- the command ---- */

struct begin_command {
    char **words; /* ends with NULL */
    int count;
    bool failed; /* no memory */
};

static void begin_add(struct begin_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void begin_add(struct begin_command *command, const char *format, ...)
{
    va_list arguments;
    char *word = NULL;

    va_start(arguments, format);
    if (command->failed || vasprintf(&word, format, arguments) < 0)
        command->failed = true;
    else
        command->words[command->count++] = word;
    va_end(arguments);
}

/* Which node of the job host h is; one that is alone needs not be told. */
static void begin_add_node(const struct disti_run_starter *starter, int h,
                           struct begin_command *command)
{
    const struct disti_run_options *options = starter->options;

    if (options->workers_text)
        begin_add(command, "--nproc-per-node=%s", options->workers_text);
    else
        begin_add(command, "--nproc-per-node=%d", options->hosts.entries[h].slots);
    if (starter->count == 1)
        return;
    if (starter->elastic)
        begin_add(command, "--nnodes=%d:%d", options->least_hosts, starter->count);
    else
        begin_add(command, "--nnodes=%d", starter->count);
    begin_add(command, "--node-rank=%d", h);
    begin_add(command, "--master-addr=%s", starter->master);
    begin_add(command, "--master-port=%d", starter->master_port);
    if (starter->secret[0])
        begin_add(command, "--secret-file=/dev/fd/%d", DISTI_HOSTS_SECRET);
}

static int begin_length(char *const *words)
{
    int count = 0;

    while (words[count])
        count++;
    return count;
}

/* This distrun, by the path it has here, as the agent of host h. */
static dist_status begin_command(const struct disti_run_starter *starter, int h, char *const *same,
                                 struct begin_command *command)
{
    char *const *program = starter->options->command;
    char self[PATH_MAX];
    const ssize_t bytes = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (bytes < 0)
        return disti_fail_errno(DIST_ERR_SYSTEM, "cannot tell where distrun is (/proc/self/exe)");
    self[bytes] = '\0';
    command->words = calloc((size_t)begin_length(same) + (size_t)begin_length(program) + BEGIN_OWN,
                            sizeof(*command->words));
    command->failed = !command->words;
    begin_add(command, "%s", self);
    begin_add(command, "--leashed");
    for (int i = 0; same[i]; i++)
        begin_add(command, "%s", same[i]);
    begin_add_node(starter, h, command);
    begin_add(command, "--");
    for (int i = 0; program[i]; i++)
        begin_add(command, "%s", program[i]);
    return command->failed ? disti_fail(DIST_ERR_NO_MEMORY, "no memory to start agents: free some")
                           : DIST_OK;
}

/* What the shell on host h is to read first. */
static dist_status begin_script(struct disti_run_starter *starter, int h, char *const *same,
                                const char *const *environment)
{
    struct disti_run_host *host = &starter->hosts[h];
    struct begin_command command = {0};
    char folder[PATH_MAX];
    dist_status status = begin_command(starter, h, same, &command);

    if (status == DIST_OK)
        status = disti_hosts_script(
            &(struct disti_hosts_start){
                .argv = (const char *const *)command.words,
                .environment = environment,
                .folder = getcwd(folder, sizeof(folder)),
                .secret = starter->count > 1 && starter->secret[0] ? starter->secret : NULL},
            &host->script, &host->bytes);
    disti_run_environment_free(command.words);
    return status;
}

static dist_status begin_scripts(struct disti_run_starter *starter)
{
    char **same = disti_run_options_words(starter->options);
    const char **environment = begin_environment();
    dist_status status = DIST_OK;

    if (!same || !environment)
        status = disti_fail(DIST_ERR_NO_MEMORY, "no memory to start agents: free some");
    for (int h = 0; h < starter->count && status == DIST_OK; h++)
        status = begin_script(starter, h, same, environment);
    free(environment);
    disti_run_environment_free(same);
    return status;
}

/* ---- the remote shells ---- */

/* A pipe whose near end is ours: end 0 of what a shell prints, end 1 of what it reads. */
static bool begin_pipe(int near_end, int fds[2])
{
    return pipe2(fds, O_CLOEXEC) == 0 &&
           (near_end == 0 || fcntl(fds[near_end], F_SETFL, O_NONBLOCK) == 0);
}

static void begin_close(int fd)
{
    if (fd >= 0)
        close(fd);
}

static dist_status begin_no_pipe(const struct disti_run_host *host)
{
    return disti_fail_call("pipe2", "cannot start an agent on %s", host->name);
}

/* On failure the near end of its standard input is closed with the process. */
dist_status disti_run_starter_again(struct disti_run_starter *starter, int h)
{
    struct disti_run_host *host = &starter->hosts[h];
    const bool here = disti_run_host_is_here(starter->options, h);
    int in[2] = {-1, -1};
    dist_status status;

    begin_close(host->to_fd);
    if (!begin_pipe(1, in))
        status = begin_no_pipe(host);
    else
        status = disti_hosts_start(starter->options->remote_shell, here ? NULL : host->name, in[0],
                                   host->streams[0], host->streams[1], &host->pid);
    begin_close(in[0]);
    host->to_fd = in[1];
    host->sent = 0;
    host->fed = false;
    host->ended = status != DIST_OK;
    return status;
}

/* On failure the near ends are closed with the process. */
static dist_status begin_shell(struct disti_run_starter *starter, int h,
                               struct disti_run_source sources[2])
{
    struct disti_run_host *host = &starter->hosts[h];
    dist_status status = DIST_OK;

    for (int s = 0; s < 2 && status == DIST_OK; s++) {
        int ends[2] = {-1, -1};

        if (!begin_pipe(0, ends))
            status = begin_no_pipe(host);
        host->streams[s] = ends[1];
        sources[s] = (struct disti_run_source){.fd = ends[0], .log_fd = -1, .shown = true};
    }
    if (status == DIST_OK)
        status = disti_run_starter_again(starter, h);
    for (int s = 0; s < 2 && (!starter->elastic || status != DIST_OK); s++) {
        begin_close(host->streams[s]);
        host->streams[s] = -1;
    }
    return status;
}

/* Those that were started need readers even if others could not be. */
static dist_status begin_outputs(struct disti_run_starter *starter,
                                 struct disti_run_source *const sources[2], int count)
{
    dist_status status = DIST_OK;

    for (int s = 0; s < 2; s++) {
        const dist_status one =
            disti_run_output_start(s == 0 ? STDOUT_FILENO : STDERR_FILENO, sources[s], count,
                                   starter->done_fd, &starter->outputs[s]);

        if (one == DIST_OK)
            starter->outputs_left++;
        else
            status = one;
    }
    return status;
}

static dist_status begin_shells(struct disti_run_starter *starter)
{
    struct disti_run_source *sources[2], pair[2];
    dist_status status = DIST_OK, outputs;
    int count = 0;

    for (int s = 0; s < 2; s++)
        sources[s] = calloc((size_t)starter->count, sizeof(*sources[s]));
    if (!sources[0] || !sources[1])
        status =
            disti_fail(DIST_ERR_NO_MEMORY, "no memory for %d hosts: free some", starter->count);
    while (status == DIST_OK && count < starter->count) {
        status = begin_shell(starter, count, pair);
        for (int s = 0; s < 2 && status == DIST_OK; s++)
            sources[s][count] = pair[s];
        count += status == DIST_OK;
    }
    starter->alive = count;
    outputs = count > 0 ? begin_outputs(starter, sources, count) : DIST_OK;
    free(sources[0]);
    free(sources[1]);
    return status == DIST_OK ? outputs : status;
}

dist_status disti_run_starter_begin(struct disti_run_starter *starter)
{
    dist_status status = begin_job(starter);

    begin_forget_options();
    if (status == DIST_OK)
        status = begin_scripts(starter);
    return status == DIST_OK ? begin_shells(starter) : status;
}
