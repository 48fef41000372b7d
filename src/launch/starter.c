/* SPDX-License-Identifier: BSD-3-Clause */
/* The starter: starts an agent on each host, tells them of signals, and ends when their remote
 * shells have. */
#include "base/auth.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/log.h"
#include "base/net.h"
#include "launch/agent.h"
#include "launch/words.h"
#include "launch/workers.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* What each host is to run, and the remote shells that lead there. */

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

/* starter_begin.c: starts the remote shell of a host whose last one has ended. */
/* On failure the near end of its standard input is closed with the process. */
static dist_status run_starter_again(struct disti_run_starter *starter, int h)
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
        status = run_starter_again(starter, h);
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

/*
 * starter_begin.c: starts a remote shell for each host, with the script that it is to get, and
 * readers of what they print. On failure some may run.
 */
static dist_status run_starter_begin(struct disti_run_starter *starter)
{
    dist_status status = begin_job(starter);

    begin_forget_options();
    if (status == DIST_OK)
        status = begin_scripts(starter);
    return status == DIST_OK ? begin_shells(starter) : status;
}

/* What is said of the hosts at the end, and the exit code. */

/* Where all agents ended alike one of them has said why. */
static bool end_is_alike(const struct disti_run_starter *starter)
{
    for (int h = 0; h < starter->count; h++) {
        if (starter->hosts[h].code != starter->hosts[starter->first].code)
            return false;
    }
    return true;
}

/* Did no agent run there, as far as a remote shell can tell? */
static bool end_is_shells(const struct disti_run_host *host)
{
    return host->code == 255 || host->code == 126 || host->code == 127;
}

/* What is said of a host where it was most likely no worker that failed, or where nobody else may
 * have said anything; else "". */
static const char *end_reason(const struct disti_run_starter *starter,
                              const struct disti_run_host *host)
{
    if (starter->elastic && (host->killed || !host->begun || end_is_shells(host)))
        return ": the nodes meet there, so the job ends";
    if (!host->begun)
        return host->code == 0 ? ": its remote shell must pass on its standard input"
                               : ": its remote shell has said why";
    if (host->killed)
        return ": its remote shell was killed";
    if (host->code == 255)
        return ": its remote shell has said why, or a worker ended so";
    if (end_is_shells(host))
        return ": the folder and distrun must be there, at the paths that they have here";
    if (starter->count == 1 && host->code > 128)
        return ": it is lost, or a worker was ended by a signal";
    return "";
}

/* An agent that was lost, or that could not be started. Returns the exit code. */
static int end_first(const struct disti_run_starter *starter)
{
    const struct disti_run_host *first = &starter->hosts[starter->first];
    const char *reason = end_reason(starter, first);
    const bool is_alike = starter->elastic || starter->goes_on || end_is_alike(starter);

    if (!is_alike || *reason)
        fprintf(stderr, "distrun: host %s ended first, with exit code %d%s\n", first->name,
                first->code, reason);
    /* Where agents ran, a code that all have is a worker's. */
    return !first->begun || (!is_alike && end_is_shells(first)) ? DISTI_RUN_STARTER_FAILED
                                                                : first->code;
}

/* starter_end.c: says what agents could not, once all have ended. Returns distrun's exit code. */
static int run_starter_conclude(const struct disti_run_starter *starter)
{
    char name[16];

    if (starter->stop_signal) {
        disti_run_signal_name(starter->stop_signal, name);
        fprintf(stderr, "distrun: stopped by %s\n", name);
        return 128 + starter->stop_signal;
    }
    if (starter->first < 0)
        return 0;
    return end_first(starter);
}

/* The starter's life: it tells the agents of signals, and ends when their remote shells have. */

enum {
    STARTER_AGREE_MS =
        3000, /* from the first failure on: the agents tell each other by themselves */
    STARTER_AGAIN_MS = 500,  /* between two times that a signal is said */
    STARTER_GRACE_MS = 5000, /* for agents, besides the time that they give their workers */
    STARTER_HURRY_MS = 2000, /* for agents that are not to wait for their workers */
    STARTER_LOST_MS = 3000,  /* from a host's end until it is tried again, */
    STARTER_LONG_MS = 60000, /* and at most, if that fails again and again */
    STARTER_TWICE_MS = 200   /* a second signal counts after this: the same may come by two ways */
};

/* ---- to the agents ---- */

/* Those that have gone do not hear it; their shells' ends will be seen. */
static void starter_say(struct disti_run_starter *starter, unsigned char word)
{
    for (int h = 0; h < starter->count; h++) {
        if (starter->hosts[h].to_fd >= 0 && starter->hosts[h].fed)
            (void)!write(starter->hosts[h].to_fd, &word, 1);
    }
}

static void starter_end(struct disti_run_starter *starter, int word, int64_t time_ms)
{
    starter->word = (unsigned char)word;
    starter->tell_at = disti_now_ns();
    starter->kill_at = disti_deadline_ms(time_ms);
}

static int64_t starter_time_ms(const struct disti_run_starter *starter)
{
    return (int64_t)(starter->options->shutdown_timeout * 1e3) + STARTER_GRACE_MS;
}

/* As much of its script as the pipe takes. */
static void starter_feed(struct disti_run_host *host)
{
    const ssize_t written = write(host->to_fd, host->script + host->sent, host->bytes - host->sent);

    if (written < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    host->sent += written > 0 ? (size_t)written : 0;
    host->fed = written < 0 || host->sent == host->bytes;
}

/* It has the job's secret in it. */
static void starter_forget(struct disti_run_host *host)
{
    if (host->script)
        explicit_bzero(host->script, host->bytes);
    free(host->script);
}

/* ---- signals ---- */

static void starter_signal(struct disti_run_starter *starter, const struct disti_run_signal *news)
{
    const int word = news->number + (news->from_terminal ? DISTI_RUN_TERMINAL : 0);

    if (sigismember(&starter->options->signals, news->number) != 1) {
        starter_say(starter, (unsigned char)word);
    } else if (!starter->stop_signal) {
        starter->stop_signal = news->number;
        starter->stopped_at = disti_now_ns();
        starter_end(starter, word, starter_time_ms(starter));
    } else if (disti_now_ns() - starter->stopped_at > STARTER_TWICE_MS * INT64_C(1000000)) {
        starter->hurry = true;
        starter_end(starter, DISTI_RUN_HURRY, STARTER_HURRY_MS);
    }
}

/* The guard is gone: nobody waits for this job any more. The agents see that we let go. */
static void starter_let_go(struct disti_run_starter *starter)
{
    starter->stop_signal = SIGKILL;
    starter->hurry = true;
    close(starter->signals_fd);
    starter->signals_fd = -1;
    for (int h = 0; h < starter->count; h++) {
        if (starter->hosts[h].to_fd >= 0)
            close(starter->hosts[h].to_fd);
        starter->hosts[h].to_fd = -1;
    }
    starter->kill_at = disti_deadline_ms(STARTER_HURRY_MS);
}

static void starter_hear_guard(struct disti_run_starter *starter)
{
    struct disti_run_signal news;
    ssize_t got;

    while ((got = recv(starter->signals_fd, &news, sizeof(news), MSG_DONTWAIT)) == sizeof(news))
        starter_signal(starter, &news);
    if (got == 0)
        starter_let_go(starter);
}

/* ---- the shells' ends ---- */

static struct disti_run_host *starter_find(const struct disti_run_starter *starter, pid_t pid)
{
    for (int h = 0; h < starter->count; h++) {
        if (starter->hosts[h].pid == pid && !starter->hosts[h].ended)
            return &starter->hosts[h];
    }
    return NULL;
}

/* A pipe keeps what nobody has read of it. */
static bool starter_was_heard(const struct disti_run_host *host)
{
    int unread = 0;

    return host->to_fd < 0 || ioctl(host->to_fd, FIONREAD, &unread) != 0 ||
           (size_t)unread < host->sent;
}

/* The end of all, as this host says: who does not follow by itself is told. */
static void starter_end_by(struct disti_run_starter *starter, const struct disti_run_host *host)
{
    if (host->code != 0 || !host->begun)
        starter->first = (int)(host - starter->hosts);
    if (starter->word)
        return;
    starter_end(starter, SIGTERM, STARTER_AGREE_MS + starter_time_ms(starter));
    starter->tell_at = disti_deadline_ms(STARTER_AGREE_MS);
}

/* Where the nodes of an elastic job do not meet. Unless the job has ended too, which is seen soon,
 * the host is tried again, at longer and longer intervals while it is not to be had. */
static void starter_lost(struct disti_run_host *host)
{
    host->again_ms = host->begun || !host->again_ms ? STARTER_LOST_MS : 2 * host->again_ms;
    if (host->again_ms > STARTER_LONG_MS)
        host->again_ms = STARTER_LONG_MS;
    host->again_at = disti_deadline_ms(host->again_ms);
}

/* True if the job goes on without the host, with --on-failure continue: its agent had begun, and
 * was lost. An agent that could not begin exits with a code below 128. */
static bool starter_goes_on_without(const struct disti_run_starter *starter,
                                    const struct disti_run_host *host)
{
    return starter->goes_on && host != starter->hosts && host->begun && host->code > 128;
}

/* All agents of a job end together: they know of a failure as soon as we do, or it is their own. */
static void starter_ended(struct disti_run_starter *starter, struct disti_run_host *host, int how)
{
    bool failed;

    host->ended = true;
    host->killed = WIFSIGNALED(how);
    host->code = WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
    host->begun = starter_was_heard(host);
    starter->alive--;
    failed = host->code != 0 || !host->begun;
    if (starter->elastic ? host == starter->hosts
                         : starter->first < 0 && failed && !starter_goes_on_without(starter, host))
        starter_end_by(starter, host);
    else if (starter->elastic && failed)
        starter_lost(host);
}

static void starter_reap(struct disti_run_starter *starter)
{
    pid_t pid;
    int how;

    while ((pid = waitpid(-1, &how, WNOHANG)) > 0) {
        struct disti_run_host *host = starter_find(starter, pid);

        if (host)
            starter_ended(starter, host, how);
    }
}

/* ---- waiting ---- */

/* Are hosts tried again? Not when the job is over. */
static bool starter_goes_on(const struct disti_run_starter *starter)
{
    return starter->elastic && !starter->word && !starter->stop_signal;
}

static void starter_try_again(struct disti_run_starter *starter, struct disti_run_host *host)
{
    fprintf(stderr, "distrun: host %s ended with exit code %d: trying it again\n", host->name,
            host->code);
    host->again_at = INT64_MAX;
    if (run_starter_again(starter, (int)(host - starter->hosts)) == DIST_OK) {
        starter->alive++;
        return;
    }
    fprintf(stderr, "distrun: %s\n", dist_last_error());
    starter_lost(host);
}

static void starter_times(struct disti_run_starter *starter)
{
    for (int h = 0; h < starter->count && starter_goes_on(starter); h++) {
        if (disti_expired(starter->hosts[h].again_at))
            starter_try_again(starter, &starter->hosts[h]);
    }
    if (disti_expired(starter->tell_at)) {
        starter_say(starter, starter->word);
        starter->tell_at = disti_deadline_ms(STARTER_AGAIN_MS);
    }
    if (disti_expired(starter->kill_at)) {
        disti_run_family_signal(SIGKILL);
        starter->hurry = true;
        starter->kill_at = disti_deadline_ms(STARTER_AGAIN_MS);
    }
}

static int starter_wait_ms(const struct disti_run_starter *starter)
{
    int64_t next = starter->tell_at < starter->kill_at ? starter->tell_at : starter->kill_at;

    for (int h = 0; h < starter->count && starter_goes_on(starter); h++) {
        if (starter->hosts[h].again_at < next)
            next = starter->hosts[h].again_at;
    }
    return next == INT64_MAX ? -1 : disti_left_ms(next);
}

/* Waits for anything; `fds` has room for three and one for each host. */
static void starter_wait(struct disti_run_starter *starter, struct pollfd *fds)
{
    struct signalfd_siginfo child;
    uint64_t done;

    fds[0] = (struct pollfd){.fd = starter->child_fd, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = starter->signals_fd, .events = POLLIN};
    fds[2] = (struct pollfd){.fd = starter->done_fd, .events = POLLIN};
    for (int h = 0; h < starter->count; h++)
        fds[3 + h] = (struct pollfd){.fd = starter->hosts[h].fed ? -1 : starter->hosts[h].to_fd,
                                     .events = POLLOUT};
    if (poll(fds, 3 + (nfds_t)starter->count, starter_wait_ms(starter)) <= 0)
        return;
    for (int h = 0; h < starter->count; h++) {
        if (fds[3 + h].revents && starter->hosts[h].to_fd >= 0)
            starter_feed(&starter->hosts[h]);
    }
    if (fds[0].revents)
        (void)!read(starter->child_fd, &child, sizeof(child));
    if (fds[1].revents)
        starter_hear_guard(starter);
    if (fds[2].revents && read(starter->done_fd, &done, sizeof(done)) == sizeof(done))
        starter->outputs_left -= (int)done;
}

/* No shell comes any more that could write there. */
static void starter_close_streams(struct disti_run_starter *starter)
{
    for (int h = 0; h < starter->count; h++) {
        for (int s = 0; s < 2; s++) {
            if (starter->hosts[h].streams[s] >= 0)
                close(starter->hosts[h].streams[s]);
            starter->hosts[h].streams[s] = -1;
        }
    }
}

/* Until all shells have ended, and what they printed is out. */
static void starter_watch(struct disti_run_starter *starter)
{
    struct pollfd *fds = calloc((size_t)starter->count + 3, sizeof(*fds));

    for (starter_reap(starter); fds; starter_reap(starter)) {
        if (starter->alive == 0)
            starter_close_streams(starter);
        if (starter->alive == 0 && (starter->outputs_left == 0 || starter->hurry))
            break;
        starter_times(starter);
        starter_wait(starter, fds);
    }
    free(fds);
}

/* ---- beginning and end ---- */

static bool starter_open(struct disti_run_starter *starter)
{
    struct rlimit found;
    sigset_t child;

    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    disti_run_raise_limit(&found);
    starter->hosts = calloc((size_t)starter->count, sizeof(*starter->hosts));
    starter->child_fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    starter->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    for (int h = 0; starter->hosts && h < starter->count; h++)
        starter->hosts[h] = (struct disti_run_host){.name = starter->options->hosts.entries[h].name,
                                                    .to_fd = -1,
                                                    .streams = {-1, -1},
                                                    .again_at = INT64_MAX};
    if (starter->hosts && starter->child_fd >= 0 && starter->done_fd >= 0)
        return true;
    disti_fail_call("signalfd or eventfd", "cannot watch over %d hosts", starter->count);
    fprintf(stderr, "distrun: %s\n", dist_last_error());
    return false;
}

int disti_run_starter(int signals_fd, const sigset_t *mask, void *arg)
{
    const struct disti_run_options *options = arg;
    struct disti_run_starter starter = {.options = options,
                                        .signals_fd = signals_fd,
                                        .count = options->hosts.count,
                                        .elastic = options->least_hosts > 0,
                                        .goes_on = options->goes_on,
                                        .first = -1,
                                        .tell_at = INT64_MAX,
                                        .kill_at = INT64_MAX};
    int code = DISTI_RUN_STARTER_FAILED;

    (void)mask;
    signal(SIGPIPE, SIG_IGN); /* a remote shell may be gone */
    if (!starter_open(&starter))
        return code;
    if (run_starter_begin(&starter) == DIST_OK) {
        starter_watch(&starter);
        code = run_starter_conclude(&starter);
    } else {
        fprintf(stderr, "distrun: %s\n", dist_last_error());
        starter_let_go(&starter);
        starter_watch(&starter);
    }
    /* Threads that wait for a reader go with the process, and what they hold. */
    if (starter.hurry)
        _exit(code);
    for (int s = 0; s < 2; s++) {
        if (!disti_run_output_end(starter.outputs[s]) && code == 0)
            code = DISTI_RUN_STARTER_FAILED;
    }
    for (int h = 0; h < starter.count; h++)
        starter_forget(&starter.hosts[h]);
    free(starter.hosts);
    return code;
}
