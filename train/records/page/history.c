/* SPDX-License-Identifier: BSD-3-Clause */
/* A value over the steps of a run. */
#include "history.h"

#include <math.h>
#include <string.h>

double history_mean(const struct history_bin *bin)
{
    return bin->finite ? bin->sum / (double)bin->finite : (double)NAN;
}

static void history_merge(struct history_bin *into, const struct history_bin *from)
{
    if (from->finite) {
        into->least = into->finite ? fmin(into->least, from->least) : from->least;
        into->most = into->finite ? fmax(into->most, from->most) : from->most;
    }
    into->last = from->last;
    into->sum += from->sum;
    into->finite += from->finite;
    into->bad += from->bad;
}

static void history_halve(struct history *history)
{
    for (int i = 0; i < HISTORY_ROOM / 2; i++) {
        history->bins[i] = history->bins[2 * i];
        history_merge(&history->bins[i], &history->bins[2 * i + 1]);
    }
    history->count = HISTORY_ROOM / 2;
    history->stride *= 2;
}

void history_add(struct history *history, double x, double y)
{
    const struct history_bin point = isfinite(y) ? (struct history_bin){x, x, y, y, y, 1, 0}
                                                 : (struct history_bin){x, x, 0, 0, 0, 0, 1};
    struct history_bin *last = history->bins + history->count - 1;

    if (history->stride == 0)
        history->stride = 1;
    if (history->count > 0 && last->finite + last->bad < history->stride) {
        history_merge(last, &point);
        return;
    }
    if (history->count == HISTORY_ROOM)
        history_halve(history);
    history->bins[history->count++] = point;
}
