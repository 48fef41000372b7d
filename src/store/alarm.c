/* SPDX-License-Identifier: BSD-3-Clause */
/* Aborted groups: how the store is told by a signal handler, and who heeds it here. */
#include "base/backoff.h"
#include "base/clock.h"
#include "store/client.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

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

const struct client_abort *disti_store_client_aborted(const struct disti_store *store)
{
    const struct client_abort *abort = alarm_group == DISTI_NO_GROUP ? NULL : store->aborts;

    while (abort && abort->group != alarm_group)
        abort = abort->next;
    return abort;
}

/* Waits for room: no handler does, since none sends on a TLS session. */
static bool alarm_may_go_on(struct disti_store *store, int64_t deadline)
{
    struct pollfd ready = {.fd = store->fd, .events = POLLOUT};

    return store->tls && !disti_expired(deadline) &&
           (poll(&ready, 1, disti_left_ms(deadline)) >= 0 || errno == EINTR);
}

/* So few bytes go at once, or not at all; a part of them would make nonsense of all that follows.
 */
static void alarm_send(struct disti_store *store, struct disti_store_alarm *alarm)
{
    const int64_t deadline = store->tls ? disti_deadline_ms(ALARM_ROOM_MS) : 0;
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
        if (sent < alarm->bytes && !alarm_may_go_on(store, deadline))
            break;
    }
    if (sent > 0 && sent < alarm->bytes)
        shutdown(store->fd, SHUT_RDWR);
    atomic_store(&alarm->passed, true);
}

static void alarm_send_all(struct disti_store *store)
{
    struct disti_store_alarm *alarm = atomic_exchange(&store->alarms, NULL), *next;

    for (; alarm; alarm = next) {
        next = alarm->next; /* it may be freed as soon as it has passed */
        alarm_send(store, alarm);
    }
}

static void alarm_flush(struct disti_store *store)
{
    while (atomic_load(&store->alarms) && !atomic_exchange(&store->sending, true)) {
        alarm_send_all(store);
        atomic_store(&store->sending, false);
    }
}

void disti_store_client_flush_alarms(struct disti_store *store)
{
    alarm_flush(store);
}

void disti_store_client_take_line(struct disti_store *store)
{
    struct disti_backoff backoff = {0};

    while (atomic_exchange(&store->sending, true))
        disti_backoff(&backoff);
}

void disti_store_client_release_line(struct disti_store *store)
{
    atomic_store(&store->sending, false);
    alarm_flush(store);
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
    disti_wire_put_party(alarm->frame + DISTI_WIRE_HEAD, party);
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
