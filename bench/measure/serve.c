/* SPDX-License-Identifier: BSD-3-Clause */
/* The worker's side of the protocol: connect, say hello, answer each order. */
#include "serve.h"

#include "bench/protocol.h"
#include "measure.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct server {
    struct driver *driver;
    struct buffers buffers;
    FILE *in, *out;
};

static int serve_fail(const char *name, const char *what, const char *why)
{
    fprintf(stderr, "%s: %s: %s\n", name, what, why);
    return -1;
}

static int serve_connect(struct server *server, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = getenv(BENCH_SOCKET);
    int fd;

    if (!path || strlen(path) >= sizeof(address.sun_path))
        return serve_fail(name, BENCH_SOCKET " names no socket",
                          "dist_bench --compare sets it and starts this program");
    strcpy(address.sun_path, path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        serve_fail(name, "cannot reach dist_bench", strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    server->in = fdopen(fd, "r");
    server->out = server->in ? fdopen(dup(fd), "w") : NULL;
    return server->out ? 0 : serve_fail(name, "cannot talk to dist_bench", strerror(errno));
}

/* Line breaks would end the answer. */
static void serve_reason(struct server *server, enum outcome outcome, char *reason)
{
    for (char *at = reason; (at = strpbrk(at, "\r\n"));)
        *at = ' ';
    fprintf(server->out, "%s %s\n", outcome_words[outcome], reason);
}

/* -1: the line is no order, or the driver is of no more use. */
static int serve_order(struct server *server, const char *line)
{
    char reason[MEASURE_REASON] = "no memory for the times: give fewer iterations with -i";
    enum outcome outcome = OUTCOME_FAILED;
    struct order order;
    double *times;

    if (order_read(line, server->driver->ranks, &order) != 0)
        return -1;
    times = calloc((size_t)order.samples, sizeof(double));
    if (times)
        outcome = measure_run(server->driver, &server->buffers, &order, times, reason);
    if (outcome != OUTCOME_TOOK)
        serve_reason(server, outcome, reason);
    for (long s = 0; outcome == OUTCOME_TOOK && s < order.samples; s++)
        fprintf(server->out, "%s%.3f%s", s ? " " : "took ", times[s],
                s + 1 == order.samples ? "\n" : "");
    free(times);
    return fflush(server->out) == 0 && outcome != OUTCOME_FAILED ? 0 : -1;
}

int serve(struct driver *driver, const char *name, const char *release)
{
    struct server server = {.driver = driver};
    char line[ORDER_LINE];
    int status = serve_connect(&server, name);

    if (status == 0) {
        fprintf(server.out, "hello %s %d %d %s\n", name, driver->rank, driver->ranks, release);
        fflush(server.out);
        while (fgets(line, sizeof(line), server.in) && serve_order(&server, line) == 0)
            ;
        buffers_free(&server.buffers, driver);
    }
    if (server.in)
        fclose(server.in);
    if (server.out)
        fclose(server.out);
    return status;
}
