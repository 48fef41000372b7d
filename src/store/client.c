/* SPDX-License-Identifier: BSD-3-Clause */
/* The store's client: its connection, and what a rank does with it. */
#include "store/client.h"
#include "base/backoff.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/log.h"
#include "base/process.h"
#include "base/thread.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

/* Another thread may have read our reply while we slept: look again after so long. */
#define CLIENT_LOOK_MS 100
/* A reply is late after so long. */
#define CLIENT_LATE_MS 200

static _Atomic disti_store_wait_fn client_waits;

void disti_store_wait_by(disti_store_wait_fn wait)
{
    atomic_store(&client_waits, wait);
}

/* Adds the descriptor to the set of disti_store_fd. False: the kernel refuses. */
static bool store_client_poll_too(struct disti_store *store, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};

    return epoll_ctl(store->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

struct disti_store *disti_store_client_new(int fd, struct disti_tls *tls)
{
    struct disti_store *store = calloc(1, sizeof(*store));
    pthread_condattr_t clock;

    if (!store) {
        disti_tls_free(tls);
        disti_descriptor_close(fd);
        return NULL;
    }
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&store->lock, NULL);
    pthread_cond_init(&store->turn, &clock);
    pthread_condattr_destroy(&clock);
    store->fd = fd;
    store->tls = store->in.tls = tls;
    store->holder.rank = -1;
    store->in.limit = DISTI_WIRE_ANSWER_LIMIT;
    STAILQ_INIT(&store->news);
    store->epoll_fd = disti_descriptor_own(epoll_create1(EPOLL_CLOEXEC));
    store->news_fd = disti_descriptor_own(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (store->epoll_fd >= 0 && store->news_fd >= 0 && store_client_poll_too(store, fd) &&
        store_client_poll_too(store, store->news_fd))
        return store;
    disti_store_client_free(store);
    return NULL;
}

void disti_store_client_free(struct disti_store *store)
{
    struct client_news *news;
    struct client_abort *abort;
    struct client_process *process;

    while ((news = STAILQ_FIRST(&store->news))) {
        STAILQ_REMOVE_HEAD(&store->news, next);
        free(news);
    }
    while ((abort = LIST_FIRST(&store->aborts))) {
        LIST_REMOVE(abort, next);
        free(abort);
    }
    while ((process = LIST_FIRST(&store->processes))) {
        LIST_REMOVE(process, next);
        disti_descriptor_close(process->fd);
        free(process);
    }
    disti_wire_next(&store->in);
    disti_tls_free(store->tls);
    disti_descriptor_close(store->fd);
    disti_descriptor_close(store->epoll_fd);
    disti_descriptor_close(store->news_fd);
    free(store->packed);
    pthread_cond_destroy(&store->turn);
    pthread_mutex_destroy(&store->lock);
    explicit_bzero(store->key, sizeof(store->key));
    free(store);
}

/* ---- aborted groups: a signal handler tells the store, and waits of this rank end ---- */

/* On a TLS session, which may have taken all but a byte. */
#define ALARM_ROOM_MS 1000

/*
 * A handler may have interrupted anything, so it takes no lock and no memory. The frame is there
 * already. Where somebody is putting a frame on the connection, perhaps the thread that was
 * interrupted, that one sends the alarm when it releases the line.
 *
 *     handler:  alarm into the list;  line free? take it, send, leave it
 *     sender:   take the line, send, leave it;  alarms in the list? once more
 *
 * On a TLS session no handler can send: it wakes whoever waits for news, and the next that reads or
 * sends here sends the alarm.
 */
struct disti_store_alarm {
    struct disti_store_alarm *next;
    struct disti_store *store;
    atomic_bool rung;   /* it is, or was, in the list */
    atomic_bool passed; /* and is not any more */
    size_t bytes;
    unsigned char frame[];
};

static _Thread_local int32_t alarm_group = DISTI_NO_GROUP;

void disti_store_end_on_abort(int32_t group)
{
    alarm_group = group;
}

/* Has the group that this thread heeds been aborted? NULL: no. With the lock held. */
static const struct client_abort *client_aborted(const struct disti_store *store)
{
    const struct client_abort *abort = NULL;

    if (alarm_group != DISTI_NO_GROUP)
        abort = LIST_FIRST(&store->aborts);
    while (abort && abort->group != alarm_group)
        abort = LIST_NEXT(abort, next);
    return abort;
}

/* So few bytes go at once, or not at all; a part of them would make nonsense of all that follows.
 */
static void alarm_send(struct disti_store *store, struct disti_store_alarm *alarm)
{
    const int64_t deadline = store->tls ? disti_deadline_ms(ALARM_ROOM_MS) : 0;
    struct pollfd ready = {.fd = store->fd, .events = POLLOUT};
    size_t sent = 0;

    while (sent < alarm->bytes) {
        ssize_t n =
            disti_tls_or_send(store->tls, store->fd, alarm->frame + sent, alarm->bytes - sent);

        if (n > 0)
            sent += (size_t)n;
        else if (n < 0 && errno == EINTR)
            continue;
        else if (n < 0 && errno != EAGAIN)
            break;
        /* Waits for room: no handler does, since none sends on a TLS session. */
        if (sent < alarm->bytes &&
            (!store->tls || disti_expired(deadline) ||
             (poll(&ready, 1, disti_left_ms(deadline)) < 0 && errno != EINTR)))
            break;
    }
    if (sent > 0 && sent < alarm->bytes)
        shutdown(store->fd, SHUT_RDWR);
    atomic_store(&alarm->passed, true);
}

/* Sends the alarms. On a TLS session with the lock held: its alarms go by this alone, since no
 * handler may send on it. */
static void alarm_flush(struct disti_store *store)
{
    while (atomic_load(&store->alarms) && !atomic_exchange(&store->sending, true)) {
        struct disti_store_alarm *alarm = atomic_exchange(&store->alarms, NULL), *next;

        for (; alarm; alarm = next) {
            next = alarm->next; /* it may be freed as soon as it has passed */
            alarm_send(store, alarm);
        }
        atomic_store(&store->sending, false);
    }
}

static void client_put_party(unsigned char *bytes, const struct disti_party *party)
{
    int count = party && party->ranks ? party->count : 0;

    disti_wire_put32(bytes, (uint32_t)(party ? party->group : DISTI_NO_GROUP));
    disti_wire_put32(bytes + 4, (uint32_t)count);
    for (int i = 0; i < count; i++)
        disti_wire_put32(bytes + disti_wire_party_bytes((size_t)i), (uint32_t)party->ranks[i]);
}

struct disti_store_alarm *disti_store_alarm_new(struct disti_store *store,
                                                const struct disti_party *party)
{
    size_t bytes = disti_wire_party_bytes(party->ranks ? (size_t)party->count : 0);
    const struct disti_wire_head head = {
        .op = DISTI_WIRE_REPORT, .arg = DIST_ERR_ABORTED, .value_bytes = bytes};
    struct disti_store_alarm *alarm = calloc(1, sizeof(*alarm) + DISTI_WIRE_HEAD + bytes);

    if (!alarm)
        return NULL;
    alarm->store = store;
    alarm->bytes = DISTI_WIRE_HEAD + bytes;
    disti_wire_put_head(alarm->frame, &head);
    client_put_party(alarm->frame + DISTI_WIRE_HEAD, party);
    return alarm;
}

void disti_store_alarm_ring(struct disti_store_alarm *alarm)
{
    struct disti_store *store = alarm->store;
    struct disti_store_alarm *first = atomic_load(&store->alarms);
    const uint64_t one = 1;
    int error = errno;

    if (atomic_exchange(&alarm->rung, true))
        return;
    do
        alarm->next = first;
    while (!atomic_compare_exchange_weak(&store->alarms, &first, alarm));
    if (store->tls)
        (void)!write(store->news_fd, &one, sizeof(one));
    else
        alarm_flush(store);
    errno = error;
}

void disti_store_alarm_send(struct disti_store_alarm *alarm)
{
    disti_store_alarm_ring(alarm);
    if (!alarm->store->tls)
        return;
    pthread_mutex_lock(&alarm->store->lock);
    alarm_flush(alarm->store);
    pthread_mutex_unlock(&alarm->store->lock);
}

void disti_store_alarm_free(struct disti_store_alarm *alarm)
{
    struct disti_backoff backoff = {0};

    if (!alarm)
        return;
    if (atomic_load(&alarm->rung))
        disti_store_alarm_send(alarm);
    while (atomic_load(&alarm->rung) && !atomic_load(&alarm->passed))
        disti_backoff(&backoff); /* somebody has the line, and sends it soon */
    free(alarm);
}

/* ---- replies for those who wait, news for whoever looks ---- */

#define INBOX_LOOK_MS 1    /* at least between two looks at the processes */
#define INBOX_PROCESSES 16 /* that one look finds ended */

/* What it says is the caller's to complete, with the lock held. NULL: no memory. */
static struct disti_notice *inbox_add_news(struct disti_store *store, int rank, int32_t group,
                                           int manner, const char *text, size_t length)
{
    struct client_news *news = calloc(1, sizeof(*news));
    uint64_t one = 1;

    if (!news)
        return NULL;
    if (length > sizeof(news->notice.text) - 1)
        length = sizeof(news->notice.text) - 1;
    news->notice.rank = rank;
    news->notice.group = group;
    news->notice.graceful = manner & DISTI_WIRE_GRACEFUL;
    news->notice.leaving = manner & DISTI_WIRE_LEFT;
    memcpy(news->notice.text, text, length);
    STAILQ_INSERT_TAIL(&store->news, news, next);
    (void)!write(store->news_fd, &one, sizeof(one));
    return &news->notice;
}

static const char *client_holder(const struct disti_store *store, char *text, size_t size)
{
    const struct disti_wire_id *holder = &store->holder;
    const char *elsewhere = disti_process_elsewhere(holder->space);

    if (holder->rank < 0)
        snprintf(text, size, "the launcher or scheduler (host %s, pid %u%s), which holds the store",
                 holder->host, holder->pid, elsewhere);
    else
        snprintf(text, size, "rank %d (host %s, pid %u%s), which holds the store", holder->rank,
                 holder->host, holder->pid, elsewhere);
    return text;
}

/* Nothing comes any more. */
static void inbox_end(struct disti_store *store)
{
    store->lost = true;
    epoll_ctl(store->epoll_fd, EPOLL_CTL_DEL, store->fd, NULL);
    pthread_cond_broadcast(&store->turn);
}

/* The connection ended. That is news about whoever holds the store, unless it is known. */
static void store_client_lose(struct disti_store *store, const char *why)
{
    const int rank = store->holder.rank;
    char holder[CLIENT_HOLDER];
    size_t used;

    if (store->lost)
        return;
    inbox_end(store);
    client_holder(store, holder, sizeof(holder));
    used = disti_text(store->lost_text, sizeof(store->lost_text), "%s, %s", holder,
                      store->holder_left ? "has left the job" : why);
    /* It may be a victim itself. */
    if (store->holder_left && store->cause[0])
        disti_text(store->lost_text + used, sizeof(store->lost_text) - used,
                   "; the first to exit was: %s", store->cause);
    if (!store->holder_left && rank != store->rank)
        inbox_add_news(store, rank, DISTI_NO_GROUP, 0, store->lost_text, strlen(store->lost_text));
}

bool disti_store_watch_process(struct disti_store *store, int pidfd, int rank, int pid,
                               const char *text)
{
    struct client_process *process = malloc(sizeof(*process) + strlen(text) + 1);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = process};

    if (!process || epoll_ctl(store->epoll_fd, EPOLL_CTL_ADD, pidfd, &event) != 0) {
        free(process);
        disti_descriptor_close(pidfd);
        return false;
    }
    process->fd = pidfd;
    process->rank = rank;
    process->pid = pid;
    strcpy(process->text, text);
    pthread_mutex_lock(&store->lock);
    LIST_INSERT_HEAD(&store->processes, process, next);
    pthread_mutex_unlock(&store->lock);
    return true;
}

/*
 * The kernel returns them in the order in which they ended: the first one is the cause, and later
 * ones may have ended because of it.
 */
static void inbox_look_at_processes(struct disti_store *store)
{
    struct epoll_event events[INBOX_PROCESSES];
    int count;

    if (!disti_expired(store->look_at))
        return;
    store->look_at = disti_deadline_ms(INBOX_LOOK_MS);
    count = epoll_wait(store->epoll_fd, events, INBOX_PROCESSES, 0);
    for (int i = 0; i < count; i++) {
        struct client_process *process = events[i].data.ptr;
        char text[DISTI_NEWS_MAX], host[DISTI_HOST_SIZE], why[96];
        const char *end;

        if (!process)
            continue;
        if (process->rank < 0) {
            if (!store->lost) /* rank 0, which held it, may have left in order: others go on */
                inbox_end(store);
            disti_text(store->lost_text, sizeof(store->lost_text), "%s", process->text);
            disti_text(text, sizeof(text), "%s", process->text);
        } else {
            disti_host_name(host);
            end = disti_process_end(host, disti_process_space(), process->pid, why, sizeof(why));
            disti_text(text, sizeof(text), "%s %s", process->text,
                       end == why ? why : "exited without leaving the job");
        }
        inbox_add_news(store, process->rank, DISTI_NO_GROUP, 0, text, strlen(text));
        LIST_REMOVE(process, next);
        epoll_ctl(store->epoll_fd, EPOLL_CTL_DEL, process->fd, NULL); /* a child may have a copy */
        disti_descriptor_close(process->fd);
        free(process);
    }
}

static void inbox_take_notice(struct disti_store *store)
{
    const unsigned char *value = disti_wire_value(&store->in);
    const struct disti_wire_head *head = &store->in.head;
    const int manner = head->value_bytes >= DISTI_WIRE_NEWS ? value[4] : 0;
    const size_t before = DISTI_WIRE_NEWS + (manner & DISTI_WIRE_LEFT ? 8 : 0);
    dist_status failure;
    struct disti_notice *notice;

    if (head->value_bytes >= before) {
        store->holder_left = store->holder_left ||
                             ((manner & DISTI_WIRE_GRACEFUL) && head->arg == store->holder.rank);
        failure = value[5] ? disti_wire_failure(-value[5]) : DIST_OK;
        if (failure == DIST_ERR_ABORTED) {
            struct client_abort *abort = calloc(1, sizeof(*abort));

            /* Those that heed the group wait no longer. */
            if (abort) {
                abort->group = (int32_t)disti_wire_get32(value);
                abort->rank = head->arg;
                LIST_INSERT_HEAD(&store->aborts, abort, next);
                pthread_cond_broadcast(&store->turn);
            }
        }
        notice = inbox_add_news(store, head->arg, (int32_t)disti_wire_get32(value), manner,
                                (const char *)value + before, (size_t)head->value_bytes - before);
        if (notice)
            notice->status = failure;
        if (notice && notice->leaving)
            notice->calls = disti_wire_get64(value + DISTI_WIRE_NEWS);
        /* What ended first says why the others have ended since; who left because of it explains
         * nothing. Nor does who has ended since the holder of the store left, or that itself. */
        if (notice && notice->group == DISTI_NO_GROUP && !store->holder_left && !store->cause[0])
            disti_text(store->cause, sizeof(store->cause), "%s", notice->text);
    }
    disti_wire_next(&store->in);
}

static void inbox_take_nonsense(struct disti_store *store)
{
    store->strange = true;
    store_client_lose(store, "violated the store's protocol");
}

/*
 * Who has not proved yet that he is the store can do no more than answer: of anything else as much
 * might come as the memory holds.
 */
static void inbox_take(struct disti_store *store)
{
    if (store->in.head.op == DISTI_WIRE_REPLY) {
        struct client_call *call = LIST_FIRST(&store->calls);

        /* Gives the reply to the call that waits for it; none does if the request was given up. */
        while (call && (call->done || call->id != store->in.head.id))
            call = LIST_NEXT(call, next);
        if (call) {
            call->reply = store->in;
            call->done = true;
            store->in.body = NULL;
            pthread_cond_broadcast(&store->turn);
        }
        disti_wire_next(&store->in);
    } else if (!store->holder.host[0]) {
        inbox_take_nonsense(store);
    } else if (store->in.head.op == DISTI_WIRE_NOTICE) {
        inbox_take_notice(store);
    } else {
        disti_wire_next(&store->in);
    }
}

/* Reads what is there, and gives it to who waits for it. */
static void store_client_pump(struct disti_store *store)
{
    char why[96];

    if (!LIST_EMPTY(&store->processes))
        inbox_look_at_processes(store);
    if (store->tls)
        alarm_flush(store);
    while (!store->lost) {
        switch (disti_wire_read(&store->in, store->fd)) {
        case DISTI_WIRE_FRAME:
            inbox_take(store);
            if (!store->holder.host[0])
                return; /* the welcome, which says who holds the store, is read before its end */
            break;
        case DISTI_WIRE_MORE:
            return;
        case DISTI_WIRE_CLOSED:
            store_client_lose(store, disti_process_end(store->holder.host, store->holder.space,
                                                       (int)store->holder.pid, why, sizeof(why)));
            break;
        case DISTI_WIRE_NO_TLS:
            store->no_tls = true;
            store_client_lose(store, disti_tls_why(store->tls));
            break;
        default:
            store->asks_tls = !store->tls && disti_tls_looks_like(store->in.head_bytes);
            inbox_take_nonsense(store);
        }
    }
}

bool disti_store_is_lost(struct disti_store *store)
{
    bool lost;

    pthread_mutex_lock(&store->lock);
    if (!store->reading)
        store_client_pump(store);
    lost = store->lost;
    pthread_mutex_unlock(&store->lock);
    return lost;
}

bool disti_store_lost_why(struct disti_store *store, char *text, size_t size)
{
    pthread_mutex_lock(&store->lock);
    disti_text(text, size, "%s", store->lost_text);
    pthread_mutex_unlock(&store->lock);
    return store->holder.rank >= 0;
}

int disti_store_fd(const struct disti_store *store)
{
    return store->epoll_fd;
}

bool disti_store_notice(struct disti_store *store, struct disti_notice *notice_p)
{
    struct client_news *news;
    uint64_t count, one = 1;

    pthread_mutex_lock(&store->lock);
    if (store->tls) {
        /* On a TLS session news_fd also tells of alarms that are to be sent. It is read first, so
         * that one that rings from then on is not missed. */
        (void)!read(store->news_fd, &count, sizeof(count));
        alarm_flush(store);
    }
    if (STAILQ_EMPTY(&store->news) && !store->reading) /* who reads for all takes notices too */
        store_client_pump(store);
    news = STAILQ_FIRST(&store->news);
    if (news)
        STAILQ_REMOVE_HEAD(&store->news, next);
    if (store->tls && !STAILQ_EMPTY(&store->news))
        (void)!write(store->news_fd, &one, sizeof(one));
    else if (!store->tls && STAILQ_EMPTY(&store->news) && news)
        (void)!read(store->news_fd, &count, sizeof(count));
    pthread_mutex_unlock(&store->lock);
    if (!news)
        return false;
    *notice_p = news->notice;
    free(news);
    return true;
}

/* ---- requests ---- */

static bool client_poll(struct disti_store *store, short events, int64_t deadline)
{
    struct pollfd ready = {.fd = store->fd, .events = events};

    return !disti_expired(deadline) &&
           (poll(&ready, 1, disti_left_ms(deadline)) >= 0 || errno == EINTR);
}

static dist_status client_lost(const struct disti_store *store)
{
    return store->strange ? DIST_ERR_RENDEZVOUS : DIST_ERR_PEER_LOST;
}

static dist_status client_send_frame(struct disti_store *store,
                                     const struct client_request *request, int64_t deadline)
{
    const struct disti_party *party = request->party;
    size_t key_bytes = request->key ? strlen(request->key) : 0;
    size_t count = party && party->ranks ? (size_t)party->count : 0;
    size_t before_bytes = request->of_party ? disti_wire_party_bytes(count) : 0;
    size_t value_bytes = before_bytes + request->bytes;
    size_t left = DISTI_WIRE_HEAD + key_bytes + value_bytes;
    unsigned char head_bytes[DISTI_WIRE_HEAD];
    struct disti_wire_head head = {.op = request->op,
                                   .id = store->last_id % UINT32_MAX + 1,
                                   .arg = request->arg,
                                   .key_bytes = (uint32_t)key_bytes,
                                   .value_bytes = value_bytes};
    struct iovec parts[4] = {{head_bytes, DISTI_WIRE_HEAD},
                             {(char *)(uintptr_t)request->key, key_bytes},
                             {store->packed, before_bytes},
                             {(void *)(uintptr_t)request->value, request->bytes}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 4};
    bool begun = false, in_time;

    store->last_id = head.id;
    disti_wire_put_head(head_bytes, &head);
    if (before_bytes) /* into room that is there, so that a rank without memory can still tell */
        client_put_party(store->packed, party);
    while (left && !store->lost) {
        ssize_t n = disti_tls_or_sendmsg(store->tls, store->fd, &message);

        if (n >= 0) {
            begun = true;
            left -= (size_t)n;
            for (int i = 0; i < 4; i++) { /* skips what is already gone */
                size_t gone = (size_t)n < parts[i].iov_len ? (size_t)n : parts[i].iov_len;

                if (gone)
                    parts[i].iov_base = (char *)parts[i].iov_base + gone;
                parts[i].iov_len -= gone;
                n -= (ssize_t)gone;
            }
        } else if (errno == EAGAIN) {
            store_client_pump(store); /* the server may be waiting for us to read */
            if (store->lost)
                continue;
            /* Sleeps until there is room for the rest of a frame, letting others in meanwhile: they
             * read, and put nothing between its parts. */
            store->halfway = true;
            pthread_mutex_unlock(&store->lock);
            in_time = client_poll(store, POLLIN | POLLOUT, deadline);
            pthread_mutex_lock(&store->lock);
            store->halfway = false;
            if (in_time)
                continue;
            if (begun) /* half a frame makes the connection useless */
                store_client_lose(store, "does not respond");
            return DIST_IN_PROGRESS;
        } else if (errno != EINTR) {
            store_client_pump(store); /* what it said last may explain it */
            store_client_lose(store, "closed its connection without leaving the job");
        }
    }
    return store->lost ? client_lost(store) : DIST_OK;
}

/* Sends one frame, with the lock held, which is let go while there is no room for it. */
static dist_status client_send(struct disti_store *store, const struct client_request *request,
                               int64_t deadline)
{
    dist_status status;
    struct disti_backoff backoff = {0};

    while (store->halfway) {
        const struct timespec until = disti_clock_timespec(deadline);

        if (client_aborted(store))
            return DIST_ERR_ABORTED;
        if (disti_expired(deadline))
            return DIST_IN_PROGRESS;
        pthread_cond_timedwait(&store->turn, &store->lock, &until);
    }
    /* Takes the right to put a frame on the connection, which alarms need too. */
    while (atomic_exchange(&store->sending, true))
        disti_backoff(&backoff);
    status = client_send_frame(store, request, deadline);
    atomic_store(&store->sending, false);
    alarm_flush(store);
    pthread_cond_broadcast(&store->turn);
    return status;
}

dist_status disti_store_client_send(struct disti_store *store, const struct client_request *request,
                                    int64_t deadline)
{
    int held = disti_cancel_hold();
    dist_status status;

    pthread_mutex_lock(&store->lock);
    status = client_send(store, request, deadline);
    pthread_mutex_unlock(&store->lock);
    disti_cancel_let(held);
    return status;
}

/* Sleeps until there is something to read, letting others in meanwhile; then reads it. */
static void client_read_for_all(struct disti_store *store, int64_t deadline)
{
    disti_store_wait_fn wait = atomic_load_explicit(&client_waits, memory_order_relaxed);
    int64_t look = disti_deadline_ms(CLIENT_LOOK_MS);
    int64_t until = look < deadline ? look : deadline;

    store->reading = true;
    pthread_mutex_unlock(&store->lock);
    if (wait)
        wait(store->fd, until);
    else
        client_poll(store, POLLIN, until);
    pthread_mutex_lock(&store->lock);
    store->reading = false;
    store_client_pump(store);
    pthread_cond_broadcast(&store->turn);
}

/* Waits until the call is done, with the lock held, which is let go meanwhile. */
static dist_status client_wait(struct disti_store *store, const struct client_call *call,
                               int64_t deadline)
{
    store_client_pump(store);
    while (!call->done && !store->lost) {
        const struct timespec until = disti_clock_timespec(deadline);

        if (client_aborted(store))
            return DIST_ERR_ABORTED;
        if (disti_expired(deadline))
            return DIST_IN_PROGRESS;
        if (store->reading)
            pthread_cond_timedwait(&store->turn, &store->lock, &until);
        else
            client_read_for_all(store, deadline);
    }
    return call->done ? DIST_OK : client_lost(store);
}

/* The same; calls request->late without the lock every CLIENT_LATE_MS meanwhile. */
static dist_status client_wait_long(struct disti_store *store, const struct client_call *call,
                                    const struct client_request *request, int64_t deadline)
{
    int64_t late = disti_deadline_ms(CLIENT_LATE_MS);

    while (request->late && late < deadline) {
        dist_status status = client_wait(store, call, late);

        if (status != DIST_IN_PROGRESS)
            return status;
        pthread_mutex_unlock(&store->lock);
        request->late(request->late_arg);
        pthread_mutex_lock(&store->lock);
        late = disti_deadline_ms(CLIENT_LATE_MS);
    }
    return client_wait(store, call, deadline);
}

dist_status disti_store_client_call(struct disti_store *store, const struct client_request *request,
                                    int64_t deadline, struct disti_wire_reader *reply_p)
{
    struct client_call call = {0};
    int held = disti_cancel_hold();
    dist_status status;

    pthread_mutex_lock(&store->lock);
    status = client_send(store, request, deadline);
    if (status == DIST_OK) {
        call.id = store->last_id;
        LIST_INSERT_HEAD(&store->calls, &call, next);
        status = client_wait_long(store, &call, request, deadline);
        LIST_REMOVE(&call, next);
    }
    pthread_mutex_unlock(&store->lock);
    disti_cancel_let(held);
    if (status == DIST_OK)
        *reply_p = call.reply;
    return status;
}

void disti_store_close(struct disti_store *store)
{
    struct client_request request = {.op = DISTI_WIRE_GOODBYE};
    int64_t deadline;

    if (!store)
        return;
    if (disti_store_client_send(store, &request, disti_deadline_ms(200)) == DIST_OK) {
        /* Until the server has closed too: then the goodbye has been read. */
        deadline = disti_deadline_ms(1000);
        pthread_mutex_lock(&store->lock);
        while (!store->lost && client_poll(store, POLLIN, deadline))
            store_client_pump(store);
        pthread_mutex_unlock(&store->lock);
    }
    disti_store_client_free(store);
}

int disti_store_holder(const struct disti_store *store)
{
    return store->holder.rank;
}

const unsigned char *disti_store_key(const struct disti_store *store)
{
    return store->key;
}

/* The store's requests, as the ranks make them. */

/* The server ends a wait in time and says who is missing: it gets this much longer to say so. */
#define STORE_GRACE_MS 3000

/* For requests that wait for nobody. Long, because the server's machine may be overloaded. */
#define STORE_REPLY_MS 60000

static dist_status store_no_answer(struct disti_store *store, dist_status status)
{
    char holder[CLIENT_HOLDER];
    int rank;

    if (status == DIST_IN_PROGRESS)
        return disti_fail(DIST_ERR_TIMEOUT,
                          "rank %d: %s, does not respond at %s: check whether that process is "
                          "stopped, or its machine overloaded",
                          store->rank, client_holder(store, holder, sizeof(holder)), store->where);
    if (status != DIST_ERR_ABORTED)
        return disti_fail(DIST_ERR_PEER_LOST, "rank %d: %s", store->rank, store->lost_text);
    pthread_mutex_lock(&store->lock);
    rank = client_aborted(store)->rank;
    pthread_mutex_unlock(&store->lock);
    return disti_fail(status, "rank %d: rank %d aborted the group", store->rank, rank);
}

/* The store's reason, and for one that waited in vain for how long, and what to do. */
static dist_status store_refused(const struct disti_store *store,
                                 const struct client_request *request, int64_t since_ns,
                                 const struct disti_wire_reader *reply)
{
    const bool reported = reply->head.arg < -DISTI_WIRE_REPORTED;
    dist_status status = disti_wire_failure(reply->head.arg + (reported ? DISTI_WIRE_REPORTED : 0));
    const char *text = (const char *)disti_wire_value(reply);
    const struct disti_party *party = request->party;
    int length = (int)reply->head.value_bytes;

    if (status != DIST_ERR_TIMEOUT || reported)
        return disti_fail(status, "rank %d: %.*s", store->rank, length, text);
    if (party && party->since_ns)
        since_ns = party->since_ns;
    return disti_fail(status,
                      "rank %d waited %lld ms %s: %.*s. Check whether these ranks run and what "
                      "they do, or raise the timeout passed to this call, init_process_group or "
                      "new_group, or DIST_TIMEOUT (seconds)",
                      store->rank, (long long)(disti_now_ns() - since_ns) / 1000000,
                      party && party->what ? party->what : "for the other ranks", length, text);
}

/*
 * Sends the request, waits for the reply. OK: the reply's value is in *reply_p, to be given to
 * disti_wire_next. A failure has been reported.
 */
static dist_status store_call(struct disti_store *store, const struct client_request *request,
                              int64_t wait_ms, struct disti_wire_reader *reply_p)
{
    int64_t start = disti_now_ns();
    dist_status status =
        disti_store_client_call(store, request, disti_deadline_ms(wait_ms), reply_p);

    if (status != DIST_OK)
        return store_no_answer(store, status);
    if (reply_p->head.arg == DIST_OK)
        return DIST_OK;
    status = store_refused(store, request, start, reply_p);
    disti_wire_next(reply_p);
    return status;
}

static dist_status store_odd_reply(struct disti_store *store, const char *key)
{
    return disti_fail(DIST_ERR_INTERNAL,
                      "rank %d: the store's reply has the wrong size (\"%s\"): use the same "
                      "version of libdist on all ranks",
                      store->rank, key);
}

static dist_status store_check_value(const char *key, size_t bytes)
{
    if (bytes <= DISTI_VALUE_MAX)
        return DIST_OK;
    return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                      "a value in the store has at most %u bytes, not %zu (\"%s\")",
                      DISTI_VALUE_MAX, bytes, key);
}

dist_status disti_store_take_numbers(struct disti_store *store, int count, int64_t *first_p)
{
    unsigned char bytes[4];
    const struct client_request request = {
        .op = DISTI_WIRE_NUMBERS, .key = "numbers", .value = bytes, .bytes = sizeof(bytes)};
    struct disti_wire_reader reply;
    dist_status status;

    disti_wire_put32(bytes, (uint32_t)count);
    status = store_call(store, &request, STORE_REPLY_MS, &reply);
    if (status != DIST_OK)
        return status;
    if (reply.head.value_bytes == 8)
        *first_p = (int64_t)disti_wire_get64(disti_wire_value(&reply));
    else
        status = store_odd_reply(store, request.key);
    disti_wire_next(&reply);
    return status;
}

dist_status disti_store_seen_host(struct disti_store *store, char host[DISTI_HOST_SIZE])
{
    const struct client_request request = {.op = DISTI_WIRE_SEEN, .key = "seen host"};
    struct disti_wire_reader reply;
    dist_status status = store_call(store, &request, STORE_REPLY_MS, &reply);

    if (status != DIST_OK)
        return status;
    if (reply.head.value_bytes < DISTI_HOST_SIZE)
        snprintf(host, DISTI_HOST_SIZE, "%s", (const char *)disti_wire_value(&reply));
    else
        status = store_odd_reply(store, request.key);
    disti_wire_next(&reply);
    return status;
}

/* The party stands before the value. */
static dist_status store_name_party(const struct disti_store *store,
                                    const struct disti_party *party, struct client_request *request)
{
    if (party && party->ranks && party->count > store->world_size)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "a rank set of %d ranks in a world of %d",
                          party->count, store->world_size);
    request->of_party = true;
    request->party = party;
    return DIST_OK;
}

/* A request of a party: `total` bytes come back, to `out` unless that is NULL. */
static dist_status store_call_party(struct disti_store *store, const struct disti_party *party,
                                    struct client_request *request, void *out, size_t total)
{
    struct disti_wire_reader reply;
    dist_status status = store_name_party(store, party, request);

    if (status != DIST_OK)
        return status;
    status = store_call(store, request, (int64_t)request->arg + STORE_GRACE_MS, &reply);
    if (status != DIST_OK)
        return status;
    if (reply.head.value_bytes != total)
        status = store_odd_reply(store, request->key);
    else if (total && out)
        memcpy(out, disti_wire_value(&reply), total);
    disti_wire_next(&reply);
    return status;
}

dist_status disti_store_all_gather(struct disti_store *store, const struct disti_party *party,
                                   const char *key, const void *in, void *out, size_t bytes,
                                   int timeout_ms)
{
    struct client_request request = {
        .op = DISTI_WIRE_ALL_GATHER, .arg = timeout_ms, .key = key, .value = in, .bytes = bytes};
    int ranks = party && party->ranks ? party->count : store->world_size;
    dist_status status = store_check_value(key, bytes);
    size_t total;

    if (status != DIST_OK)
        return status;
    if (!disti_mul(bytes, (size_t)ranks, &total) || total > DISTI_WIRE_GATHER_MAX)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "%zu bytes from each of %d ranks are too many for the store (\"%s\")",
                          bytes, ranks, key);
    return store_call_party(store, party, &request, out, total);
}

dist_status disti_store_broadcast(struct disti_store *store, const struct disti_party *party,
                                  const char *key, void *data, size_t bytes, int timeout_ms)
{
    struct client_request request = {.op = DISTI_WIRE_BROADCAST, .arg = timeout_ms, .key = key};
    dist_status status = store_check_value(key, bytes);

    if (status != DIST_OK)
        return status;
    if (store->rank == (party->ranks ? party->ranks[0] : 0)) {
        request.value = data;
        request.bytes = bytes;
    }
    return store_call_party(store, party, &request, data, bytes);
}

dist_status disti_store_leave(struct disti_store *store, const struct disti_party *party,
                              const char *key, const void *in, void *out, size_t bytes,
                              int timeout_ms, void (*late)(void *arg), void *arg)
{
    struct client_request request = {.op = DISTI_WIRE_LEAVE,
                                     .arg = timeout_ms,
                                     .key = key,
                                     .value = in,
                                     .bytes = bytes,
                                     .late = late,
                                     .late_arg = arg};
    const int ranks = party->ranks ? party->count : store->world_size;

    return store_call_party(store, party, &request, out, bytes * (size_t)ranks);
}

dist_status disti_store_arrive(struct disti_store *store, const struct disti_party *party,
                               const char *key, int timeout_ms)
{
    struct client_request request = {.op = DISTI_WIRE_ARRIVE, .arg = timeout_ms, .key = key};

    return store_call_party(store, party, &request, NULL, 0);
}

/* Of a party, without a reply. */
static void store_tell(struct disti_store *store, const struct disti_party *party,
                       struct client_request *request)
{
    /* So few bytes always fit, unless the server has been stuck for long. */
    if (store_name_party(store, party, request) == DIST_OK)
        disti_store_client_send(store, request, disti_deadline_ms(100));
}

void disti_store_report(struct disti_store *store, const struct disti_party *party,
                        dist_status status, const char *why)
{
    char text[DISTI_REASON_MAX];
    struct client_request request = {.op = DISTI_WIRE_REPORT, .arg = status, .value = text};

    request.bytes = disti_text(text, sizeof(text), "%s", why);
    store_tell(store, party, &request);
}

void disti_store_refuse(struct disti_store *store, const struct disti_party *party, const char *key,
                        dist_status status, const char *why)
{
    char text[DISTI_REASON_MAX];
    struct client_request request = {
        .op = DISTI_WIRE_REFUSE, .arg = status, .key = key, .value = text};

    request.bytes = disti_text(text, sizeof(text), "%s", why);
    store_tell(store, party, &request);
}

void disti_store_tell_leaving(struct disti_store *store, const struct disti_party *party,
                              uint64_t calls)
{
    unsigned char bytes[8];
    struct client_request request = {
        .op = DISTI_WIRE_LEAVING, .value = bytes, .bytes = sizeof(bytes)};

    disti_wire_put64(bytes, calls);
    store_tell(store, party, &request);
}
