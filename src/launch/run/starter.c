/* SPDX-License-Identifier: BSD-3-Clause */
/* The starter's life: it tells the agents of signals, and ends when their remote shells have. */
#include "launch/run/starter.h"

#include "base/clock.h"
#include "base/descriptor.h"
#include "launch/run/agent.h"
#include "launch/workers/family.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

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
    if (disti_run_starter_again(starter, (int)(host - starter->hosts)) == DIST_OK) {
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
    if (disti_run_starter_begin(&starter) == DIST_OK) {
        starter_watch(&starter);
        code = disti_run_starter_conclude(&starter);
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
