/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_streams RANKS [CASE]: checks that calls of backend nccl are ordered correctly on streams. */
#include "nccl_streams.h"

#include <string.h>
#include <time.h>

static const struct {
    const char *name;
    void (*run)(const struct streams *s);
} cases[] = {
    {"blocking", streams_blocking},   {"async", streams_async},
    {"tested", streams_tested},       {"two", streams_two},
    {"barrier", streams_barrier},     {"captured", streams_captured},
    {"groups", streams_groups},       {"batched", streams_batched},
    {"unbatched", streams_unbatched}, {"itself", streams_to_itself},
    {"allocated", streams_allocated}, {"host", streams_host},
    {"mixed", streams_mixed},         {"subgroups", streams_subgroups},
    {"elsewhere", streams_elsewhere},
};

float *streams_vector(const struct streams *s, size_t count)
{
    uintptr_t memory = 0;

    CHECK(s->driver->memory_alloc(&memory, count * sizeof(float)) == 0);
    return (float *)memory;
}

void streams_drop(const struct streams *s, float *vector)
{
    CHECK(s->driver->memory_free((uintptr_t)vector) == 0);
}

void streams_fill(const struct streams *s, float *vector, size_t count, float value, void *stream)
{
    float *host = malloc(count * sizeof(float));

    CHECK(host);
    for (size_t i = 0; i < count; i++)
        host[i] = value + (float)(i % 7);
    /* The host memory is pageable, so it has been read when the call returns. */
    CHECK(s->driver->copy_in((uintptr_t)vector, host, count * sizeof(float), stream) == 0);
    free(host);
}

bool streams_is(const struct streams *s, const float *vector, size_t count, float value,
                float factor, void *stream)
{
    float *host = calloc(count, sizeof(float));
    size_t wrong = 0;

    CHECK(host);
    CHECK(s->driver->copy_out(host, (uintptr_t)vector, count * sizeof(float), stream) == 0);
    CHECK(s->driver->stream_synchronize(stream) == 0);
    for (size_t i = 0; i < count; i++) {
        if (host[i] != value + factor * (float)(i % 7) && wrong++ == 0)
            fprintf(stderr, "rank %d: element %zu is %g, should be %g\n", s->rank, i,
                    (double)host[i], (double)(value + factor * (float)(i % 7)));
    }
    free(host);
    return wrong == 0;
}

void streams_sleep_us(long us)
{
    const struct timespec time = {.tv_nsec = us * 1000};

    nanosleep(&time, NULL);
}

float streams_sum(const struct streams *s)
{
    float sum = 0;

    for (int r = 0; r < s->ranks; r++)
        sum += (float)(r + 1);
    return sum;
}

/* Binds this thread to the rank's device, as a CUDA program does. */
static void use_device(struct streams *s)
{
    char reason[512] = "";
    void *context;
    int device, count;

    s->driver = disti_driver_load(reason, sizeof(reason));
    if (!s->driver)
        fprintf(stderr, "%s\n", reason);
    CHECK(s->driver);
    CHECK(s->driver->device_count(&count) == 0);
    CHECK(s->driver->device_get(&device, s->rank % count) == 0);
    CHECK(s->driver->context_retain(&context, device) == 0);
    CHECK(s->driver->context_push(context) == 0);
    CHECK(s->driver->stream_create(&s->a, DISTI_DRIVER_STREAM_NON_BLOCKING) == 0);
    CHECK(s->driver->stream_create(&s->b, DISTI_DRIVER_STREAM_NON_BLOCKING) == 0);
}

static int run(int rank, void *arg)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    struct streams s = {.rank = rank};
    const char *only = arg;
    int tried = 0;

    options.backend = "nccl";
    options.timeout_ms = 20000;
    if (dist_init_process_group(&options, &s.group) != DIST_OK) {
        fprintf(stderr, "init: %s\n", dist_last_error());
        return 1;
    }
    s.ranks = dist_get_world_size(s.group);
    use_device(&s);
    DONE(dist_set_stream(s.group, s.a));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (only && strcmp(only, cases[i].name) != 0)
            continue;
        cases[i].run(&s);
        tried++;
    }
    CHECK(tried > 0);
    DONE(dist_destroy_process_group(s.group));
    s.driver->stream_destroy(s.a);
    s.driver->stream_destroy(s.b);
    if (rank == 0)
        printf("%d cases\n", tried);
    return 0;
}

int main(int argc, char **argv)
{
    int ranks = argc > 1 ? atoi(argv[1]) : 0, code = 1;

    if (ranks < 1 || argc > 3) {
        fprintf(stderr, "usage: nccl_streams RANKS [CASE]\n");
        return 2;
    }
    if (dist_spawn(ranks, run, argc > 2 ? argv[2] : NULL, &code) != DIST_OK)
        fprintf(stderr, "%s\n", dist_last_error());
    return code;
}
