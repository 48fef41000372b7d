/* SPDX-License-Identifier: BSD-3-Clause */
/* Orders as lines. */
#include "order.h"

#include "bench/protocol.h"

#include <stdio.h>
#include <string.h>

const char *const outcome_words[OUTCOME_COUNT] = {"took", "unsupported", "wrong", "failed"};

void order_write(const struct order *order, char *line)
{
    int length = snprintf(line, ORDER_LINE, "run %s %zu %s %s %d %d %ld %ld %ld %d",
                          order->operation->name, order->bytes, dist_dtype_string(order->dtype),
                          dist_op_string(order->op), order->root, order->in_place, order->warmup,
                          order->samples, order->batch, order->check);

    /* Others are told of what was asked for only. */
    if (order->window != BENCH_WINDOW || order->buffers || order->apart)
        length += snprintf(line + length, ORDER_LINE - (size_t)length, " %d", order->window);
    if (order->buffers || order->apart)
        length += snprintf(line + length, ORDER_LINE - (size_t)length, " %d", order->buffers);
    if (order->apart)
        length += snprintf(line + length, ORDER_LINE - (size_t)length, " 1");
    snprintf(line + length, ORDER_LINE - (size_t)length, "\n");
}

static bool order_is_good(const struct order *order, int ranks)
{
    size_t element = dist_dtype_size(order->dtype);

    return order->operation &&
           order->bytes % (element * (size_t)operation_blocks(order->operation, ranks)) == 0 &&
           order->root >= 0 && order->root < ranks && order->warmup >= 0 && order->samples >= 1 &&
           order->samples <= ORDER_SAMPLES_MAX && order->batch >= 1 && order->window >= 1 &&
           order->window <= ORDER_WINDOW_MAX && order->buffers >= 0 &&
           order->buffers <= ORDER_BUFFERS_MAX;
}

int order_read(const char *line, int ranks, struct order *order_p)
{
    char name[64], dtype[32], op[32];
    int in_place, check, type, reduction, fields, apart = 0;
    struct order order = {.window = BENCH_WINDOW};

    fields = sscanf(line, "run %63s %zu %31s %31s %d %d %ld %ld %ld %d %d %d %d", name,
                    &order.bytes, dtype, op, &order.root, &in_place, &order.warmup, &order.samples,
                    &order.batch, &check, &order.window, &order.buffers, &apart);
    if (fields < 10)
        return -1;
    order.operation = operation_find(name);
    type = operation_dtype(dtype);
    reduction = operation_op(op);
    if (type < 0 || reduction < 0)
        return -1;
    order.dtype = (dist_dtype)type;
    order.op = (dist_op)reduction;
    order.in_place = in_place != 0;
    order.check = check != 0;
    order.apart = apart != 0;
    if (!order_is_good(&order, ranks))
        return -1;
    *order_p = order;
    return 0;
}

size_t order_block(const struct order *order, int ranks)
{
    return order->bytes / (size_t)operation_blocks(order->operation, ranks);
}

size_t order_count(const struct order *order, int ranks)
{
    return order_block(order, ranks) / dist_dtype_size(order->dtype);
}

int outcome_read(const char *line, const char **rest_p)
{
    for (int i = 0; i < OUTCOME_COUNT; i++) {
        size_t length = strlen(outcome_words[i]);

        if (strncmp(line, outcome_words[i], length) == 0 &&
            (line[length] == ' ' || line[length] == '\0')) {
            *rest_p = line + length + (line[length] == ' ');
            return i;
        }
    }
    return -1;
}
