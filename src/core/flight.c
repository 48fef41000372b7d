/* SPDX-License-Identifier: BSD-3-Clause */
/* Rings of calls: an entry is found by the call's sequence. */
#include "base/settings/config.h"

#include "base/clock.h"
#include "base/collective.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/process.h"
#include "base/thread.h"
#include "core/flight.h"
#include "core/group.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RING_CALLS 1024

dist_status disti_flight_open(struct disti_flight *flight)
{
    dist_status status;
    int calls;

    atomic_init(&flight->calls.entries, &flight->none);
    atomic_init(&flight->messages.entries, &flight->none);
    status = disti_variable_int("DIST_FLIGHT", RING_CALLS, &calls);
    flight->off = status == DIST_OK && calls == 0;
    return status;
}

static struct disti_flight_ring *ring_of(struct disti_flight *flight, const struct dist_call *call)
{
    return disti_collective_pair(call->collective) ? &flight->messages : &flight->calls;
}

/* The clean pages of a new one take no memory until they are written to. Without memory, as with
 * DIST_FLIGHT=0, nothing is recorded. */
static void ring_make(struct disti_flight *flight, struct disti_flight_ring *ring)
{
    struct disti_flight_entry *entries;
    uint64_t count;
    int calls;

    if (flight->off || atomic_load_explicit(&ring->entries, memory_order_relaxed) != &flight->none)
        return;
    if (disti_variable_int("DIST_FLIGHT", RING_CALLS, &calls) != DIST_OK)
        calls = 0;
    count = 1;
    while (count < (uint64_t)calls)
        count *= 2;
    entries = calls ? calloc(count, sizeof(*entries)) : NULL;
    flight->off = !entries;
    if (!entries)
        return;
    ring->mask = count - 1;
    atomic_store_explicit(&ring->entries, entries, memory_order_release);
}

void disti_flight_begin(struct disti_flight *flight, const struct dist_call *call, const char *name)
{
    struct disti_flight_ring *ring = ring_of(flight, call);
    struct disti_flight_entry *entry;

    ring_make(flight, ring);
    entry = disti_flight_entry(ring, call->sequence);
    atomic_store_explicit(&entry->what, DISTI_FLIGHT_NONE, memory_order_relaxed);
    atomic_store_explicit(&entry->count, call->count, memory_order_relaxed);
    atomic_store_explicit(&entry->sequence, call->sequence, memory_order_relaxed);
    atomic_store_explicit(&entry->begun_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->ended_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->name, name, memory_order_relaxed);
    atomic_store_explicit(&entry->tag, call->tag, memory_order_relaxed);
    atomic_store_explicit(&entry->status, DIST_OK, memory_order_relaxed);
    atomic_store_explicit(&entry->what, disti_flight_what(call, DISTI_FLIGHT_BEGUN),
                          memory_order_release);
}

/* NULL: so many calls later another one stands there. */
static struct disti_flight_entry *ring_find(struct disti_flight *flight,
                                            const struct dist_call *call)
{
    struct disti_flight_entry *entry = disti_flight_entry(ring_of(flight, call), call->sequence);

    return atomic_load_explicit(&entry->sequence, memory_order_relaxed) == call->sequence ? entry
                                                                                          : NULL;
}

void disti_flight_go(struct disti_flight *flight, const struct dist_call *call,
                     enum disti_flight_state state, int64_t now_ns)
{
    struct disti_flight_entry *entry = ring_find(flight, call);

    if (!entry)
        return;
    atomic_store_explicit(&entry->what, disti_flight_what(call, state), memory_order_relaxed);
    atomic_store_explicit(state == DISTI_FLIGHT_WAITING ? &entry->begun_ns : &entry->ended_ns,
                          now_ns, memory_order_relaxed);
}

void disti_flight_end(struct disti_flight *flight, const struct dist_call *call, dist_status status)
{
    struct disti_flight_entry *entry = ring_find(flight, call);

    if (!entry)
        return;
    atomic_store_explicit(&entry->status, status, memory_order_relaxed);
    disti_flight_go(flight, call, status == DIST_OK ? DISTI_FLIGHT_DONE : DISTI_FLIGHT_FAILED,
                    disti_now_ns());
}

static void ring_free(struct disti_flight *flight, struct disti_flight_ring *ring)
{
    struct disti_flight_entry *entries = atomic_load(&ring->entries);

    ring->mask = 0;
    atomic_store(&ring->entries, &flight->none);
    if (entries != &flight->none)
        free(entries);
}

void disti_flight_free(struct disti_flight *flight)
{
    ring_free(flight, &flight->calls);
    ring_free(flight, &flight->messages);
    free(atomic_exchange(&flight->waits_for, NULL));
}

/* Where dumps go: a file, on a file system that may not answer. */

#define SAVE_MS 500

/* Empties a file that was there, and refuses that of another user, who may have laid it for us.
 * Returns an errno. */
static int save_empty(int fd)
{
    struct stat status;

    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        return 0;
    if (status.st_uid != geteuid())
        return EPERM;
    return ftruncate(fd, 0) != 0 ? errno : 0;
}

static int save_write(int fd, const struct disti_flight_text *text)
{
    for (size_t from = 0; from < text->used;) {
        ssize_t written = disti_file_write(fd, text->bytes + from, text->used - from);

        if (written > 0)
            from += (size_t)written;
        else if (errno != EINTR)
            return errno ? errno : EIO;
    }
    return text->cut ? ENOMEM : 0;
}

/* A FIFO that nobody reads is an error, and no wait. */
#define SAVE_FLAGS (O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY)

/*
 * A file that is new is ours, whoever its owner is: shares and mounts that map users show another.
 * Returns an errno.
 */
static int save_open(const char *path, int *fd_p)
{
    *fd_p = open(path, SAVE_FLAGS | O_CREAT | O_EXCL, 0644);
    if (*fd_p >= 0 || errno != EEXIST)
        return *fd_p < 0 ? errno : 0;
    *fd_p = open(path, SAVE_FLAGS);
    return *fd_p < 0 ? errno : save_empty(*fd_p);
}

/* Writes it to a file that is made, or made new, and frees it. 0, or an errno. Async-signal-safe;
 * blocks as long as the file system does. */
static int flight_save(const char *path, struct disti_flight_text *text)
{
    int fd, error = save_open(path, &fd);

    if (!error)
        error = save_write(fd, text);
    if (fd >= 0 && close(fd) != 0 && !error)
        error = errno;
    if (text->room)
        disti_pages_unmap(text->bytes, text->room);
    *text = (struct disti_flight_text){0};
    return error;
}

/* ---- by a thread ---- */

/* What the thread writes, and who waits for it: the last of them frees it. */
struct save {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done, left;
    int error;
    struct disti_flight_text text;
    char path[DISTI_FLIGHT_PATH];
};

static void save_free(struct save *save)
{
    pthread_cond_destroy(&save->changed);
    pthread_mutex_destroy(&save->lock);
    free(save);
}

static struct save *save_new(const char *path, const struct disti_flight_text *text)
{
    struct save *save = calloc(1, sizeof(*save));
    pthread_condattr_t clock;

    if (!save)
        return NULL;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&save->lock, NULL);
    pthread_cond_init(&save->changed, &clock);
    pthread_condattr_destroy(&clock);
    save->text = *text;
    snprintf(save->path, sizeof(save->path), "%s", path);
    return save;
}

static void *save_run(void *arg)
{
    struct save *save = arg;
    const int error = flight_save(save->path, &save->text);
    bool left;

    pthread_mutex_lock(&save->lock);
    save->error = error;
    save->done = true;
    left = save->left;
    pthread_cond_signal(&save->changed);
    pthread_mutex_unlock(&save->lock);
    if (left)
        save_free(save);
    return NULL;
}

static bool save_start(struct save *save)
{
    pthread_t thread;

    return disti_thread_create(&thread, save_run, save) == 0 && pthread_detach(thread) == 0;
}

static int save_wait(struct save *save)
{
    const struct timespec end = disti_clock_timespec(disti_deadline_ms(SAVE_MS));
    int error = 0;
    bool done;

    pthread_mutex_lock(&save->lock);
    while (!save->done && error == 0)
        error = pthread_cond_timedwait(&save->changed, &save->lock, &end);
    done = save->done;
    save->left = true;
    error = done ? save->error : ETIMEDOUT;
    pthread_mutex_unlock(&save->lock);
    if (done)
        save_free(save);
    return error;
}

/* The same, for half a second at most: then ETIMEDOUT, and a thread goes on with it. */
static int flight_save_soon(const char *path, struct disti_flight_text *text)
{
    struct save *save = save_new(path, text);

    if (save && save_start(save)) {
        *text = (struct disti_flight_text){0};
        return save_wait(save);
    }
    if (save)
        save_free(save);
    return flight_save(path, text);
}

/* A dump of the flight recorder: JSON, made with calls that a signal handler may make. */

#define DUMP_ROOM (1u << 16) /* bytes at first */

struct dump {
    struct disti_flight_text *out;
    int64_t wall_ns; /* the time of day when the clock was 0 */
};

/* ---- text, without stdio and malloc ---- */

static bool dump_grow(struct disti_flight_text *out)
{
    const size_t room = out->room ? 2 * out->room : DUMP_ROOM;
    void *bytes = out->room ? disti_pages_grow(out->bytes, out->room, room)
                            : disti_pages_map(NULL, room, PROT_READ | PROT_WRITE,
                                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (bytes == MAP_FAILED)
        return false;
    out->bytes = bytes;
    out->room = room;
    return true;
}

static void dump_byte(struct dump *dump, char byte)
{
    struct disti_flight_text *out = dump->out;

    if (out->cut)
        return;
    if (out->used == out->room && !dump_grow(out))
        out->cut = true;
    else
        out->bytes[out->used++] = byte;
}

static void dump_text(struct dump *dump, const char *text)
{
    while (*text)
        dump_byte(dump, *text++);
}

static void dump_digits(struct dump *dump, uint64_t number, unsigned base, int least)
{
    char digits[24];
    int count = 0;

    for (; number || count < least; number /= base)
        digits[count++] = "0123456789abcdef"[number % base];
    while (count > 0)
        dump_byte(dump, digits[--count]);
}

static void dump_number(struct dump *dump, int64_t number)
{
    if (number < 0)
        dump_byte(dump, '-');
    dump_digits(dump, number < 0 ? 0 - (uint64_t)number : (uint64_t)number, 10, 1);
}

/* In quotes. What another thread is writing at this moment may lack its end: hence `most`. */
static void dump_string(struct dump *dump, const char *text, size_t most)
{
    dump_byte(dump, '"');
    for (; most > 0 && *text; most--, text++) {
        if (*text == '"' || *text == '\\')
            dump_byte(dump, '\\');
        dump_byte(dump, *text >= ' ' && *text <= '~' ? *text : '?');
    }
    dump_byte(dump, '"');
}

/* ,"name": */
static void dump_name(struct dump *dump, const char *name)
{
    dump_text(dump, ",\"");
    dump_text(dump, name);
    dump_text(dump, "\":");
}

static void dump_member(struct dump *dump, const char *name, int64_t number)
{
    dump_name(dump, name);
    dump_number(dump, number);
}

static void dump_words(struct dump *dump, const char *name, const char *text, size_t most)
{
    dump_name(dump, name);
    dump_string(dump, text, most);
}

/* Seconds since 1970. */
static void dump_time(struct dump *dump, const char *name, int64_t ns)
{
    const uint64_t us = (uint64_t)(dump->wall_ns + ns) / 1000;

    dump_name(dump, name);
    dump_digits(dump, us / 1000000, 10, 1);
    dump_byte(dump, '.');
    dump_digits(dump, us % 1000000, 10, 6);
}

/* ---- calls ---- */

static const char *const dump_states[] = {
    [DISTI_FLIGHT_BEGUN] = "begun",   [DISTI_FLIGHT_WAITING] = "waiting",
    [DISTI_FLIGHT_DONE] = "done",     [DISTI_FLIGHT_ENDED] = "done",
    [DISTI_FLIGHT_FAILED] = "failed", [DISTI_FLIGHT_REFUSED] = "refused"};

/* what: as it was when it was found to be that call's; the entry may be another's since. */
static void dump_entry(struct dump *dump, const struct disti_flight_entry *entry, uint64_t sequence,
                       uint64_t what)
{
    const unsigned state = (unsigned)(what >> 56), op = (unsigned)(what >> 48) & 0xff;
    const char *name = atomic_load(&entry->name);
    const char *collective = dist_collective_string((dist_collective)(what >> 32 & 0xff));

    dump_text(dump, "\n    {\"sequence\":");
    dump_number(dump, (int64_t)sequence);
    if (state == DISTI_FLIGHT_ENDED || !name)
        name = collective;
    dump_words(dump, "call", name, SIZE_MAX);
    dump_member(dump, "count", (int64_t)atomic_load(&entry->count));
    dump_words(dump, "dtype", dist_dtype_string((dist_dtype)(what >> 40 & 0xff)), SIZE_MAX);
    dump_words(dump, "op", op == DISTI_FLIGHT_OP_CREATED ? "created" : dist_op_string((dist_op)op),
               SIZE_MAX);
    dump_member(dump, "root", (int32_t)(uint32_t)what);
    dump_words(dump, "state", dump_states[state], SIZE_MAX);
    if (disti_collective_pair((dist_collective)(what >> 32 & 0xff)))
        dump_member(dump, "tag", atomic_load(&entry->tag));
    if (state == DISTI_FLIGHT_FAILED)
        dump_words(dump, "status", dist_status_string((dist_status)atomic_load(&entry->status)),
                   SIZE_MAX);
    if (state != DISTI_FLIGHT_ENDED) {
        const int64_t begun = atomic_load(&entry->begun_ns), ended = atomic_load(&entry->ended_ns);

        if (begun)
            dump_time(dump, "begun", begun);
        if (ended)
            dump_time(dump, "ended", ended);
    }
    dump_byte(dump, '}');
}

static bool dump_has(const struct disti_flight_entry *entry)
{
    return atomic_load(&entry->what) >> 56 != DISTI_FLIGHT_NONE;
}

/* Does the entry hold the call of that number? Not while it is written over. */
static bool dump_holds(const struct disti_flight_entry *entry, uint64_t sequence, uint64_t *what_p)
{
    *what_p = atomic_load(&entry->what);
    return *what_p >> 56 != DISTI_FLIGHT_NONE && atomic_load(&entry->sequence) == sequence &&
           atomic_load(&entry->what) == *what_p;
}

/* The newest sequence; false: there was no call. */
static bool dump_newest(const struct disti_flight_entry *entries, uint64_t mask, uint64_t *newest_p)
{
    bool any = false;

    *newest_p = 0;
    for (uint64_t i = 0; i <= mask; i++) {
        const uint64_t sequence = atomic_load(&entries[i].sequence);

        if (dump_has(&entries[i]) && sequence >= *newest_p)
            *newest_p = sequence;
        any = any || dump_has(&entries[i]);
    }
    return any;
}

/* Of so many entries the oldest is left out: calls that begin meanwhile write over those. */
#define DUMP_MARGIN 64

/* Oldest first. What is being written over at this moment is left out. */
static void dump_entries(struct dump *dump, const struct disti_flight_entry *entries, uint64_t mask)
{
    bool first = true;
    uint64_t newest, what, kept = mask - mask / DUMP_MARGIN;

    if (!dump_newest(entries, mask, &newest))
        return;
    for (uint64_t sequence = newest > kept ? newest - kept : 0; sequence <= newest; sequence++) {
        const struct disti_flight_entry *entry = &entries[sequence & mask];

        if (!dump_holds(entry, sequence, &what))
            continue;
        if (!first)
            dump_byte(dump, ',');
        dump_entry(dump, entry, sequence, what);
        first = false;
    }
}

static void dump_ring(struct dump *dump, const char *name, const struct disti_flight_ring *ring,
                      const struct disti_flight_entry *none)
{
    const struct disti_flight_entry *entries = atomic_load(&ring->entries);

    dump_name(dump, name);
    dump_byte(dump, '[');
    if (entries != none)
        dump_entries(dump, entries, ring->mask);
    dump_byte(dump, ']');
}

/* ---- groups ---- */

static void dump_group(struct dump *dump, const struct dist_group *group)
{
    const struct disti_flight *flight = &group->flight;
    const char *waits_for = atomic_load(&flight->waits_for);

    dump_text(dump, "\n  {\"group\":");
    dump_number(dump, group->number);
    dump_text(dump, ",\"job\":\"");
    /* The job's name lets its owner into the store: its hash names the job as well. */
    dump_digits(dump, disti_hash_text(DISTI_HASH_START, group->world->bootstrap.job), 16, 16);
    dump_byte(dump, '"');
    dump_member(dump, "rank", group->rank);
    dump_member(dump, "world_rank", group->world->rank);
    dump_name(dump, "members");
    for (int r = 0; r < group->world_size; r++) {
        dump_byte(dump, r ? ',' : '[');
        dump_number(dump, group->members[r]);
    }
    dump_byte(dump, ']');
    dump_words(dump, "backend", group->backend ? group->backend->name : "", SIZE_MAX);
    dump_member(dump, "timeout_ms", group->timeout_ms);
    if (waits_for && waits_for[0])
        dump_words(dump, "waits_for", waits_for, DISTI_FLIGHT_WAITS);
    if (atomic_load(&flight->failed))
        dump_words(dump, "error", group->cause, GROUP_TEXT);
    dump_ring(dump, "calls", &flight->calls, &flight->none);
    dump_ring(dump, "messages", &flight->messages, &flight->none);
    dump_byte(dump, '}');
}

/*
 * Makes a text of what the groups of the list have recorded. Async-signal-safe; the groups must
 * stay meanwhile.
 */
static void flight_compose(struct disti_flight_text *text, const struct disti_flight_head *head,
                           const struct dist_group *groups)
{
    struct dump dump = {.out = text};
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    dump.wall_ns = now.tv_sec * INT64_C(1000000000) + now.tv_nsec - disti_now_ns();
    dump_text(&dump, "{\"format\":\"dist-flight\",\"version\":1");
    dump_words(&dump, "libdist", DIST_VERSION_STRING, SIZE_MAX);
    dump_words(&dump, "host", head->host, sizeof(head->host));
    dump_member(&dump, "pid", getpid());
    dump_words(&dump, "reason", head->reason, SIZE_MAX);
    dump_time(&dump, "time", disti_now_ns());
    dump_name(&dump, "groups");
    dump_byte(&dump, '[');
    for (const struct dist_group *group = groups; group; group = group->flight.next) {
        dump_group(&dump, group);
        if (group->flight.next)
            dump_byte(&dump, ',');
    }
    dump_text(&dump, "]}\n");
}

/* When the flight recorder writes a dump: at a failure, at SIGUSR1, and when the program asks. */

#define TRIGGER_FILE "dist-flight.%r.json"
/* So many files of a process at most: from then on the last is written again. */
#define TRIGGER_FILES 9

/*
 * All groups that the program has, for who writes a dump. A signal handler cannot wait for a mutex
 * that its own thread holds: so `taken` is held with signals blocked.
 */
static struct {
    atomic_flag taken;
    struct dist_group *groups; /* by flight.next */
    char path[512];            /* as DIST_FLIGHT_FILE says; "": no group was shown yet */
    char host[DISTI_HOST_SIZE];
    bool same;   /* that is no file, but such as a terminal: written to again and again */
    int written; /* files of that path */
} trigger = {.taken = ATOMIC_FLAG_INIT};

static void trigger_take(sigset_t *mask)
{
    sigset_t all;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, mask);
    while (atomic_flag_test_and_set(&trigger.taken))
        sched_yield();
}

static void trigger_give(const sigset_t *mask)
{
    atomic_flag_clear(&trigger.taken);
    pthread_sigmask(SIG_SETMASK, mask, NULL);
}

/*
 * The first file has the path's name; later ones, in the order of what went wrong, ".2" and so on
 * behind it. Without stdio, and without a look at a disk, which may not answer.
 */
static void trigger_name(char path[DISTI_FLIGHT_PATH])
{
    const size_t length = strnlen(trigger.path, sizeof(trigger.path) - 1);

    memcpy(path, trigger.path, length);
    path[length] = '\0';
    if (trigger.same)
        return;
    trigger.written += trigger.written < TRIGGER_FILES;
    if (trigger.written > 1) {
        path[length] = '.';
        path[length + 1] = (char)('0' + trigger.written);
        path[length + 2] = '\0';
    }
}

/* What there is to tell; `path`, unless it is NULL: the file for it. False: nothing. */
static bool trigger_compose(const char *reason, struct disti_flight_text *text, char *path)
{
    struct disti_flight_head head = {.reason = reason};
    sigset_t mask;
    bool any;

    trigger_take(&mask);
    memcpy(head.host, trigger.host, sizeof(head.host));
    any = trigger.groups;
    if (any)
        flight_compose(text, &head, trigger.groups);
    if (any && path)
        trigger_name(path);
    trigger_give(&mask);
    return any;
}

/* ---- the signal ---- */

static void trigger_signal(int number)
{
    struct disti_flight_text text = {0};
    char path[DISTI_FLIGHT_PATH];
    int saved = errno;

    (void)number;
    if (trigger_compose("signal", &text, path))
        flight_save(path, &text);
    errno = saved;
}

static bool trigger_is(void (*handler)(int))
{
    struct sigaction now;

    return sigaction(SIGUSR1, NULL, &now) == 0 && !(now.sa_flags & SA_SIGINFO) &&
           now.sa_handler == handler;
}

static void trigger_set(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};

    sigemptyset(&action.sa_mask);
    sigaction(SIGUSR1, &action, NULL);
}

/* A program that handles the signal itself, before or after, keeps it. */
void disti_flight_watch(void)
{
    if (trigger_is(SIG_DFL))
        trigger_set(trigger_signal);
}

/* The process is in exit(), or a program that has libdist.a in a shared object of its own unloads
 * that, and the handler with it. */
__attribute__((destructor)) static void trigger_unload(void)
{
    if (trigger_is(trigger_signal))
        trigger_set(SIG_IGN);
}

/* ---- groups ---- */

void disti_flight_show(struct dist_group *group)
{
    const char *pattern = disti_env("DIST_FLIGHT_FILE");
    char path[sizeof(trigger.path)];
    struct stat status;
    sigset_t mask;
    bool same;

    disti_file_name(pattern && *pattern ? pattern : TRIGGER_FILE, group->world->rank, path,
                    sizeof(path));
    same = lstat(path, &status) == 0 && !S_ISREG(status.st_mode);
    trigger_take(&mask);
    memcpy(trigger.path, path, sizeof(path));
    trigger.same = same;
    disti_host_short(trigger.host);
    group->flight.next = trigger.groups;
    if (trigger.groups)
        trigger.groups->flight.self = &group->flight.next;
    group->flight.self = &trigger.groups;
    trigger.groups = group;
    trigger_give(&mask);
}

void disti_flight_hide(struct dist_group *group)
{
    sigset_t mask;

    if (!group->flight.self)
        return;
    trigger_take(&mask);
    *group->flight.self = group->flight.next;
    if (group->flight.next)
        group->flight.next->flight.self = group->flight.self;
    group->flight.self = NULL;
    trigger_give(&mask);
}

/* A group of one waits for nobody. Who has waited until its deadline does not wait for a disk. */
bool disti_flight_failed(struct dist_group *group, const char *reason, char path[DISTI_FLIGHT_PATH])
{
    struct disti_flight_text text = {0};
    int error;

    atomic_store(&group->flight.failed, true);
    if (group->world_size == 1 || group->flight.off || !trigger_compose(reason, &text, path))
        return false;
    error = flight_save_soon(path, &text);
    if (error == ETIMEDOUT)
        disti_warn("the flight recorder still writes %s: its file system does not answer", path);
    else if (error)
        disti_warn("the flight recorder cannot write %s: %s", path, strerror(error));
    return !error;
}

/* The parent's groups are the parent's. No thread is left that could hold them. */
void disti_flight_forked(void)
{
    atomic_flag_clear(&trigger.taken);
    trigger.groups = NULL;
    trigger.written = 0;
}

dist_status dist_flight_dump(const char *path)
{
    struct disti_flight_text text = {0};
    char usual[DISTI_FLIGHT_PATH];

    if (!trigger_compose("asked", &text, path ? NULL : usual))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_flight_dump: this process has no group: join a job first "
                          "(dist_init_process_group)");
    path = path ? path : usual;
    errno = flight_save(path, &text);
    return errno ? disti_fail_errno(DIST_ERR_SYSTEM,
                                    "dist_flight_dump: cannot write %s: give another path, or set "
                                    "DIST_FLIGHT_FILE",
                                    path)
                 : DIST_OK;
}
