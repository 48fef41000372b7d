/* SPDX-License-Identifier: BSD-3-Clause */
/* A queue of sends, through the requests' next and prev. */
#ifndef DISTI_TRANSPORTS_TCP_QUEUE_H
#define DISTI_TRANSPORTS_TCP_QUEUE_H

#include <dist/transport.h>

struct tcp_queue {
    struct dist_request *head, *tail;
};

static inline void disti_tcp_queue_put(struct tcp_queue *queue, struct dist_request *request)
{
    request->next = NULL;
    request->prev = queue->tail;
    if (queue->tail)
        queue->tail->next = request;
    else
        queue->head = request;
    queue->tail = request;
}

static inline void disti_tcp_queue_remove(struct tcp_queue *queue, struct dist_request *request)
{
    if (request->prev)
        request->prev->next = request->next;
    else
        queue->head = request->next;
    if (request->next)
        request->next->prev = request->prev;
    else
        queue->tail = request->prev;
}

/* Ends all of them. */
static inline void disti_tcp_queue_fail(struct tcp_queue *queue, dist_status status)
{
    while (queue->head) {
        struct dist_request *request = queue->head;

        disti_tcp_queue_remove(queue, request);
        request->status = status;
    }
}

#endif
