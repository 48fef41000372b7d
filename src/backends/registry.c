/* SPDX-License-Identifier: BSD-3-Clause */
/* The registry of backends and transports, built in or from modules: finding, checking, probing and
 * listing them. */
#include "backends/registry.h"

#include "backends/module.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/kernels/sink.h"
#include "base/log.h"
#include "base/settings/variables.h"
#include "device/driver.h"
#include "engine/engine.h"
#include "plan/plan.h"
#include "transports/shm/shm.h"
#include "transports/tcp/tcp.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Buffer size for a reason: a path, the error, and the remedy. */
#define REGISTRY_REASON 1024

static const struct dist_backend *const registry_built_in[] = {
    &disti_backend_gloo,
    &disti_backend_self,
    NULL,
};

/* Backends that are modules of this project. Modules with other names are found as well. */
static const char *const registry_modules[] = {"mpi", "nccl", "ucx", NULL};

static const struct dist_transport *const registry_transports[] = {
    &disti_transport_shm,
    &disti_transport_tcp,
    NULL,
};

const struct dist_transport *disti_built_in_transport(const char *name)
{
    int i = 0;

    while (registry_transports[i] && strcmp(registry_transports[i]->name, name) != 0)
        i++;
    return registry_transports[i];
}

bool disti_module_is_own(const char *name)
{
    int i = 0;

    while (registry_modules[i] && strcmp(registry_modules[i], name) != 0)
        i++;
    return registry_modules[i];
}

/* Checks the transports that a module's backend passes to the engine, since they are third-party
 * code too. */
static dist_status registry_engine_open(const struct dist_backend_config *config,
                                        const struct dist_engine_config *engine,
                                        struct dist_engine **engine_p)
{
    dist_status status = DIST_OK;

    for (int i = 0; engine->transports[i] && status == DIST_OK; i++)
        status = disti_transport_check(engine->transports[i], "a transport of the backend");
    return status == DIST_OK ? disti_engine_open(config, engine, engine_p) : status;
}

const struct dist_host disti_host = {
    .abi = DIST_ABI,
    .size = sizeof(struct dist_host),
    .fail = disti_fail,
    .log = disti_log_line,
    .sink_apply = disti_sink_apply,
    .dtype_size = dist_dtype_size,
    .collective_string = dist_collective_string,
    .transport_find = disti_transport_find,
    .engine_open = registry_engine_open,
    .engine_post = disti_engine_post,
    .engine_progress = disti_engine_progress,
    .engine_describe = disti_engine_describe,
    .engine_close = disti_engine_close,
    .engine_arm = disti_engine_arm,
    .engine_disarm = disti_engine_disarm,
    .op_fits = disti_op_fits,
    .engine_prepare = disti_engine_prepare,
    .engine_release = disti_engine_release,
    .engine_at_once = disti_engine_at_once,
    .transport_missing = disti_transport_missing,
};

/* ---- probes ---- */

/* True if a probe may return this status. */
static bool registry_is_answer(dist_status status)
{
    switch (status) {
#define REGISTRY_STATUS(name, value, text)                                                         \
    case DIST_##name:                                                                              \
        return status != DIST_IN_PROGRESS;
        DIST_STATUS_MAP(REGISTRY_STATUS)
#undef REGISTRY_STATUS
    }
    return false;
}

dist_status disti_probe(dist_status (*probe)(char *reason, size_t reason_size), const char *from,
                        char *reason, size_t reason_size)
{
    dist_status status;

    reason[0] = '\0';
    status = probe(reason, reason_size);
    reason[reason_size - 1] = '\0';
    if (status == DIST_OK)
        return DIST_OK;
    if (!registry_is_answer(status))
        snprintf(reason, reason_size,
                 "the probe of %s returned %d, which is neither DIST_OK nor a DIST_ERR_", from,
                 (int)status);
    else if (!reason[0])
        snprintf(reason, reason_size, "the probe of %s failed (%s) without giving a reason", from,
                 dist_status_string(status));
    return DIST_ERR_NO_BACKEND;
}

/* ---- backends ---- */

/*
 * Stores the names of the modules to try for a backend and returns their number: 1, or for backend
 * mpi also 2, or 0 with a reason.
 */
static int registry_module_names(const char *name, const char *names[DISTI_MPI_FLAVOURS],
                                 char *reason, size_t reason_size)
{
    reason[0] = '\0';
    if (strcmp(name, "mpi") == 0)
        return disti_mpi_flavours(names, reason, reason_size);
    names[0] = name;
    return 1;
}

/* Like disti_backend_find(), but writes the reason to a buffer and sets no error. ERR_UNSUPPORTED:
 * the module provides only transports. */
static dist_status registry_backend_reason(const char *name, const struct dist_backend **backend_p,
                                           char *reason, size_t reason_size)
{
    const char *names[DISTI_MPI_FLAVOURS];
    dist_status status = DIST_ERR_NO_BACKEND;
    const struct dist_backend *backend;
    const struct disti_module *module;
    size_t used = 0;
    int count;

    for (int i = 0; registry_built_in[i]; i++) {
        backend = registry_built_in[i];
        if (strcmp(backend->name, name) != 0)
            continue;
        if (disti_probe(backend->probe, name, reason, reason_size) != DIST_OK)
            return DIST_ERR_NO_BACKEND;
        *backend_p = backend;
        return DIST_OK;
    }
    count = registry_module_names(name, names, reason, reason_size);
    for (int i = 0; i < count && used + 1 < reason_size; i++) {
        char *why = reason + used;
        size_t room = reason_size - used;

        status = disti_module_load(names[i], &module, why, room);
        backend = status == DIST_OK ? module->entry->backend : NULL;
        if (status == DIST_OK && !backend) {
            disti_text(why, room,
                       "module %s provides transports but no backend: name one of them in "
                       "DIST_TRANSPORT, with backend gloo",
                       module->path);
            status = DIST_ERR_UNSUPPORTED;
        } else if (backend && strcmp(backend->name, name) != 0) {
            disti_text(why, room,
                       "module %s provides backend '%.60s', not '%s': a module dist_NAME.so must "
                       "provide backend NAME",
                       module->path, backend->name, name);
            status = DIST_ERR_NO_BACKEND;
        } else if (backend) {
            status = disti_probe(backend->probe, module->path, why, room);
        }
        if (status == DIST_OK) {
            *backend_p = backend;
            return DIST_OK;
        }
        used += strlen(why);
        if (i + 1 < count && used + 3 < reason_size)
            used += (size_t)snprintf(reason + used, reason_size - used, "; ");
    }
    return status;
}

/* ---- transports ---- */

/* Like disti_transport_find(), but writes the reason. ERR_NO_BACKEND, ERR_ABI. */
static dist_status registry_transport_reason(const char *name,
                                             const struct dist_transport **transport_p,
                                             char *reason, size_t reason_size)
{
    const struct dist_transport *const *transports;
    const struct disti_module *module;
    dist_status status;
    char names[128]; /* the transports that the module has */
    size_t used = 0;

    *transport_p = disti_built_in_transport(name);
    if (*transport_p)
        return DIST_OK;
    status = disti_module_load(name, &module, reason, reason_size);
    if (status != DIST_OK)
        return status;
    disti_text(names, sizeof(names), "none");
    transports = module->entry->transports;
    for (int i = 0; transports && transports[i]; i++) {
        if (strcmp(transports[i]->name, name) == 0) {
            *transport_p = transports[i];
            return DIST_OK;
        }
        if (used < sizeof(names))
            used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", i ? ", " : "",
                                     transports[i]->name);
    }
    disti_text(
        reason, reason_size,
        "module %s has no transport '%s' (its transports: %s): a transport must be in a module of "
        "the same name",
        module->path, name, names);
    return DIST_ERR_NO_BACKEND;
}

const struct dist_transport *disti_transport_find(const char *name)
{
    const struct dist_transport *transport = NULL;
    char reason[REGISTRY_REASON];

    return registry_transport_reason(name, &transport, reason, sizeof(reason)) == DIST_OK
               ? transport
               : NULL;
}

void disti_transport_missing(const char *name, char *text, size_t size)
{
    char reason[REGISTRY_REASON] = "the transport exists", directories[REGISTRY_REASON];
    const struct dist_transport *transport;
    size_t used = 0;

    registry_transport_reason(name, &transport, reason, sizeof(reason));
    disti_module_directories(directories, sizeof(directories));
    used = (size_t)snprintf(text, size, "%s. Built-in transports:", reason);
    for (int i = 0; registry_transports[i] && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s %s", i ? "," : "",
                                 registry_transports[i]->name);
    if (used < size)
        snprintf(text + used, size - used, "; modules are searched for in %s", directories);
}

bool dist_collective_reduces(dist_collective collective)
{
    return (unsigned)collective < DIST_COLL_COUNT && disti_algorithm_reduces(collective);
}

dist_status dist_backend_query(const char *backend, dist_collective collective, dist_dtype dtype,
                               dist_op op)
{
    const struct dist_backend *found;
    dist_status status;

    if (!dist_collective_reduces(collective))
        op = DIST_SUM;
    if (collective == DIST_COLL_BARRIER)
        dtype = DIST_UINT8;
    if (!backend || (unsigned)collective >= DIST_COLL_COUNT || !disti_dtype_valid(dtype) ||
        (unsigned)op >= DIST_OP_COUNT)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "backend_query: %s is invalid: use the constants of dist.h and backend.h",
                          !backend                                  ? "the backend (NULL)"
                          : (unsigned)collective >= DIST_COLL_COUNT ? "the collective"
                          : !disti_dtype_valid(dtype)               ? "the dtype"
                                                                    : "the op");
    status = disti_backend_find(backend, &found);
    if (status == DIST_OK && !disti_op_fits(op, dtype))
        status = DIST_ERR_UNSUPPORTED;
    if (status == DIST_OK)
        status = found->query(NULL, collective, dtype, op);
    if (status != DIST_ERR_UNSUPPORTED)
        return status;
    return disti_fail(DIST_ERR_UNSUPPORTED, "backend %s has no %s of %s with op %s", found->name,
                      dist_collective_string(collective), dist_dtype_string(dtype),
                      dist_op_string(op));
}

dist_status dist_backend_lacks(const char *backend, uint32_t *lacks_p)
{
    const struct dist_backend *found;
    dist_status status;

    if (!backend || !lacks_p)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "backend_lacks: %s is NULL",
                          backend ? "lacks_p" : "backend");
    status = disti_backend_find(backend, &found);
    if (status == DIST_OK)
        *lacks_p = found->lacks;
    return status;
}

/* ---- checks of tables from modules, before anything in them is called ---- */

static dist_status check_abi(uint32_t abi, uint32_t size, size_t expected, const char *from)
{
    if (abi == DIST_ABI && size >= expected)
        return DIST_OK;
    return disti_fail(DIST_ERR_ABI,
                      "%s was built for ABI %u (%u bytes), this library has ABI %d (%zu bytes): "
                      "build the module again with this library's headers",
                      from, abi, size, DIST_ABI, expected);
}

/* A mandatory slot, and whether it is set. */
struct check_slot {
    const char *name;
    bool set;
};

static dist_status check_slots(const struct check_slot *slots, const char *from)
{
    for (; slots->name; slots++) {
        if (!slots->set)
            return disti_fail(DIST_ERR_ABI, "%s lacks the mandatory slot '%s': set it", from,
                              slots->name);
    }
    return DIST_OK;
}

dist_status disti_backend_check(const struct dist_backend *b, const char *from)
{
    dist_status status = check_abi(b->abi, b->size, sizeof(*b), from);

    if (status != DIST_OK)
        return status;
    const struct check_slot slots[] = {
        {"name", b->name && *b->name},
        {"summary", b->summary != NULL},
        {"probe", b->probe != NULL},
        {"query", b->query != NULL},
        {"open", b->open != NULL},
        {"close", b->close != NULL},
        {"post", b->post != NULL},
        {"progress", b->progress != NULL},
        {"abort", b->abort != NULL},
        {"disarm", !b->arm || b->disarm},
        {"release", !b->prepare || b->release},
        {"free", !b->alloc || b->free},
        {NULL, true},
    };

    return check_slots(slots, from);
}

dist_status disti_transport_check(const struct dist_transport *t, const char *from)
{
    dist_status status = check_abi(t->abi, t->size, sizeof(*t), from);

    if (status != DIST_OK)
        return status;
    const struct check_slot slots[] = {
        {"name", t->name && *t->name},
        {"open", t->open != NULL},
        {"address", t->address != NULL},
        {"reach", t->reach != NULL},
        {"connect", t->connect != NULL},
        {"send", t->send != NULL},
        {"recv", t->recv != NULL},
        {"progress", t->progress != NULL},
        {"arm", t->arm != NULL},
        {"disarm", t->disarm != NULL},
        {"close", t->close != NULL},
        {"probe_tag", t->probe_tag != NULL},
        {NULL, true},
    };

    return check_slots(slots, from);
}

/* ---- lists for users ---- */

#define LIST_REASON 1024
#define LIST_PROBE 2400 /* bytes: two lines, each with a reason */

/* A buffer to which text is appended. `used` also counts text that does not fit. */
struct list {
    char *buffer;
    size_t size, used;
    int third_party; /* number of third-party modules listed */
};

static struct list list_begin(char *buffer, size_t size)
{
    size = buffer ? size : 0;
    if (size)
        buffer[0] = '\0';
    return (struct list){.buffer = buffer, .size = size};
}

__attribute__((format(printf, 2, 3))) static void list_add(struct list *list, const char *format,
                                                           ...)
{
    bool fits = list->used < list->size;
    va_list args;

    va_start(args, format);
    list->used += (size_t)vsnprintf(fits ? list->buffer + list->used : NULL,
                                    fits ? list->size - list->used : 0, format, args);
    va_end(args);
}

/* ---- names ---- */

static bool list_is_built_in(const char *name)
{
    for (int i = 0; registry_built_in[i]; i++) {
        if (strcmp(registry_built_in[i]->name, name) == 0)
            return true;
    }
    return disti_built_in_transport(name);
}

/* Adds the third-party modules in the module directories. */
static void list_add_third_party(struct list *list,
                                 void (*add)(struct list *list, const char *name))
{
    struct disti_module_names names;

    disti_module_names(&names);
    for (int i = 0; i < names.count; i++) {
        /* "mpi_openmpi" and similar names are this project's modules for one MPI. */
        if (!list_is_built_in(names.names[i]) && strncmp(names.names[i], "mpi_", 4) != 0 &&
            !disti_module_is_own(names.names[i]))
            add(list, names.names[i]);
    }
    free(names.names);
}

/* ---- backends and transports ---- */

/* Writes the backend and transport with that name, loading their module into this process. */
static void list_probe_in_process(const char *name, char *text, size_t size)
{
    struct list list = list_begin(text, size);
    const struct dist_backend *backend = NULL;
    const struct dist_transport *transport = NULL;
    char reason[LIST_REASON];
    dist_status status;
    bool usable;

    if (!disti_built_in_transport(name)) {
        status = registry_backend_reason(name, &backend, reason, sizeof(reason));
        if (status != DIST_ERR_UNSUPPORTED ||
            registry_transport_reason(name, &transport, reason, sizeof(reason)) != DIST_OK)
            list_add(&list, "backend %s %s %s\n", name, status == DIST_OK ? "yes" : "no",
                     status == DIST_OK ? backend->summary : reason);
    }
    if (registry_transport_reason(name, &transport, reason, sizeof(reason)) == DIST_OK) {
        usable = !transport->probe ||
                 disti_probe(transport->probe, name, reason, sizeof(reason)) == DIST_OK;
        list_add(&list, "transport %s %s %s\n", name, usable ? "yes" : "no",
                 !usable              ? reason
                 : transport->summary ? transport->summary
                                      : "");
    }
}

/*
 * ---- probes in a child process ----
 *
 * A module that is loaded into this process would stay loaded, and might handle signals, start
 * threads, or crash.
 */

/* Time limit of a probe. A probe should not block, but searching for a device can take a while. */
#define CHILD_SECONDS 5

/* Reads until the child closes its end of the pipe. Returns false if the deadline has passed. */
static bool child_read(int fd, int64_t deadline, char *text, size_t size)
{
    size_t used = 0;

    for (;;) {
        struct pollfd look = {.fd = fd, .events = POLLIN};
        int ready = poll(&look, 1, disti_left_ms(deadline));
        ssize_t got = ready > 0 ? read(fd, text + used, size - 1 - used) : -1;

        if (ready == 0)
            return false;
        if (got == 0 || (got < 0 && errno != EINTR))
            return true;
        if (got > 0)
            used += (size_t)got;
        text[used] = '\0';
    }
}

/* Writes the line for a child that crashed, hung or exited. */
static void child_describe(const char *name, int how, bool late, char *text, size_t size)
{
    char path[1][PATH_MAX], what[128];

    if (disti_module_locate(name, path, 1) == 0)
        snprintf(path[0], sizeof(path[0]), "dist_%s.so", name);
    if (late)
        snprintf(what, sizeof(what), "did not return within %d s", CHILD_SECONDS);
    else if (WIFSIGNALED(how))
        snprintf(what, sizeof(what), "crashed (%s)", strsignal(WTERMSIG(how)));
    else
        snprintf(what, sizeof(what), "ended the process (exit code %d)", WEXITSTATUS(how));
    disti_text(text, size,
               "lost %s no module %.*s %s when it was loaded or probed: a job that uses "
               "it would do the same\n",
               name, REGISTRY_REASON - 1, path[0], what);
}

/*
 * Reads the child's answer and reaps the child. If the program has already reaped the child
 * elsewhere, the probe succeeds if the child has answered.
 */
static void child_collect(const char *name, pid_t child, int fd, char *text, size_t size)
{
    const int64_t deadline = disti_deadline_ms(CHILD_SECONDS * 1000);
    bool late = !child_read(fd, deadline, text, size), reaped;
    siginfo_t ended = {.si_pid = 0};
    int how = 0;

    /* A module may close all descriptors and then hang. */
    while (!late && waitid(P_PID, (id_t)child, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           !ended.si_pid) {
        disti_sleep_ns(1000000);
        late = disti_expired(deadline);
    }
    if (late)
        kill(child, SIGKILL);
    while (!(reaped = waitpid(child, &how, 0) == child) && errno == EINTR) {
    }
    if (late || (reaped ? !WIFEXITED(how) || WEXITSTATUS(how) != 0 : !text[0]))
        child_describe(name, how, late, text, size);
}

/* Consumes the SIGCHLD of the probing child, if this thread would receive it. */
static void child_consume_signal(const sigset_t *before)
{
    const struct timespec now = {0, 0};
    sigset_t child;

    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    /* If another child of the program has ended too, raises the signal again for it. */
    if (!sigismember(before, SIGCHLD) && sigtimedwait(&child, NULL, &now) == SIGCHLD) {
        siginfo_t ended = {.si_pid = 0};

        if (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid)
            raise(SIGCHLD);
    }
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

/* Like list_probe_in_process(), but in a child process that has 5 s. If the child crashes or does
 * not answer, writes a line "lost NAME no REASON". Does not change this process. */
static void list_probe_in_child(const char *name, char *text, size_t size)
{
    sigset_t child_signal, before;
    int ends[2];
    pid_t child;

    text[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) < 0) {
        snprintf(text, size, "lost %s no it could not be probed: %s\n", name, strerror(errno));
        return;
    }
    sigemptyset(&child_signal);
    sigaddset(&child_signal, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &child_signal, &before);
    child = fork();
    if (child == 0) { /* the program's signal handlers must not run in the child */
        const struct rlimit none = {0, 0};
        size_t length;

        for (int number = 1; number < NSIG; number++)
            signal(number, SIG_DFL);
        setrlimit(RLIMIT_CORE, &none);
        list_probe_in_process(name, text, size);
        length = strlen(text);
        _exit(write(ends[1], text, length) == (ssize_t)length ? 0 : 1);
    }
    if (child < 0)
        snprintf(text, size, "lost %s no it could not be probed: %s\n", name, strerror(errno));
    close(ends[1]);
    if (child > 0)
        child_collect(name, child, ends[0], text, size);
    close(ends[0]);
    child_consume_signal(&before);
}

static void list_probe(const char *name, char text[LIST_PROBE])
{
    const char *names[DISTI_MPI_FLAVOURS];
    char reason[REGISTRY_REASON];
    int count = registry_module_names(name, names, reason, sizeof(reason));
    bool loaded = false;

    for (int i = 0; i < count; i++)
        loaded = loaded || disti_module_is_loaded(names[i]);
    /* A child of a process that uses a GPU cannot use the driver, so nccl is then loaded in this
     * process. */
    if (list_is_built_in(name) || loaded || (strcmp(name, "nccl") == 0 && disti_driver_loaded()))
        list_probe_in_process(name, text, LIST_PROBE);
    else
        list_probe_in_child(name, text, LIST_PROBE);
}

size_t dist_probe_name(const char *name, char *buffer, size_t size)
{
    struct list list = list_begin(buffer, size);
    char text[LIST_PROBE];

    list_probe(name ? name : "", text);
    list_add(&list, "%s", text);
    return list.used;
}

static void list_add_backend(struct list *list, const char *name)
{
    char text[LIST_PROBE], kind[16], runs[8], *rest;
    int at;

    list_probe(name, text);
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        at = 0;
        if (sscanf(line, "%15s %*s %7s %n", kind, runs, &at) == 2 && at &&
            strcmp(kind, "transport") != 0)
            list_add(list, "  %-6s %-4s %s\n", name, runs, line + at);
    }
}

static void list_add_own(struct list *list)
{
    for (int i = 0; registry_built_in[i]; i++)
        list_add_backend(list, registry_built_in[i]->name);
    for (int i = 0; registry_modules[i]; i++)
        list_add_backend(list, registry_modules[i]);
}

size_t dist_list_backends(char *buffer, size_t size)
{
    struct list list = list_begin(buffer, size);

    list_add_own(&list);
    list_add_third_party(&list, list_add_backend);
    return list.used;
}

static void list_add_choice(struct list *list, const char *name)
{
    list_add(list, "%s%s", list->third_party++ ? ", " : "  other modules: ", name);
}

/* Writes this project's backends in the format of dist_list_backends(), and the names of other
 * modules. */
static size_t list_choices(char *text, size_t size)
{
    struct list list = list_begin(text, size);

    list_add_own(&list);
    list_add_third_party(&list, list_add_choice);
    list_add(&list, list.third_party ? "\n" : "");
    return list.used;
}

dist_status disti_backend_find(const char *name, const struct dist_backend **backend_p)
{
    char reason[REGISTRY_REASON], directories[REGISTRY_REASON], choices[2048];
    dist_status status = registry_backend_reason(name, backend_p, reason, sizeof(reason));

    if (status == DIST_OK)
        return DIST_OK;
    disti_module_directories(directories, sizeof(directories));
    list_choices(choices, sizeof(choices));
    return disti_fail(
        status == DIST_ERR_ABI ? status : DIST_ERR_NO_BACKEND,
        "backend '%s' cannot be used: %s. Modules are searched for in %s. Choose one of these:\n%s",
        name, reason, directories, choices);
}

/* ---- all names ---- */

static void list_add_name(struct list *list, const char *name)
{
    list_add(list, "%s\n", name);
}

size_t dist_list_names(char *buffer, size_t size)
{
    struct list list = list_begin(buffer, size);

    for (int i = 0; registry_built_in[i]; i++)
        list_add_name(&list, registry_built_in[i]->name);
    for (int i = 0; registry_modules[i]; i++)
        list_add_name(&list, registry_modules[i]);
    for (int i = 0; registry_transports[i]; i++)
        list_add_name(&list, registry_transports[i]->name);
    list_add_third_party(&list, list_add_name);
    return list.used;
}

/* ---- variables ---- */

size_t dist_list_variables(char *buffer, size_t size)
{
    struct list list = list_begin(buffer, size);
    char name[DISTI_VARIABLE_ROOM], before[1024];

    for (size_t i = 0; i < disti_variable_count; i++)
        list_add(&list, "own\t%s\t%s\t%s\n", disti_variables[i].name, disti_variables[i].unset,
                 disti_variables[i].meaning);
    for (size_t i = 0; i < disti_foreign_count; i++)
        list_add(&list, "foreign\t%s\t%s\t%s\n", disti_foreigns[i].name, disti_foreigns[i].owner,
                 disti_foreigns[i].meaning);
    for (char **item = environ; item && *item; item++) {
        if (disti_variable_of(*item, name, sizeof(name)) &&
            !disti_variable_is_known(name, disti_module_has_variable)) {
            const struct disti_variable *like = disti_variable_like(name);

            list_add(&list, "unknown\t%s\t%s\t%s\n", name, like ? like->name : "",
                     like ? like->meaning : "");
        }
    }
    disti_text(before, sizeof(before), "%s", dist_last_error());
    for (size_t i = 0; i < disti_variable_count; i++) {
        if (disti_setting_check(disti_variables[i].name) != DIST_OK)
            list_add(&list, "wrong\t%s\t\t%s\n", disti_variables[i].name, dist_last_error());
    }
    dist_set_last_error(DIST_OK, before);
    return list.used;
}
