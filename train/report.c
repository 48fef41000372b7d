/* SPDX-License-Identifier: BSD-3-Clause */
/* What rank 0 prints. */
#include "report.h"

#include <inttypes.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm.h"
#include "tools/common/output.h"

enum { REPORT_BAR = 10 };   /* characters of the progress bar */
enum { REPORT_LINES = 10 }; /* of an epoch */

static const double report_redraw = 0.1; /* seconds between two drawings of the bar */

void report_open(struct report *report, bool active, int64_t every)
{
    locale_t user;

    *report = (struct report){.active = active, .every = every, .interval = 1};
    if (!active)
        return;
    report->bar = isatty(STDERR_FILENO);
    /* The user's locale; setlocale would change what the program parses and prints. */
    user = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
    report->blocks = user && strcmp(nl_langinfo_l(CODESET, user), "UTF-8") == 0;
    if (user)
        freelocale(user);
}

void report_epoch(struct report *report, int64_t epoch, int64_t steps, int64_t batch,
                  int64_t samples, int64_t before)
{
    report->epoch = epoch;
    report->steps = steps;
    report->batch = batch;
    report->samples = samples;
    report->before = before;
    report->interval = report->every;
    if (report->every == 0)
        report->interval = (before / batch + steps + REPORT_LINES - 1) / REPORT_LINES;
    if (report->interval == 0)
        report->interval = 1;
    report->started = comm_now();
    report->drawn = 0.0;
}

/* "mm:ss", or "h:mm:ss" from an hour on. */
static void report_clock(double seconds, char *text, size_t size)
{
    const long whole = seconds < 0 ? 0 : (long)seconds;

    if (whole >= 3600)
        snprintf(text, size, "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
    else
        snprintf(text, size, "%02ld:%02ld", whole / 60, whole % 60);
}

bool report_is_due(const struct report *report, int64_t step)
{
    return step % report->interval == 0 || step + 1 >= report->steps;
}

/*
 * tqdm's layout: what:  42%|####      | 42/100 [00:03<00:04, 13.90it/s, loss=0.1]
 * A terminal that is too narrow is told not to wrap, so that it stays one line.
 */
static void report_draw(struct report *report, int64_t done, double loss)
{
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    const int filled = (int)((double)done / (double)report->steps * REPORT_BAR * 8);
    const double now = comm_now(), passed = now - report->started;
    const double rate = passed > 0 ? (double)done / passed : 0.0;
    char fill[REPORT_BAR * 4 + 1] = "", elapsed[32], left[32];
    int shown = 0;

    if (done < report->steps && now - report->drawn < report_redraw)
        return;
    report->drawn = now;
    /* To an eighth of a character in UTF-8. */
    for (; shown < filled / 8; shown++)
        strcat(fill, report->blocks ? "█" : "#");
    if (report->blocks && filled % 8) {
        strcat(fill, eighths[filled % 8]);
        shown++;
    }
    for (; shown < REPORT_BAR; shown++)
        strcat(fill, " ");
    report_clock(passed, elapsed, sizeof(elapsed));
    report_clock(rate > 0 ? (double)(report->steps - done) / rate : 0, left, sizeof(left));
    fprintf(stderr,
            "\r\x1b[?7lEpoch %" PRId64 ": %3d%%|%s| %" PRId64 "/%" PRId64
            " [%s<%s, %.2fit/s, loss=%.4f]\x1b[K\x1b[?7h",
            report->epoch, (int)(100 * done / report->steps), fill, done, report->steps, elapsed,
            left, rate, loss);
}

void report_step(struct report *report, int64_t step, double loss)
{
    const double before = (double)report->before / (double)report->batch; /* in steps */

    if (!report->active)
        return;
    if (report->bar)
        report_draw(report, step + 1, loss);
    else if (step % report->interval == 0)
        output_print("Train Epoch: %" PRId64 " [%" PRId64 "/%" PRId64 " (%.0f%%)]\tLoss: %.6f\n",
                     report->epoch, report->before + step * report->batch, report->samples,
                     100.0 * (before + (double)step) / (before + (double)report->steps), loss);
}

void report_epoch_end(struct report *report, const struct report_result *result, double lr,
                      int64_t steps)
{
    if (!report->active || steps == 0)
        return;
    if (report->bar)
        fputc('\n', stderr);
    output_print("epoch %" PRId64 " | loss %.6f | lr %.2e | %.2f ms/step | %.0f samples/s | "
                 "communication %.1f%%\n",
                 report->epoch, result->loss, lr, 1e3 * result->seconds / (double)steps,
                 (double)result->count / result->seconds, 100.0 * result->share);
}

void report_enough(const struct report *report, int64_t tests, double best)
{
    if (report->active)
        output_print("stopping early: no test in %" PRId64 " epochs had a smaller loss than %.4f\n",
                     tests, best);
}

void report_test(const struct report *report, const struct report_result *result)
{
    if (!report->active)
        return;
    output_print("\nTest set: Average loss: %.4f, Accuracy: %" PRId64 "/%" PRId64 " (%.0f%%)\n\n",
                 result->loss, result->correct, result->count,
                 100.0 * (double)result->correct / (double)result->count);
}

void report_products(const struct report *report, const char *name)
{
    if (report->active)
        output_print("Matrix products: %s\n", name);
}

void report_shares(const struct report *report, uint64_t bytes, uint64_t all, int sharers)
{
    if (report->active)
        output_print("Optimizer state: %" PRIu64 " of %" PRIu64 " bytes a rank | "
                     "a copy of the parameters for %d rank%s\n",
                     bytes, all, sharers, sharers == 1 ? "" : "s");
}

void report_hash(const struct report *report, uint64_t hash, int world)
{
    if (report->active)
        output_print("Parameter hash: %016" PRIx64 " (%d rank%s)\n", hash, world,
                     world == 1 ? "" : "s agree");
}

void report_end(const struct report *report, const struct report_result *result,
                const char *backend, int world)
{
    if (report->active)
        output_print(
            "Final: accuracy %.2f%% (%" PRId64 "/%" PRId64 ") | time %.1f s | communication "
            "%.1f%% | backend %s | %d rank%s\n",
            100.0 * (double)result->correct / (double)result->count, result->correct, result->count,
            result->seconds, 100.0 * result->share, backend, world, world == 1 ? "" : "s");
}
