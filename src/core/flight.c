/* SPDX-License-Identifier: BSD-3-Clause */
/* The flight recorder: rings of the last calls, and their dumps as JSON. */
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

/* Allocates a ring. Its pages use no memory until they are written. With DIST_FLIGHT=0 or
 * without memory, recording is disabled. */
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

/* Returns the entry of the call, or NULL if a later call has overwritten it. */
static struct disti_flight_entry *ring_find(struct disti_flight *flight,
                                            const struct dist_call *call)
{
    struct disti_flight_entry *entry = disti_flight_entry(ring_of(flight, call), call->sequence);

    return atomic_load_explicit(&entry->sequence, memory_order_relaxed) == call->sequence ? entry
                                                                                          : NULL;
}

void disti_flight_set_state(struct disti_flight *flight, const struct dist_call *call,
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
    disti_flight_set_state(
        flight, call, status == DIST_OK ? DISTI_FLIGHT_DONE : DISTI_FLIGHT_FAILED, disti_now_ns());
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

/* Writing a dump to a file, whose file system may not respond. */

#define SAVE_MS 500

/* Truncates an existing file. Rejects a file of another user, who may have placed it there.
 * Returns 0 or an errno value. */
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

/* O_NONBLOCK: opening a FIFO without a reader fails instead of blocking. */
#define SAVE_FLAGS (O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY)

/* Opens or creates the file. The owner of a new file is not checked, since network file systems
 * and mounts that map users may report another owner. Returns 0 or an errno value. */
static int save_open(const char *path, int *fd_p)
{
    *fd_p = open(path, SAVE_FLAGS | O_CREAT | O_EXCL, 0644);
    if (*fd_p >= 0 || errno != EEXIST)
        return *fd_p < 0 ? errno : 0;
    *fd_p = open(path, SAVE_FLAGS);
    return *fd_p < 0 ? errno : save_empty(*fd_p);
}

/* Writes the text to a new or truncated file and frees it. Returns 0 or an errno value.
 * Async-signal-safe; blocks as long as the file system does. */
static int flight_save(const char *path, struct disti_flight_text *text)
{
    int fd, error = save_open(path, &fd);

    if (!error)
        error = save_write(fd, text);
    if (fd >= 0 && close(fd) != 0 && !error)
        error = errno;
    if (text->capacity)
        disti_pages_unmap(text->bytes, text->capacity);
    *text = (struct disti_flight_text){0};
    return error;
}

/* ---- writing in a thread ---- */

/* Shared by the writing thread and the thread that waits for it. The last of the two frees it. */
struct save {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done, abandoned; /* written; no longer waited for */
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
    bool abandoned;

    pthread_mutex_lock(&save->lock);
    save->error = error;
    save->done = true;
    abandoned = save->abandoned;
    pthread_cond_signal(&save->changed);
    pthread_mutex_unlock(&save->lock);
    if (abandoned)
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
    save->abandoned = true;
    error = done ? save->error : ETIMEDOUT;
    pthread_mutex_unlock(&save->lock);
    if (done)
        save_free(save);
    return error;
}

/* Like flight_save, but blocks for at most SAVE_MS: then returns ETIMEDOUT while a thread
 * continues to write. */
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

/* Composing a dump: JSON, with async-signal-safe calls only. */

#define DUMP_CAPACITY (1u << 16) /* initial size in bytes */

struct dump {
    struct disti_flight_text *out;
    int64_t wall_ns; /* time of day at which the monotonic clock was 0 */
};

/* ---- text, without stdio and malloc ---- */

static bool dump_grow(struct disti_flight_text *out)
{
    const size_t capacity = out->capacity ? 2 * out->capacity : DUMP_CAPACITY;
    void *bytes = out->capacity ? disti_pages_grow(out->bytes, out->capacity, capacity)
                                : disti_pages_map(NULL, capacity, PROT_READ | PROT_WRITE,
                                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (bytes == MAP_FAILED)
        return false;
    out->bytes = bytes;
    out->capacity = capacity;
    return true;
}

static void dump_byte(struct dump *dump, char byte)
{
    struct disti_flight_text *out = dump->out;

    if (out->cut)
        return;
    if (out->used == out->capacity && !dump_grow(out))
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

/* Writes a string in quotes, at most `most` bytes: a text that another thread is writing may
 * lack its terminator. */
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

/* Writes a member with the time in seconds since 1970. */
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

/* `what` is the value read when the entry held this call; the entry may have been overwritten
 * since. */
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

/* True if the entry holds the call `sequence` and is not being overwritten. */
static bool dump_holds(const struct disti_flight_entry *entry, uint64_t sequence, uint64_t *what_p)
{
    *what_p = atomic_load(&entry->what);
    return *what_p >> 56 != DISTI_FLIGHT_NONE && atomic_load(&entry->sequence) == sequence &&
           atomic_load(&entry->what) == *what_p;
}

/* Finds the newest sequence number. Returns false if no call is recorded. */
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

/* The oldest 1/DUMP_MARGIN of the entries are omitted, since new calls overwrite them during the
 * dump. */
#define DUMP_MARGIN 64

/* Writes the entries, oldest first, without those that are being overwritten. */
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
    /* The hash instead of the job's name, since the name grants access to the store. */
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

/* Composes the text for a list of groups, which must not change meanwhile. Async-signal-safe. */
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

/* Triggers of a dump: a failure, SIGUSR1, dist_flight_dump. */

#define TRIGGER_FILE "dist-flight.%r.json"
/* At most TRIGGER_FILES files per process; later dumps overwrite the last file. */
#define TRIGGER_FILES 9

/* All groups of the program, for the thread that writes a dump. `taken` is a spin lock held with
 * signals blocked, since a signal handler cannot wait for a mutex that its own thread holds. */
static struct {
    atomic_flag taken;
    struct dist_group *groups; /* linked by flight.next */
    char path[512];            /* from DIST_FLIGHT_FILE; "": no group was added yet */
    char host[DISTI_HOST_SIZE];
    bool is_reused; /* `path` is not a regular file: every dump is written to it */
    int written;    /* number of files written */
} trigger = {.taken = ATOMIC_FLAG_INIT};

static void trigger_acquire(sigset_t *mask)
{
    sigset_t all;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, mask);
    while (atomic_flag_test_and_set(&trigger.taken))
        sched_yield();
}

static void trigger_release(const sigset_t *mask)
{
    atomic_flag_clear(&trigger.taken);
    pthread_sigmask(SIG_SETMASK, mask, NULL);
}

/*
 * Returns the name of the next file: the path itself, then with ".2", ".3" and so on appended, in
 * the order of the triggers. Without stdio, and without accessing the file system, which may not
 * respond.
 */
static void trigger_name(char path[DISTI_FLIGHT_PATH])
{
    const size_t length = strnlen(trigger.path, sizeof(trigger.path) - 1);

    memcpy(path, trigger.path, length);
    path[length] = '\0';
    if (trigger.is_reused)
        return;
    trigger.written += trigger.written < TRIGGER_FILES;
    if (trigger.written > 1) {
        path[length] = '.';
        path[length + 1] = (char)('0' + trigger.written);
        path[length + 2] = '\0';
    }
}

/* Composes a dump of all groups, and unless `path` is NULL also the name of its file. Returns
 * false if there is no group. */
static bool trigger_compose(const char *reason, struct disti_flight_text *text, char *path)
{
    struct disti_flight_head head = {.reason = reason};
    sigset_t mask;
    bool any;

    trigger_acquire(&mask);
    memcpy(head.host, trigger.host, sizeof(head.host));
    any = trigger.groups;
    if (any)
        flight_compose(text, &head, trigger.groups);
    if (any && path)
        trigger_name(path);
    trigger_release(&mask);
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

/* A program that handles the signal itself, before or after this call, keeps its handler. */
void disti_flight_install_handler(void)
{
    if (trigger_is(SIG_DFL))
        trigger_set(trigger_signal);
}

/* Runs in exit(), or when the shared object that contains the library, and with it the handler,
 * is unloaded. */
__attribute__((destructor)) static void trigger_unload(void)
{
    if (trigger_is(trigger_signal))
        trigger_set(SIG_IGN);
}

/* ---- groups ---- */

void disti_flight_add_group(struct dist_group *group)
{
    const char *pattern = disti_env("DIST_FLIGHT_FILE");
    char path[sizeof(trigger.path)];
    struct stat status;
    sigset_t mask;
    bool is_reused;

    disti_file_name(pattern && *pattern ? pattern : TRIGGER_FILE, group->world->rank, path,
                    sizeof(path));
    is_reused = lstat(path, &status) == 0 && !S_ISREG(status.st_mode);
    trigger_acquire(&mask);
    memcpy(trigger.path, path, sizeof(path));
    trigger.is_reused = is_reused;
    disti_host_short(trigger.host);
    group->flight.next = trigger.groups;
    if (trigger.groups)
        trigger.groups->flight.self = &group->flight.next;
    group->flight.self = &trigger.groups;
    trigger.groups = group;
    trigger_release(&mask);
}

void disti_flight_remove_group(struct dist_group *group)
{
    sigset_t mask;

    if (!group->flight.self)
        return;
    trigger_acquire(&mask);
    *group->flight.self = group->flight.next;
    if (group->flight.next)
        group->flight.next->flight.self = group->flight.self;
    group->flight.self = NULL;
    trigger_release(&mask);
}

/* Groups of 1 rank write no dump. Does not wait long for the disk, since the caller may have
 * waited until its deadline already. */
bool disti_flight_failed(struct dist_group *group, const char *reason, char path[DISTI_FLIGHT_PATH])
{
    struct disti_flight_text text = {0};
    int error;

    atomic_store(&group->flight.failed, true);
    if (group->world_size == 1 || group->flight.off || !trigger_compose(reason, &text, path))
        return false;
    error = flight_save_soon(path, &text);
    if (error == ETIMEDOUT)
        disti_warn(
            "the flight recorder has not finished writing %s within %d ms: its file system does "
            "not respond",
            path, SAVE_MS);
    else if (error)
        disti_warn("the flight recorder cannot write %s: %s. Set DIST_FLIGHT_FILE to another path",
                   path, strerror(error));
    return !error;
}

/* Forgets the parent's groups. No other thread exists that could hold `taken`. */
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
                                    "dist_flight_dump: cannot write %s: pass another path, or set "
                                    "DIST_FLIGHT_FILE",
                                    path)
                 : DIST_OK;
}
