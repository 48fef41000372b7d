/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_spawn: a function in new processes of this machine, with a store held by the parent. */

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/net.h"
#include "base/process.h"
#include "base/settings/env.h"
#include "store/server.h"
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SPAWN_RANKS_MAX 65536
#define SPAWN_TERM_MS 5000 /* from SIGTERM to SIGKILL */

struct spawn {
    struct dist_spawn_options options;
    int ranks, started, alive;
    pid_t *pids; /* by rank; 0 once reaped */
    struct disti_store_server *server;
    int secret_fd;     /* a memfd with what the store asks for; -1: none */
    char secret[64];   /* its path */
    int exit_code;     /* of the first failure; 0: none yet */
    bool decided;      /* it was seen in an earlier look, or was a signal */
    int signal;        /* that came for all, with a handler of the program; 0: none */
    int64_t oom_kills; /* processes that the kernel's out-of-memory killer had ended before */
    int64_t kill_at;   /* SIGKILL for whoever is left; INT64_MAX: not yet */
    sigset_t caught, old_mask;
    struct sigaction old_child;
};

static sighandler_t spawn_handler(int signal_number)
{
    struct sigaction action;

    return sigaction(signal_number, NULL, &action) == 0 ? action.sa_handler : SIG_DFL;
}

static void spawn_release(struct spawn *spawn)
{
    sigaction(SIGCHLD, &spawn->old_child, NULL);
    pthread_sigmask(SIG_SETMASK, &spawn->old_mask, NULL);
}

static void spawn_setenv_int(const char *name, int value)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", value);
    setenv(name, text, 1);
}

__attribute__((noreturn)) static void spawn_child(struct spawn *spawn, int rank, pid_t parent,
                                                  int (*fn)(int rank, void *arg), void *arg)
{
    int code;
    char file[DISTI_HANDED_TEXT];

    /* Nobody outlives the parent, even one that is killed; it may be dead already. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(128 + SIGKILL);
    /* What torchrun sets, so that the child is known as launched whatever launched its parent. */
    spawn_setenv_int("RANK", rank);
    spawn_setenv_int("LOCAL_RANK", rank);
    spawn_setenv_int("WORLD_SIZE", spawn->ranks);
    spawn_setenv_int("LOCAL_WORLD_SIZE", spawn->ranks);
    spawn_setenv_int("GROUP_RANK", 0);
    spawn_setenv_int("GROUP_WORLD_SIZE", 1);
    spawn_setenv_int("MASTER_PORT", disti_store_server_port(spawn->server));
    setenv("MASTER_ADDR", disti_loopback(), 1);
    setenv("TORCHELASTIC_RUN_ID", spawn->server->job, 1);
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    setenv("DIST_AGENT_STORE", "1", 1);
    /* The launcher that started the parent has files too. */
    unsetenv("DIST_AGENT_LAST_CALL");
    unsetenv("DIST_AGENT_STORE_SECRET");
    unsetenv("DIST_AGENT_FILES");
    if (spawn->secret_fd >= 0) {
        disti_handed_name(spawn->secret_fd, file);
        setenv("DIST_AGENT_STORE_SECRET", spawn->secret, 1);
        setenv("DIST_AGENT_FILES", file, 1);
        fcntl(spawn->secret_fd, F_SETFD, 0); /* the child may run another program */
    }
    disti_store_server_forget(spawn->server);
    free(spawn->pids);
    spawn_release(spawn);
    code = fn(rank, arg);
    fflush(NULL);
    _exit(code);
}

static void spawn_kill(const struct spawn *spawn, int signal_number)
{
    for (int r = 0; r < spawn->started; r++) {
        if (spawn->pids[r])
            kill(spawn->pids[r], signal_number);
    }
}

/* Ends the others: gently, and for certain some seconds later. */
static void spawn_end(struct spawn *spawn)
{
    if (spawn->kill_at != INT64_MAX)
        return;
    spawn_kill(spawn, SIGTERM);
    /* A stopped process sees SIGTERM only once it goes on. */
    spawn_kill(spawn, SIGCONT);
    spawn->kill_at = disti_deadline_ms(SPAWN_TERM_MS);
}

/* The first failure is the cause of the others, so only that one is told. */
static void spawn_ended(struct spawn *spawn, int rank, int how)
{
    int code = WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
    pid_t pid = spawn->pids[rank];

    spawn->pids[rank] = 0;
    spawn->alive--;
    if (code != 0 && spawn->kill_at == INT64_MAX && spawn->options.failed)
        spawn->options.failed(rank, code, spawn->options.failed_arg);
    /* Of two that are seen at once, the one that a signal ended is the cause of the other. */
    if (code == 0 || spawn->decided || (spawn->exit_code && !WIFSIGNALED(how)))
        return;
    spawn->exit_code = code;
    spawn->decided = WIFSIGNALED(how);
    if (WIFSIGNALED(how))
        disti_fail(DIST_ERR_PEER_LOST, "rank %d (pid %d) was ended by signal %d (%s)%s", rank,
                   (int)pid, WTERMSIG(how), strsignal(WTERMSIG(how)),
                   disti_process_oom_text(WTERMSIG(how) == SIGKILL &&
                                          disti_process_oom_kills() > spawn->oom_kills));
    else
        disti_fail(DIST_ERR_PEER_LOST, "rank %d (pid %d) ended with exit code %d", rank, (int)pid,
                   code);
}

/* Writes the store's secret to a file that the children inherit. Its path names this thread, which
 * stays until they have ended, since the process's first thread may have ended. */
static dist_status spawn_keep_secret(struct spawn *spawn)
{
    const char *auth = disti_env("DIST_AUTH");
    char word[33];
    dist_status status;

    if (auth && strcmp(auth, "none") == 0)
        return DIST_OK;
    status = disti_random_id(word);
    if (status != DIST_OK)
        return status;
    disti_store_server_set_word(spawn->server, word);
    spawn->secret_fd = disti_handed_secret(word);
    if (spawn->secret_fd < 0)
        return disti_file_memory_fail("keep the store's secret");
    snprintf(spawn->secret, sizeof(spawn->secret), "/proc/%d/fd/%d", (int)gettid(),
             spawn->secret_fd);
    return DIST_OK;
}

static dist_status spawn_run(struct spawn *spawn, int (*fn)(int rank, void *arg), void *arg)
{
    static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction standard = {.sa_handler = SIG_DFL};
    dist_status status = DIST_OK;
    pid_t parent = getpid();
    siginfo_t info;

    /* From here on the signals wait for sigtimedwait, so none is missed between two looks. */
    sigemptyset(&spawn->caught);
    sigaddset(&spawn->caught, SIGCHLD);
    for (size_t i = 0; i < sizeof(passed_on) / sizeof(passed_on[0]); i++) {
        if (spawn_handler(passed_on[i]) != SIG_IGN)
            sigaddset(&spawn->caught, passed_on[i]);
    }
    /* An ignored SIGCHLD would let the children vanish with their exit codes. */
    sigaction(SIGCHLD, &standard, &spawn->old_child);
    pthread_sigmask(SIG_BLOCK, &spawn->caught, &spawn->old_mask);
    spawn->oom_kills = disti_process_oom_kills();
    /* Else every child would print what the parent has buffered. */
    fflush(NULL);
    for (; spawn->started < spawn->ranks; spawn->started++) {
        pid_t pid = fork();

        if (pid == 0)
            spawn_child(spawn, spawn->started, parent, fn, arg);
        if (pid < 0) {
            status = disti_process_limit_fail("start rank %d of %d", spawn->started, spawn->ranks);
            break;
        }
        spawn->pids[spawn->started] = pid;
        spawn->alive++;
    }
    /* The thread comes after the forks: a child of a process with threads may use little. */
    if (status == DIST_OK)
        status = disti_store_server_run(spawn->server);
    if (status != DIST_OK) {
        /* The ranks that were started now end by our signals, which is no cause. */
        spawn->exit_code = 1;
        spawn->decided = true;
        spawn_end(spawn);
    }
    while (spawn->alive) {
        int left_ms = spawn->kill_at == INT64_MAX ? 1000 : disti_left_ms(spawn->kill_at);
        struct timespec wait = {left_ms / 1000, left_ms % 1000 * 1000000L};
        int how;

        if (left_ms == 0) {
            spawn_kill(spawn, SIGKILL);
            spawn->kill_at = disti_deadline_ms(1000);
        } else if (sigtimedwait(&spawn->caught, &info, &wait) > 0 && info.si_signo != SIGCHLD) {
            /* A signal for the parent is one for all. */
            if (spawn_handler(info.si_signo) != SIG_IGN && spawn_handler(info.si_signo) != SIG_DFL)
                spawn->signal = info.si_signo;
            /* Ctrl-C goes to the whole process group, so the children have it already. */
            if (info.si_code != SI_KERNEL)
                spawn_kill(spawn, info.si_signo);
            if (spawn->kill_at == INT64_MAX)
                spawn->kill_at = disti_deadline_ms(SPAWN_TERM_MS);
            if (!spawn->decided)
                spawn->exit_code = 128 + info.si_signo;
            spawn->decided = true;
        }
        /* Only our own children: the program may have others. */
        for (int r = 0; r < spawn->started; r++) {
            pid_t pid = spawn->pids[r] ? waitpid(spawn->pids[r], &how, WNOHANG) : 0;

            if (pid > 0)
                spawn_ended(spawn, r, how);
            else if (pid < 0 && errno == ECHILD) /* the program has reaped it elsewhere */
                spawn_ended(spawn, r, 1 << 8);
        }
        /* Not before all have been looked at: SIGTERM is no cause. */
        if (spawn->exit_code && !spawn->options.continue_on_failure)
            spawn_end(spawn);
        spawn->decided = spawn->exit_code != 0;
    }
    spawn_release(spawn);
    if (spawn->signal)
        raise(spawn->signal);
    return status;
}

dist_status dist_spawn(int ranks, int (*fn)(int rank, void *arg), void *arg, int *exit_code_p)
{
    return dist_spawn_with(ranks, fn, arg, NULL, exit_code_p);
}

dist_status dist_spawn_with(int ranks, int (*fn)(int rank, void *arg), void *arg,
                            const struct dist_spawn_options *options, int *exit_code_p)
{
    struct spawn spawn = {.ranks = ranks, .kill_at = INT64_MAX, .secret_fd = -1};
    dist_status status;

    if (options && (options->size <= offsetof(struct dist_spawn_options, continue_on_failure) ||
                    options->size > 65536))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_spawn_with: options->size is %zu: initialise the options "
                          "with DIST_SPAWN_OPTIONS_INIT",
                          options->size);
    if (options) /* as far as the caller's header has them */
        memcpy(&spawn.options, options,
               options->size < sizeof(*options) ? options->size : sizeof(*options));
    if (ranks < 1 || ranks > SPAWN_RANKS_MAX)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_spawn: %d is not a number of processes: give 1 to %d", ranks,
                          SPAWN_RANKS_MAX);
    if (!fn || !exit_code_p)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "dist_spawn: %s is NULL: give one",
                          fn ? "exit_code_p" : "fn");
    spawn.pids = calloc((size_t)ranks, sizeof(*spawn.pids));
    if (!spawn.pids)
        return disti_fail(DIST_ERR_NO_MEMORY,
                          "no memory for %d processes: free some, or start fewer", ranks);
    status = disti_store_server_listen(disti_loopback(), 0, ranks, 0, &spawn.server);
    if (status == DIST_OK)
        status = spawn_keep_secret(&spawn);
    if (status == DIST_OK)
        status = spawn_run(&spawn, fn, arg);
    disti_store_server_stop(spawn.server, 0);
    if (spawn.secret_fd >= 0)
        close(spawn.secret_fd);
    free(spawn.pids);
    if (status == DIST_OK)
        *exit_code_p = spawn.exit_code;
    return status;
}
