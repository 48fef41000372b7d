/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The starter: starts an agent on each host, forwards signals to them, and ends when their remote
 * shells have ended.
 */
#include "base/auth.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/log.h"
#include "base/net.h"
#include "launch/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    STARTER_AGREE_MS = 3000, /* after the first failure: time for the agents to notify each other */
    STARTER_REPEAT_MS = 500, /* time between two repetitions of a command */
    STARTER_GRACE_MS = 5000, /* time for agents to end after their workers' shutdown timeout */
    STARTER_HURRY_MS = 2000, /* time for agents to end that must not wait for their workers */
    STARTER_RESTART_MS = 3000, /* time from the loss of a host until its shell is started again */
    STARTER_RESTART_MAX_MS = 60000, /* maximum of that time, after repeated failures */
    STARTER_TWICE_MS = 200 /* a second signal counts after this time: the same signal may arrive
                            * on two paths */
};

enum { STARTER_FAILED = 1 /* exit code if a host could not be used */ };

/* A host and its remote shell. */
struct starter_host {
    const char *name;
    pid_t pid; /* 0: not started */
    bool ended;
    int code;     /* exit code, or 128 + signal */
    bool killed;  /* its remote shell was killed by a signal */
    bool begun;   /* its shell had read from the script when it ended */
    int to_fd;    /* write end of its standard input; -1: closed */
    char *script; /* the shell script that is written to its standard input */
    size_t bytes, sent;
    bool script_sent; /* the script was written, or the shell has closed its input */

    /* For jobs that continue without this host. */
    int streams[2];          /* its standard output and error; -1: closed here */
    int64_t restart_at;      /* when its remote shell is started again; INT64_MAX: never */
    int64_t restart_wait_ms; /* delay before the next restart */
};

struct starter {
    const struct disti_run_options *options;
    int signals_fd, child_fd, done_fd;
    struct starter_host *hosts;
    int count, alive, outputs_left;
    bool elastic; /* hosts other than the first may be lost and return */
    bool goes_on; /* with --on-failure continue: hosts other than the first may be lost */
    struct disti_run_output *outputs[2];
    int first;             /* the first host that ended with a failure; -1: none */
    int stop_signal;       /* the signal that this distrun received; 0: none */
    unsigned char command; /* the command for all agents; 0: none */
    int64_t stopped_at;    /* when the signal was received */
    int64_t send_at;       /* when `command` is sent next; INT64_MAX: never */
    int64_t kill_at;       /* deadline for SIGKILL to the remote shells; INT64_MAX: none */
    bool hurry;            /* do not wait until the output is read */
    char secret[33];       /* secret of the job's agents; "": none, since there is no OpenSSL */
    char master[256];      /* host of the agents' rendezvous */
    int master_port;
};

/* ---- the job ---- */

/* Returns "node1" for "me@node1". */
static const char *starter_machine(const char *name)
{
    const char *at = strrchr(name, '@');

    return at ? at + 1 : name;
}

/*
 * Chooses the rendezvous address: the first host's name, or this machine's own name if the first
 * host is named localhost. A port that is free on this machine is most likely also free on that
 * host.
 */
static dist_status starter_choose_rendezvous(struct starter *starter)
{
    const char *name = starter_machine(starter->hosts[0].name);
    bool one_machine = true;
    char own[DISTI_HOST_SIZE];
    dist_status status = DIST_OK;

    for (int h = 0; h < starter->count; h++)
        one_machine &= disti_hosts_is_loopback(starter_machine(starter->hosts[h].name));
    disti_host_name(own);
    if (starter->options->master_addr)
        name = starter->options->master_addr;
    else if (disti_hosts_is_loopback(name) && !one_machine)
        name = own;
    snprintf(starter->master, sizeof(starter->master), "%s", name);
    disti_host_normalize(starter->master);
    starter->master_port = (int)starter->options->master_port;
    if (starter->master_port < 0)
        status = disti_run_free_port(&starter->master_port);
    if (status == DIST_OK && disti_hmac_exists())
        status = disti_random_id(starter->secret);
    return status;
}

/* ---- the script of each host ---- */

/*
 * Unsets variables that were converted to options; a remote shell to this machine would pass them
 * on.
 */
static void starter_forget_options(void)
{
    char name[256];

    for (int i = 0; environ[i];) {
        const size_t length = strcspn(environ[i], "=");

        snprintf(name, sizeof(name), "%.*s", (int)length, environ[i]);
        /* An entry without '=' cannot be unset. */
        if (environ[i][length] && length < sizeof(name) &&
            (strncmp(name, "PET_", 4) == 0 || strcmp(name, "DIST_SECRET_FILE") == 0))
            unsetenv(name);
        else
            i++;
    }
}

/*
 * True for variables of this host or login session, and for those that bash does not let a script
 * set.
 */
static bool starter_is_local_variable(const char *entry)
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

/* Builds the script that the shell on host h reads first. */
static dist_status starter_script(struct starter *starter, int h, const char *self,
                                  const struct disti_run_list *environment)
{
    struct disti_run_list command = {0};
    char directory[PATH_MAX];
    dist_status status;
    const struct disti_run_options *options;

    /*
     * Runs this distrun, by its local path, as the agent of host h. A single node gets no node
     * rank.
     */
    options = starter->options;
    disti_run_list_add(&command, "%s", self);
    disti_run_list_add(&command, "--from-starter");
    disti_run_options_arguments(options, &command);
    if (options->workers_text)
        disti_run_list_add(&command, "--nproc-per-node=%s", options->workers_text);
    else
        disti_run_list_add(&command, "--nproc-per-node=%d", options->hosts.entries[h].slots);
    if (starter->count > 1) {
        if (starter->elastic)
            disti_run_list_add(&command, "--nnodes=%d:%d", options->min_hosts, starter->count);
        else
            disti_run_list_add(&command, "--nnodes=%d", starter->count);
        disti_run_list_add(&command, "--node-rank=%d", h);
        disti_run_list_add(&command, "--master-addr=%s", starter->master);
        disti_run_list_add(&command, "--master-port=%d", starter->master_port);
        if (starter->secret[0])
            disti_run_list_add(&command, "--secret-file=/dev/fd/%d", DISTI_HOSTS_SECRET);
    }
    disti_run_list_add(&command, "--");
    for (int i = 0; options->command[i]; i++)
        disti_run_list_add(&command, "%s", options->command[i]);
    if (command.failed)
        status = disti_fail(DIST_ERR_NO_MEMORY, "no memory to start agents: free some");
    else
        status = disti_hosts_script(
            &(struct disti_hosts_start){
                .argv = (const char *const *)command.words,
                .environment = (const char *const *)environment->words,
                .directory = getcwd(directory, sizeof(directory)),
                .secret = starter->count > 1 && starter->secret[0] ? starter->secret : NULL},
            &starter->hosts[h].script, &starter->hosts[h].bytes);
    disti_run_list_free(&command);
    return status;
}

/* ---- the remote shells ---- */

static void starter_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static dist_status starter_no_pipe(const struct starter_host *host)
{
    return disti_fail_call("pipe2", "cannot start an agent on %s", host->name);
}

/*
 * Starts a host's remote shell, or restarts it after it has ended. On failure to_fd is not closed
 * before the process ends.
 */
static dist_status starter_start(struct starter *starter, struct starter_host *host)
{
    const bool here = disti_run_host_is_local(starter->options, (int)(host - starter->hosts));
    int in[2] = {-1, -1};
    dist_status status;

    starter_close(&host->to_fd);
    if (pipe2(in, O_CLOEXEC) != 0 || fcntl(in[1], F_SETFL, O_NONBLOCK) != 0)
        status = starter_no_pipe(host);
    else
        status = disti_hosts_start(starter->options->remote_shell, here ? NULL : host->name, in[0],
                                   host->streams[0], host->streams[1], &host->pid);
    starter_close(&in[0]);
    host->to_fd = in[1];
    host->sent = 0;
    host->script_sent = false;
    host->ended = status != DIST_OK;
    return status;
}

/*
 * Starts the shells of all hosts, and the threads that read their output. The threads are started
 * even if some shells could not be.
 */
static dist_status starter_shells(struct starter *starter)
{
    struct disti_run_source *sources[2];
    dist_status status = DIST_OK, outputs = DIST_OK;

    for (int s = 0; s < 2; s++)
        sources[s] = calloc((size_t)starter->count, sizeof(*sources[s]));
    if (!sources[0] || !sources[1])
        status =
            disti_fail(DIST_ERR_NO_MEMORY, "no memory for %d hosts: free some", starter->count);
    while (status == DIST_OK && starter->alive < starter->count) {
        struct starter_host *host = &starter->hosts[starter->alive];

        /* On failure these pipe ends are not closed before the process ends. */
        for (int s = 0; s < 2 && status == DIST_OK; s++) {
            int ends[2] = {-1, -1};

            if (pipe2(ends, O_CLOEXEC) != 0)
                status = starter_no_pipe(host);
            host->streams[s] = ends[1];
            sources[s][host - starter->hosts] =
                (struct disti_run_source){.fd = ends[0], .log_fd = -1, .shown = true};
        }
        if (status == DIST_OK)
            status = starter_start(starter, host);
        for (int s = 0; s < 2 && (!starter->elastic || status != DIST_OK); s++)
            starter_close(&host->streams[s]);
        starter->alive += status == DIST_OK;
    }
    if (starter->alive > 0)
        outputs =
            disti_run_outputs_start(sources, (const int[]){starter->alive, starter->alive},
                                    starter->done_fd, starter->outputs, &starter->outputs_left);
    free(sources[0]);
    free(sources[1]);
    return status == DIST_OK ? outputs : status;
}

/* ---- the report at the end ---- */

/* True if the exit code is one that remote shells use when no agent could run. */
static bool starter_is_shell_error(const struct starter_host *host)
{
    return host->code == 255 || host->code == 126 || host->code == 127;
}

/*
 * Reports failures that agents could not report, after all have ended. Returns distrun's exit code.
 */
static int starter_conclude(const struct starter *starter)
{
    const struct starter_host *first;
    bool is_alike = true; /* all agents exited with the same code: one of them has reported the
                           * cause */
    const char *reason;
    char name[16];

    if (starter->stop_signal) {
        disti_run_signal_name(starter->stop_signal, name);
        fprintf(stderr, "distrun: stopped by %s\n", name);
        return 128 + starter->stop_signal;
    }
    if (starter->first < 0)
        return 0;
    first = &starter->hosts[starter->first];
    for (int h = 0; h < starter->count && !starter->elastic && !starter->goes_on; h++)
        is_alike &= starter->hosts[h].code == first->code;
    /*
     * The reason is printed if most likely no worker failed, or if no agent can have reported it.
     */
    if (starter->elastic && (first->killed || !first->begun || starter_is_shell_error(first)))
        reason = ": it is the rendezvous of the nodes, so the job ends";
    else if (!first->begun)
        reason = first->code == 0 ? ": its remote shell must forward its standard input"
                                  : ": see the message of its remote shell";
    else if (first->killed)
        reason = ": its remote shell was killed";
    else if (first->code == 255)
        reason = ": see the message of its remote shell, unless a worker exited with that code";
    else if (starter_is_shell_error(first))
        reason = ": the working directory and distrun must exist there, at the same paths as here";
    else if (starter->count == 1 && first->code > 128)
        reason = ": the host was lost, or a signal ended a worker";
    else
        reason = "";
    if (!is_alike || *reason)
        fprintf(stderr, "distrun: host %s ended first, with exit code %d%s\n", first->name,
                first->code, reason);
    /* If agents ran and all exited with the same code, it is the exit code of a worker. */
    return !first->begun || (!is_alike && starter_is_shell_error(first)) ? STARTER_FAILED
                                                                         : first->code;
}

/* ---- commands to the agents ---- */

/*
 * Sends a command to all agents. Errors are ignored: the end of a remote shell is detected
 * separately.
 */
static void starter_send(struct starter *starter, unsigned char command)
{
    for (int h = 0; h < starter->count; h++) {
        if (starter->hosts[h].to_fd >= 0 && starter->hosts[h].script_sent)
            (void)!write(starter->hosts[h].to_fd, &command, 1);
    }
}

static void starter_end(struct starter *starter, int command, int64_t time_ms)
{
    starter->command = (unsigned char)command;
    starter->send_at = disti_now_ns();
    starter->kill_at = disti_deadline_ms(time_ms);
}

static int64_t starter_time_ms(const struct starter *starter)
{
    return (int64_t)(starter->options->shutdown_timeout * 1e3) + STARTER_GRACE_MS;
}

/* Writes as much of the script as the pipe accepts. */
static void starter_send_script(struct starter_host *host)
{
    const ssize_t written = write(host->to_fd, host->script + host->sent, host->bytes - host->sent);

    if (written < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    host->sent += written > 0 ? (size_t)written : 0;
    host->script_sent = written < 0 || host->sent == host->bytes;
}

/* ---- signals ---- */

/* The monitor has exited: ends the job. The agents see that their input is closed. */
static void starter_abandon(struct starter *starter)
{
    starter->stop_signal = SIGKILL;
    starter->hurry = true;
    starter_close(&starter->signals_fd);
    for (int h = 0; h < starter->count; h++)
        starter_close(&starter->hosts[h].to_fd);
    starter->kill_at = disti_deadline_ms(STARTER_HURRY_MS);
}

/* ---- ended shells ---- */

/*
 * Schedules a restart of a host's shell, after a delay that doubles with each failure. Only for
 * hosts of an elastic job other than the rendezvous host. If the whole job has ended, the starter
 * detects this during the delay, and does not restart the shell.
 */
static void starter_schedule_restart(struct starter_host *host)
{
    host->restart_wait_ms =
        host->begun || !host->restart_wait_ms ? STARTER_RESTART_MS : 2 * host->restart_wait_ms;
    if (host->restart_wait_ms > STARTER_RESTART_MAX_MS)
        host->restart_wait_ms = STARTER_RESTART_MAX_MS;
    host->restart_at = disti_deadline_ms(host->restart_wait_ms);
}

/*
 * Reaps shells. All agents of a job end together: each learns of a failure no later than the
 * starter does.
 */
static void starter_reap(struct starter *starter)
{
    pid_t pid;
    int wait_status;

    while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0) {
        struct starter_host *host = starter->hosts;
        int left = starter->count, unread = 0;
        bool failed, goes_on;

        for (; left > 0 && (host->pid != pid || host->ended); left--)
            host++;
        if (left == 0) /* an adopted process */
            continue;
        host->ended = true;
        host->killed = WIFSIGNALED(wait_status);
        host->code =
            WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
        /* FIONREAD counts the bytes that nobody has read. */
        host->begun = host->to_fd < 0 || ioctl(host->to_fd, FIONREAD, &unread) != 0 ||
                      (size_t)unread < host->sent;
        starter->alive--;
        failed = host->code != 0 || !host->begun;
        /*
         * With --on-failure continue the job continues without the host if its agent had begun and
         * was lost. An agent that could not begin exits with a code below 128.
         */
        goes_on = starter->goes_on && host != starter->hosts && host->begun && host->code > 128;
        if (starter->elastic ? host == starter->hosts : starter->first < 0 && failed && !goes_on) {
            /* This host's end ends the job. Agents that do not end by themselves get a command. */
            if (failed)
                starter->first = (int)(host - starter->hosts);
            if (!starter->command) {
                starter_end(starter, SIGTERM, STARTER_AGREE_MS + starter_time_ms(starter));
                starter->send_at = disti_deadline_ms(STARTER_AGREE_MS);
            }
        } else if (starter->elastic && failed) {
            starter_schedule_restart(host);
        }
    }
}

/* ---- waiting ---- */

/* True if lost hosts are started again: the job is elastic and not over. */
static bool starter_restarts_hosts(const struct starter *starter)
{
    return starter->elastic && !starter->command && !starter->stop_signal;
}

/* Waits for an event; `fds` has 3 entries and one per host. */
static void starter_wait(struct starter *starter, struct pollfd *fds)
{
    int64_t next = starter->send_at < starter->kill_at ? starter->send_at : starter->kill_at;
    struct signalfd_siginfo child;
    uint64_t done;

    fds[0] = (struct pollfd){.fd = starter->child_fd, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = starter->signals_fd, .events = POLLIN};
    fds[2] = (struct pollfd){.fd = starter->done_fd, .events = POLLIN};
    for (int h = 0; h < starter->count; h++) {
        const struct starter_host *host = &starter->hosts[h];

        fds[3 + h] = (struct pollfd){.fd = host->script_sent ? -1 : host->to_fd, .events = POLLOUT};
        if (starter_restarts_hosts(starter) && host->restart_at < next)
            next = host->restart_at;
    }
    if (poll(fds, 3 + (nfds_t)starter->count, next == INT64_MAX ? -1 : disti_left_ms(next)) <= 0)
        return;
    for (int h = 0; h < starter->count; h++) {
        if (fds[3 + h].revents && starter->hosts[h].to_fd >= 0)
            starter_send_script(&starter->hosts[h]);
    }
    if (fds[0].revents)
        (void)!read(starter->child_fd, &child, sizeof(child));
    if (fds[1].revents) {
        struct disti_run_signal forwarded;
        ssize_t got;

        while ((got = recv(starter->signals_fd, &forwarded, sizeof(forwarded), MSG_DONTWAIT)) ==
               sizeof(forwarded)) {
            const int command =
                forwarded.number + (forwarded.from_terminal ? DISTI_RUN_TERMINAL : 0);

            if (sigismember(&starter->options->signals, forwarded.number) != 1) {
                starter_send(starter, (unsigned char)command);
            } else if (!starter->stop_signal) {
                starter->stop_signal = forwarded.number;
                starter->stopped_at = disti_now_ns();
                starter_end(starter, command, starter_time_ms(starter));
            } else if (disti_now_ns() - starter->stopped_at > STARTER_TWICE_MS * INT64_C(1000000)) {
                starter->hurry = true;
                starter_end(starter, DISTI_RUN_HURRY, STARTER_HURRY_MS);
            }
        }
        if (got == 0)
            starter_abandon(starter);
    }
    if (fds[2].revents && read(starter->done_fd, &done, sizeof(done)) == sizeof(done))
        starter->outputs_left -= (int)done;
}

/*
 * Runs until all shells have ended and their output is written. Then the write ends of the streams
 * are closed, since no further shell is started.
 */
static void starter_watch(struct starter *starter)
{
    struct pollfd *fds = calloc((size_t)starter->count + 3, sizeof(*fds));

    for (starter_reap(starter); fds; starter_reap(starter)) {
        for (int h = 0; h < starter->count && starter->alive == 0; h++) {
            starter_close(&starter->hosts[h].streams[0]);
            starter_close(&starter->hosts[h].streams[1]);
        }
        if (starter->alive == 0 && (starter->outputs_left == 0 || starter->hurry))
            break;
        for (int h = 0; h < starter->count && starter_restarts_hosts(starter); h++) {
            struct starter_host *host = &starter->hosts[h];

            if (!disti_expired(host->restart_at))
                continue;
            fprintf(stderr, "distrun: host %s ended with exit code %d: starting its agent again\n",
                    host->name, host->code);
            host->restart_at = INT64_MAX;
            if (starter_start(starter, host) == DIST_OK) {
                starter->alive++;
            } else {
                fprintf(stderr, "distrun: %s\n", dist_last_error());
                starter_schedule_restart(host);
            }
        }
        if (disti_expired(starter->send_at)) {
            starter_send(starter, starter->command);
            starter->send_at = disti_deadline_ms(STARTER_REPEAT_MS);
        }
        if (disti_expired(starter->kill_at)) {
            disti_run_signal_descendants(SIGKILL);
            starter->hurry = true;
            starter->kill_at = disti_deadline_ms(STARTER_REPEAT_MS);
        }
        starter_wait(starter, fds);
    }
    free(fds);
}

/* ---- the starter's main function ---- */

int disti_run_starter(int signals_fd, const struct disti_run_options *options)
{
    struct starter starter = {.options = options,
                              .signals_fd = signals_fd,
                              .count = options->hosts.count,
                              .elastic = options->min_hosts > 0,
                              .goes_on = options->goes_on,
                              .first = -1,
                              .send_at = INT64_MAX,
                              .kill_at = INT64_MAX};
    int code = STARTER_FAILED;
    dist_status status;
    struct rlimit previous;
    const bool opened = disti_run_open(&previous, &starter.child_fd, &starter.done_fd);

    signal(SIGPIPE, SIG_IGN); /* a remote shell may have ended */
    starter.hosts = calloc((size_t)starter.count, sizeof(*starter.hosts));
    if (!starter.hosts || !opened) {
        disti_fail_call("signalfd or eventfd", "cannot monitor %d hosts", starter.count);
        fprintf(stderr, "distrun: %s\n", dist_last_error());
        return code;
    }
    for (int h = 0; h < starter.count; h++)
        starter.hosts[h] = (struct starter_host){.name = options->hosts.entries[h].name,
                                                 .to_fd = -1,
                                                 .streams = {-1, -1},
                                                 .restart_at = INT64_MAX};
    status = starter_choose_rendezvous(&starter);
    starter_forget_options();
    if (status == DIST_OK) {
        struct disti_run_list environment = {0};
        char self[PATH_MAX];
        const ssize_t bytes = readlink("/proc/self/exe", self, sizeof(self) - 1);

        /* Passes the environment on, since no login shell sets it on the other host. */
        if (bytes < 0)
            status = disti_fail_errno(DIST_ERR_SYSTEM,
                                      "cannot determine the path of distrun (/proc/self/exe)");
        else {
            self[bytes] = '\0';
            for (int i = 0; environ[i]; i++) {
                if (!starter_is_local_variable(environ[i]))
                    disti_run_list_add(&environment, "%s", environ[i]);
            }
            if (environment.failed)
                status = disti_fail(DIST_ERR_NO_MEMORY, "no memory to start agents: free some");
            for (int h = 0; h < starter.count && status == DIST_OK; h++)
                status = starter_script(&starter, h, self, &environment);
            disti_run_list_free(&environment);
        }
    }
    if (status == DIST_OK)
        status = starter_shells(&starter); /* on failure some shells may run */
    if (status == DIST_OK) {
        starter_watch(&starter);
        code = starter_conclude(&starter);
    } else {
        fprintf(stderr, "distrun: %s\n", dist_last_error());
        starter_abandon(&starter);
        starter_watch(&starter);
    }
    /* Threads that are blocked on a reader end with the process, which also frees their memory. */
    if (starter.hurry)
        _exit(code);
    for (int s = 0; s < 2; s++) {
        if (!disti_run_output_end(starter.outputs[s]) && code == 0)
            code = STARTER_FAILED;
    }
    for (int h = 0; h < starter.count; h++) {
        if (starter.hosts[h].script) /* it contains the job's secret */
            explicit_bzero(starter.hosts[h].script, starter.hosts[h].bytes);
        free(starter.hosts[h].script);
    }
    free(starter.hosts);
    return code;
}
