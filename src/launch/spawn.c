/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_spawn: runs a function in new processes of this machine, with a store in the parent. */

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
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SPAWN_RANKS_MAX 65536
#define SPAWN_TERM_MS 5000 /* from SIGTERM to SIGKILL */

struct spawn {
    struct dist_spawn_options options;
    int ranks, started, alive;
    pid_t *pids; /* by rank; 0 once reaped */
    struct disti_store_server *server;
    int token_fd;        /* a memfd with the store's token; -1: none */
    char token_file[64]; /* path of that memfd */
    int exit_code;       /* exit code of the first failure; 0: none */
    bool decided; /* exit_code is final: its cause is a signal, or was found in an earlier poll */
    int signal;   /* a signal for the whole job for which the program has a handler; 0: none */
    int64_t oom_kills; /* the kernel's count of out-of-memory kills before the start */
    int64_t kill_at;   /* deadline for SIGKILL; INT64_MAX: none */
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

    /* The kernel kills the child when the parent dies; the parent may be dead already. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(128 + SIGKILL);
    /*
     * torchrun's variables, so that the child counts as launched, however its parent was started.
     */
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
    /* Variables that refer to files of the launcher of the parent. */
    unsetenv("DIST_AGENT_LAST_CALL");
    unsetenv("DIST_AGENT_STORE_SECRET");
    unsetenv("DIST_AGENT_FILES");
    if (spawn->token_fd >= 0) {
        disti_handed_name(spawn->token_fd, file);
        setenv("DIST_AGENT_STORE_SECRET", spawn->token_file, 1);
        setenv("DIST_AGENT_FILES", file, 1);
        fcntl(spawn->token_fd, F_SETFD, 0); /* the child may exec another program */
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

/* Ends the other ranks: SIGTERM, then SIGKILL after SPAWN_TERM_MS. */
static void spawn_end(struct spawn *spawn)
{
    if (spawn->kill_at != INT64_MAX)
        return;
    spawn_kill(spawn, SIGTERM);
    /* A stopped process handles SIGTERM only after SIGCONT. */
    spawn_kill(spawn, SIGCONT);
    spawn->kill_at = disti_deadline_ms(SPAWN_TERM_MS);
}

/*
 * Records a rank's end. The first failure is the cause of the later ones, so only the first is
 * reported.
 */
static void spawn_ended(struct spawn *spawn, int rank, int wait_status)
{
    int code = WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
    pid_t pid = spawn->pids[rank];

    spawn->pids[rank] = 0;
    spawn->alive--;
    if (code != 0 && spawn->kill_at == INT64_MAX && spawn->options.failed)
        spawn->options.failed(rank, code, spawn->options.failed_arg);
    /* If two failures are seen at once, a death by a signal counts as the cause. */
    if (code == 0 || spawn->decided || (spawn->exit_code && !WIFSIGNALED(wait_status)))
        return;
    spawn->exit_code = code;
    spawn->decided = WIFSIGNALED(wait_status);
    if (WIFSIGNALED(wait_status))
        disti_fail(DIST_ERR_PEER_LOST, "rank %d (pid %d) was ended by signal %d (%s)%s", rank,
                   (int)pid, WTERMSIG(wait_status), strsignal(WTERMSIG(wait_status)),
                   disti_process_oom_text(WTERMSIG(wait_status) == SIGKILL &&
                                          disti_process_oom_kills() > spawn->oom_kills));
    else
        disti_fail(DIST_ERR_PEER_LOST, "rank %d (pid %d) ended with exit code %d", rank, (int)pid,
                   code);
}

/*
 * Writes the store's token to a memfd that the children inherit. Its path contains this thread's
 * id: the process's first thread may have ended, while this one waits until the children have
 * ended.
 */
static dist_status spawn_store_token(struct spawn *spawn)
{
    const char *auth = disti_env("DIST_AUTH");
    char token[33];
    dist_status status;

    if (auth && strcmp(auth, "none") == 0)
        return DIST_OK;
    status = disti_random_id(token);
    if (status != DIST_OK)
        return status;
    disti_store_server_set_word(spawn->server, token);
    spawn->token_fd = disti_handed_secret(token);
    if (spawn->token_fd < 0)
        return disti_file_memory_fail("store the token of the job's store");
    snprintf(spawn->token_file, sizeof(spawn->token_file), "/proc/%d/fd/%d",
             (int)syscall(SYS_gettid), spawn->token_fd); /* glibc before 2.30 has no gettid() */
    return DIST_OK;
}

static dist_status spawn_run(struct spawn *spawn, int (*fn)(int rank, void *arg), void *arg)
{
    static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction standard = {.sa_handler = SIG_DFL};
    dist_status status = DIST_OK;
    pid_t parent = getpid();
    siginfo_t info;

    /* Blocks the signals from here on, so that sigtimedwait misses none. */
    sigemptyset(&spawn->caught);
    sigaddset(&spawn->caught, SIGCHLD);
    for (size_t i = 0; i < sizeof(passed_on) / sizeof(passed_on[0]); i++) {
        if (spawn_handler(passed_on[i]) != SIG_IGN)
            sigaddset(&spawn->caught, passed_on[i]);
    }
    /* With an ignored SIGCHLD the children's exit codes would be lost. */
    sigaction(SIGCHLD, &standard, &spawn->old_child);
    pthread_sigmask(SIG_BLOCK, &spawn->caught, &spawn->old_mask);
    spawn->oom_kills = disti_process_oom_kills();
    /* Otherwise each child would print the parent's buffered output. */
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
    /*
     * The store's thread is started after the forks: a child of a multithreaded process may call
     * only async-signal-safe functions.
     */
    if (status == DIST_OK)
        status = disti_store_server_run(spawn->server);
    if (status != DIST_OK) {
        /*
         * The ranks that were started are ended by our signals, which must not count as failures.
         */
        spawn->exit_code = 1;
        spawn->decided = true;
        spawn_end(spawn);
    }
    while (spawn->alive) {
        int left_ms = spawn->kill_at == INT64_MAX ? 1000 : disti_left_ms(spawn->kill_at);
        struct timespec wait = {left_ms / 1000, left_ms % 1000 * 1000000L};
        int wait_status;

        if (left_ms == 0) {
            spawn_kill(spawn, SIGKILL);
            spawn->kill_at = disti_deadline_ms(1000);
        } else if (sigtimedwait(&spawn->caught, &info, &wait) > 0 && info.si_signo != SIGCHLD) {
            /* A signal for the parent ends the whole job. */
            if (spawn_handler(info.si_signo) != SIG_IGN && spawn_handler(info.si_signo) != SIG_DFL)
                spawn->signal = info.si_signo;
            /*
             * A terminal sends SIGINT to the whole process group, so the children have received it.
             */
            if (info.si_code != SI_KERNEL)
                spawn_kill(spawn, info.si_signo);
            if (spawn->kill_at == INT64_MAX)
                spawn->kill_at = disti_deadline_ms(SPAWN_TERM_MS);
            if (!spawn->decided)
                spawn->exit_code = 128 + info.si_signo;
            spawn->decided = true;
        }
        /* Reaps only our own children: the program may have other children. */
        for (int r = 0; r < spawn->started; r++) {
            pid_t pid = spawn->pids[r] ? waitpid(spawn->pids[r], &wait_status, WNOHANG) : 0;

            if (pid > 0)
                spawn_ended(spawn, r, wait_status);
            else if (pid < 0 && errno == ECHILD) /* the program has reaped it elsewhere */
                spawn_ended(spawn, r, 1 << 8);
        }
        /*
         * SIGTERM is sent only after all ranks were polled: a rank ended by SIGTERM is not the
         * cause.
         */
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
    struct spawn spawn = {.ranks = ranks, .kill_at = INT64_MAX, .token_fd = -1};
    dist_status status;

    if (options && (options->size <= offsetof(struct dist_spawn_options, continue_on_failure) ||
                    options->size > 65536))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_spawn_with: options->size is %zu: initialise the options "
                          "with DIST_SPAWN_OPTIONS_INIT",
                          options->size);
    if (options) /* as many fields as the caller's header has */
        memcpy(&spawn.options, options,
               options->size < sizeof(*options) ? options->size : sizeof(*options));
    if (ranks < 1 || ranks > SPAWN_RANKS_MAX)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_spawn: %d is not a valid number of processes: specify 1 to %d",
                          ranks, SPAWN_RANKS_MAX);
    if (!fn || !exit_code_p)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "dist_spawn: %s must not be NULL",
                          fn ? "exit_code_p" : "fn");
    spawn.pids = calloc((size_t)ranks, sizeof(*spawn.pids));
    if (!spawn.pids)
        return disti_fail(DIST_ERR_NO_MEMORY,
                          "no memory for %d processes: free some, or start fewer", ranks);
    status = disti_store_server_listen(disti_loopback(), 0, ranks, 0, &spawn.server);
    if (status == DIST_OK)
        status = spawn_store_token(&spawn);
    if (status == DIST_OK)
        status = spawn_run(&spawn, fn, arg);
    disti_store_server_stop(spawn.server, 0);
    if (spawn.token_fd >= 0)
        close(spawn.token_fd);
    free(spawn.pids);
    if (status == DIST_OK)
        *exit_code_p = spawn.exit_code;
    return status;
}
