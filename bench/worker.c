/* SPDX-License-Identifier: BSD-3-Clause */
/* Our side of the protocol: dist_bench --worker SPEC, as a job of processes. */
#include "worker_main.h"

#include "bench/jobs/spec.h"
#include "bench/measure/serve.h"
#include "tools/common/launched.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct worker {
    const struct options *options;
    struct spec spec;
    struct limit_map *map; /* of a limit, made before the ranks */
};

static int worker_fail(const char *text)
{
    fprintf(stderr, "dist_bench: %s\n", text);
    return -1;
}

/* ---- one rank ---- */

static int worker_limit(const struct worker *worker, int rank)
{
    struct driver *driver;
    int status;

    if (limit_new(worker->map, rank, &driver) != DIST_OK)
        return worker_fail("no memory");
    status = serve(driver, worker->options->worker, "a bare loop over shared memory");
    limit_free(driver);
    return status;
}

static int worker_dist(const struct worker *worker)
{
    struct dist_options init = DIST_OPTIONS_INIT;
    struct driver *driver = NULL;
    dist_group *group;
    char release[64];
    int status = -1;

    init.backend = worker->spec.backend;
    if (dist_init_process_group(&init, &group) != DIST_OK)
        return worker_fail(dist_last_error());
    snprintf(release, sizeof(release), "libdist %s", dist_version());
    if (libdist_new(group, worker->spec.memory, &driver) != DIST_OK)
        worker_fail(dist_last_error());
    else
        status = serve(driver, worker->options->worker, release);
    libdist_free(driver);
    /* The others may have been ended already: then this is no news. */
    dist_destroy_process_group(group);
    return status;
}

static int worker_rank(int rank, void *arg)
{
    const struct worker *worker = arg;

    return (worker->map ? worker_limit(worker, rank) : worker_dist(worker)) == 0 ? 0 : 1;
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
    else if (code != 0)
        launched_tell_end("dist_bench", code);
    limit_map_free(worker.map);
    spec_free(&worker.spec);
    return code;
}
