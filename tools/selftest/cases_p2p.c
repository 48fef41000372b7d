/* SPDX-License-Identifier: BSD-3-Clause */
/* Point to point: pairs that exchange, everybody to one from any source, and to oneself. */
#include "battery.h"

#include <string.h>

/*
 * What a pair exchanges each way: the first and the last have one tag and must stay in order, the
 * one between has another, and is asked for first where nobody waits for anything. Without tags all
 * stay in order.
 */
#define EXCHANGE_MESSAGES 3

/*
 * Who exchanges with whom: rank and partner add up to the root, round the world. So every rank has
 * one partner, which has it, and where it is the rank itself it sends to itself.
 */
static int exchange_partner(const struct test_case *c, int rank)
{
    int ranks = c->b->ranks;

    return (c->root - rank + ranks) % ranks;
}

/* The messages are these parts of the row, one after the other. */
static size_t exchange_count(const struct test_case *c, int message)
{
    return message == 1 ? c->count / 3 : c->count;
}

static size_t exchange_offset(const struct test_case *c, int message)
{
    size_t offset = 0;

    for (int m = 0; m < message; m++)
        offset += exchange_count(c, m);
    return offset;
}

static void exchange_shape(struct test_case *c)
{
    size_t total = exchange_offset(c, EXCHANGE_MESSAGES);

    case_in(c, total);
    case_give(c, &c->in, 0, 0, total);
    case_out(c, total);
    for (int m = 0; m < EXCHANGE_MESSAGES; m++)
        case_expect(c, exchange_offset(c, m), exchange_count(c, m), exchange_partner(c, c->b->rank),
                    exchange_offset(c, m));
    c->works_needed = 2 * EXCHANGE_MESSAGES;
    c->sources = battery_alloc(EXCHANGE_MESSAGES, sizeof(*c->sources));
    for (int m = 0; m < EXCHANGE_MESSAGES; m++)
        c->sources[m] = -2;
}

static bool exchange_has_tags(const struct test_case *c)
{
    return !(c->b->lacks & DIST_LACKS_TAGS);
}

static int exchange_tag(const struct test_case *c, int message)
{
    return message == 1 && exchange_has_tags(c) ? c->tag + 1000 : c->tag;
}

static dist_status exchange_send(struct test_case *c, int m, dist_work **work_p)
{
    const void *from = case_at(c, &c->in, exchange_offset(c, m));
    int partner = exchange_partner(c, c->b->rank);

    if (!work_p)
        return dist_send(c->b->group, from, exchange_count(c, m), c->data.dtype, partner,
                         exchange_tag(c, m));
    return dist_isend(c->b->group, from, exchange_count(c, m), c->data.dtype, partner,
                      exchange_tag(c, m), work_p);
}

static dist_status exchange_recv(struct test_case *c, int m, dist_work **work_p)
{
    void *to = case_at(c, &c->out, exchange_offset(c, m));
    int partner = exchange_partner(c, c->b->rank);

    if (!work_p)
        return dist_recv(c->b->group, to, exchange_count(c, m), c->data.dtype, partner,
                         exchange_tag(c, m), &c->sources[m]);
    return dist_irecv(c->b->group, to, exchange_count(c, m), c->data.dtype, partner,
                      exchange_tag(c, m), &c->sources[m], work_p);
}

static dist_status exchange_half(struct test_case *c, bool send, bool waits, dist_work **works)
{
    dist_status status = DIST_OK;

    for (int i = 0; i < EXCHANGE_MESSAGES && status == DIST_OK; i++) {
        int m = waits || send || i == 2 || !exchange_has_tags(c) ? i : 1 - i;
        dist_work **work_p = works ? &works[i] : NULL;

        status = send ? exchange_send(c, m, work_p) : exchange_recv(c, m, work_p);
    }
    return status;
}

/*
 * A plain send may block until it is received: the lower rank of a pair sends first, and a rank
 * starts the sends to itself without waiting. In works, and between group_start and group_end, the
 * order does not matter.
 */
static dist_status exchange_call(struct test_case *c, dist_work **works)
{
    int partner = exchange_partner(c, c->b->rank);
    bool first = partner > c->b->rank || c->data.seed % 2;
    bool plain = !works && c->b->mode == MODE_BLOCKING;
    dist_status status;

    if (plain)
        first = partner > c->b->rank;
    if (plain && partner == c->b->rank) {
        status = exchange_half(c, true, true, c->works);
        return status == DIST_OK ? exchange_half(c, false, true, NULL) : status;
    }
    status = exchange_half(c, first, plain, works);
    if (status != DIST_OK)
        return status;
    return exchange_half(c, !first, plain, works ? works + EXCHANGE_MESSAGES : NULL);
}

static void exchange_check(struct test_case *c)
{
    int partner = exchange_partner(c, c->b->rank);

    for (int m = 0; m < EXCHANGE_MESSAGES; m++) {
        c->b->checks++;
        if (c->sources[m] != partner)
            battery_fault(c->b, "%s: message %d came from rank %d, says recv; it should be %d",
                          case_name(c), m, c->sources[m], partner);
    }
}

const struct operation operation_exchange = {
    .name = "send",
    .collective = DIST_COLL_SEND,
    .flags = OPERATION_ROOTED,
    .shape = exchange_shape,
    .call = exchange_call,
    .check = exchange_check,
};

/* ---- everybody to one, from any source ---- */

/*
 * The root does not know who comes first: a message's sender is told with it. It names them where
 * the backend wants that.
 */
static void any_shape(struct test_case *c)
{
    int ranks = c->b->ranks;

    case_in(c, c->count);
    case_give(c, &c->in, 0, 0, c->count);
    c->works_needed = 1;
    if (c->root != c->b->rank)
        return;
    case_out(c, (size_t)ranks * c->count);
    c->works_needed = ranks + 1;
    c->sources = battery_alloc((size_t)ranks, sizeof(*c->sources));
    for (int r = 0; r < ranks; r++)
        c->sources[r] = -2;
}

/* The root's own message to itself is started first, since it cannot wait for it. */
static dist_status any_call(struct test_case *c, dist_work **works)
{
    bool root = c->root == c->b->rank, plain = !works && c->b->mode == MODE_BLOCKING;
    dist_work **own = root && plain ? c->works : works;
    dist_status status;

    if (own)
        status = dist_isend(c->b->group, c->give, c->count, c->data.dtype, c->root, c->tag, own);
    else
        status = dist_send(c->b->group, c->give, c->count, c->data.dtype, c->root, c->tag);
    for (int r = 0; r < c->b->ranks && root && status == DIST_OK; r++) {
        void *to = case_at(c, &c->out, (size_t)r * c->count);
        int from = c->b->lacks & DIST_LACKS_ANY_SOURCE ? r : DIST_ANY_SOURCE;

        if (works)
            status = dist_irecv(c->b->group, to, c->count, c->data.dtype, from, c->tag,
                                &c->sources[r], &works[r + 1]);
        else
            status =
                dist_recv(c->b->group, to, c->count, c->data.dtype, from, c->tag, &c->sources[r]);
    }
    return status;
}

/* Each rank came once, with what is its own. */
static void any_check(struct test_case *c)
{
    for (int r = 0; r < c->b->ranks && c->sources; r++) {
        int source = c->sources[r], times = 0;

        for (int other = 0; other < c->b->ranks; other++)
            times += c->sources[other] == r;
        c->b->checks++;
        if (times != 1)
            battery_fault(c->b, "%s: rank %d came %d times", case_name(c), r, times);
        if (source >= 0 && source < c->b->ranks)
            case_expect(c, (size_t)r * c->count, c->count, source, 0);
    }
}

const struct operation operation_any_source = {
    .name = "recv",
    .collective = DIST_COLL_RECV,
    .flags = OPERATION_ROOTED | OPERATION_BLOCKS,
    .shape = any_shape,
    .call = any_call,
    .check = any_check,
};

/* ---- what a backend says that it lacks ---- */

static void lacks_refused(struct battery *b, dist_status status, const dist_work *work,
                          const char *what)
{
    b->checks++;
    b->refusals++;
    if (status != DIST_ERR_UNSUPPORTED)
        battery_fault(b, "%s: the backend lacks it, but it was not refused: %s", what,
                      dist_status_string(status));
    else if (!strstr(dist_last_error(), b->backend))
        battery_fault(b, "%s: the refusal does not name the backend: %s", what, dist_last_error());
    if (work)
        battery_fault(b, "%s: was refused, but a work came of it", what);
}

/* Refused before anybody is told: the other ranks do nothing about it. */
void cases_lacks(struct battery *b)
{
    dist_work *work = NULL;
    int32_t number = b->rank;

    if (b->lacks & DIST_LACKS_ANY_SOURCE)
        lacks_refused(b,
                      dist_irecv(b->group, &number, 1, DIST_INT32, DIST_ANY_SOURCE, 0, NULL, &work),
                      work, "a receive from any source");
    if (b->lacks & DIST_LACKS_TAGS) {
        lacks_refused(b, dist_send(b->group, &number, 1, DIST_INT32, b->rank, 1), NULL,
                      "a send with tag 1");
        lacks_refused(b, dist_irecv(b->group, &number, 1, DIST_INT32, b->rank, 1, NULL, &work),
                      work, "a receive with tag 1");
    }
    b->checks++;
    if (number != b->rank)
        battery_fault(b, "a receive that was refused wrote");
    battery_ok(b, dist_barrier(b->group), "barrier after refusals");
}

/* ---- barrier: nothing to see but that it ends ---- */

static void barrier_shape(struct test_case *c)
{
    (void)c;
}

static dist_status barrier_call(struct test_case *c, dist_work **works)
{
    return works ? dist_barrier_async(c->b->group, works) : dist_barrier(c->b->group);
}

const struct operation operation_barrier = {
    .name = "barrier",
    .collective = DIST_COLL_BARRIER,
    .shape = barrier_shape,
    .call = barrier_call,
};
