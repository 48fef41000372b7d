/* SPDX-License-Identifier: BSD-3-Clause */
/* Our side of the protocol: dist_bench --worker SPEC, as a job of processes. */
#include "worker_main.h"

#include "bench/jobs/spec.h"
#include "bench/measure/measure.h"
#include "protocol.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct worker {
    const struct options *options;
    struct spec spec;
    struct limit_map *map; /* of a limit, made before the ranks */
    struct driver *driver;
    struct buffers buffers;
    FILE *in, *out;
};

static int worker_fail(const char *text)
{
    fprintf(stderr, "dist_bench: %s\n", text);
    return -1;
}

/* ---- the line to dist_bench ---- */

static int worker_connect(struct worker *worker)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = getenv(BENCH_SOCKET);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (!path || strlen(path) >= sizeof(address.sun_path))
        return worker_fail("--worker is for dist_bench --compare, which sets " BENCH_SOCKET);
    strcpy(address.sun_path, path);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        fprintf(stderr, "dist_bench: cannot reach dist_bench at %s: %s\n", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    worker->in = fdopen(fd, "r");
    worker->out = worker->in ? fdopen(dup(fd), "w") : NULL;
    return worker->out ? 0 : worker_fail(strerror(errno));
}

static void worker_hello(struct worker *worker)
{
    fprintf(worker->out, "hello %s %d %d ", worker->options->worker, worker->driver->rank,
            worker->driver->ranks);
    if (worker->map)
        fprintf(worker->out, "a bare loop over shared memory\n");
    else
        fprintf(worker->out, "libdist %s\n", dist_version());
    fflush(worker->out);
}

/* Line breaks would end the answer. */
static void worker_reason(struct worker *worker, enum outcome outcome, char *reason)
{
    for (char *at = reason; (at = strpbrk(at, "\r\n"));)
        *at = ' ';
    fprintf(worker->out, "%s %s\n", outcome_words[outcome], reason);
}

/* -1: this is the end. */
static int worker_answer(struct worker *worker, const char *line)
{
    char reason[MEASURE_REASON] = "";
    enum outcome outcome;
    struct order order;
    double *times;

    if (order_read(line, worker->driver->ranks, &order) != 0)
        return -1;
    times = calloc((size_t)order.samples, sizeof(double));
    if (!times)
        return worker_fail("no memory for times: give fewer iterations with -i");
    outcome = measure_run(worker->driver, &worker->buffers, &order, times, reason);
    if (outcome != OUTCOME_TOOK)
        worker_reason(worker, outcome, reason);
    for (long s = 0; outcome == OUTCOME_TOOK && s < order.samples; s++)
        fprintf(worker->out, "%s%.3f%s", s ? " " : "took ", times[s],
                s + 1 == order.samples ? "\n" : "");
    free(times);
    return fflush(worker->out) == 0 && outcome != OUTCOME_FAILED ? 0 : -1;
}

static void worker_serve(struct worker *worker)
{
    char line[ORDER_LINE];

    worker_hello(worker);
    while (fgets(line, sizeof(line), worker->in) && worker_answer(worker, line) == 0)
        ;
    buffers_free(&worker->buffers, worker->driver);
}

static void worker_close(struct worker *worker)
{
    if (worker->in)
        fclose(worker->in);
    if (worker->out)
        fclose(worker->out);
}

/* ---- one rank ---- */

static int worker_limit(struct worker *worker, int rank)
{
    if (limit_new(worker->map, rank, &worker->driver) != DIST_OK)
        return worker_fail("no memory");
    if (worker_connect(worker) != 0)
        return -1;
    worker_serve(worker);
    limit_free(worker->driver);
    return 0;
}

static int worker_dist(struct worker *worker)
{
    struct dist_options init = DIST_OPTIONS_INIT;
    dist_group *group;
    int status = -1;

    init.backend = worker->spec.backend;
    if (dist_init_process_group(&init, &group) != DIST_OK)
        return worker_fail(dist_last_error());
    if (libdist_new(group, worker->spec.memory, &worker->driver) != DIST_OK)
        worker_fail(dist_last_error());
    else
        status = worker_connect(worker);
    if (status == 0)
        worker_serve(worker);
    libdist_free(worker->driver);
    /* The others may have been ended already: then this is no news. */
    dist_destroy_process_group(group);
    return status;
}

static int worker_rank(int rank, void *arg)
{
    struct worker *worker = arg;
    int status = worker->map ? worker_limit(worker, rank) : worker_dist(worker);

    worker_close(worker);
    return status == 0 ? 0 : 1;
}

int worker_main(const struct options *options)
{
    struct worker worker = {.options = options};
    const char *failure;
    int code = 1;

    if (spec_read(options->worker, &worker.spec, &failure) != 0)
        return worker_fail(failure), 2;
    if (spec_apply(&worker.spec) != 0)
        return worker_fail("no memory"), 1;
    if (worker.spec.limit)
        worker.map = limit_map_new((int)options->ranks, (size_t)options->most);
    if (worker.spec.limit && !worker.map)
        worker_fail(strerror(errno));
    else if (options->ranks < 0)
        code = worker_rank(-1, &worker);
    else if (dist_spawn((int)options->ranks, worker_rank, &worker, &code) != DIST_OK)
        worker_fail(dist_last_error());
    limit_map_free(worker.map);
    spec_free(&worker.spec);
    return code;
}
