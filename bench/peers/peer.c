/* SPDX-License-Identifier: BSD-3-Clause */
/* A worker's side of the protocol with dist_bench, and its loop of samples. */
#include "peer.h"

#include "../protocol.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define LINE 256

static const char *const collective_names[PEER_COLLECTIVES] = {
    [PEER_ALL_REDUCE] = "all_reduce",
    [PEER_BROADCAST] = "broadcast",
    [PEER_REDUCE] = "reduce",
    [PEER_ALL_GATHER] = "all_gather",
    [PEER_GATHER] = "gather",
    [PEER_SCATTER] = "scatter",
    [PEER_REDUCE_SCATTER] = "reduce_scatter",
    [PEER_ALL_TO_ALL] = "all_to_all",
    [PEER_BARRIER] = "barrier",
    [PEER_BW] = "bw",
    [PEER_BIBW] = "bibw",
    [PEER_LATENCY] = "latency",
};

static const char *const dtype_names[PEER_DTYPES] = {
    [PEER_FLOAT32] = "float32", [PEER_FLOAT64] = "float64", [PEER_INT8] = "int8",
    [PEER_UINT8] = "uint8",     [PEER_INT32] = "int32",     [PEER_UINT32] = "uint32",
    [PEER_INT64] = "int64",     [PEER_UINT64] = "uint64",
};

static const size_t dtype_bytes[PEER_DTYPES] = {4, 8, 1, 1, 4, 4, 8, 8};

static const char *const operation_names[PEER_OPERATIONS] = {
    [PEER_SUM] = "sum",
    [PEER_PROD] = "prod",
    [PEER_MIN] = "min",
    [PEER_MAX] = "max",
};

struct peer_session {
    struct peer_library *peer;
    FILE *input, *output;
    struct peer_run run;
    size_t next; /* whose turn it is of the sets */
    unsigned seed;
    char reason[LINE];
};

static int find(const char *const *names, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

static double now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int is_messages(enum peer_collective c)
{
    return c == PEER_BW || c == PEER_BIBW || c == PEER_LATENCY;
}

static int has_ranks_blocks(enum peer_collective c)
{
    return c == PEER_ALL_GATHER || c == PEER_GATHER || c == PEER_SCATTER ||
           c == PEER_REDUCE_SCATTER || c == PEER_ALL_TO_ALL;
}

static void sets_free(struct peer_run *run)
{
    for (size_t s = 0; s < run->set_count; s++) {
        free(run->sets[s].memory[0]);
        free(run->sets[s].memory[1]);
    }
    free(run->sets);
    run->sets = NULL;
    run->set_count = 0;
}

static void *memory_of(size_t bytes)
{
    void *memory = NULL;

    if (posix_memalign(&memory, bytes < 4096 ? 64 : 4096, bytes ? bytes : 1) != 0)
        return NULL;
    memset(memory, 1, bytes);
    return memory;
}

/* One buffer for both where the library's call takes one. */
static int set_make(const struct peer_run *run, int rank, int ranks, struct peer_set *set)
{
    size_t in = peer_in_bytes(run, ranks), out = peer_out_bytes(run, ranks);
    int one = run->in_place || run->collective == PEER_BROADCAST;

    if (run->collective == PEER_GATHER || run->collective == PEER_SCATTER ||
        is_messages(run->collective))
        one = 0;
    set->memory[0] = memory_of(one && out > in ? out : in);
    set->memory[1] = one ? NULL : memory_of(out);
    set->in = set->memory[0];
    set->out = one ? set->in : set->memory[1];
    if (one && run->collective == PEER_ALL_GATHER)
        set->in = (char *)set->out + (size_t)rank * in;
    return set->in != NULL && set->out != NULL;
}

static const char *sets_make(struct peer_session *session, struct peer_run *run)
{
    int rank = session->peer->rank, ranks = session->peer->ranks;
    size_t bytes = peer_in_bytes(run, ranks) + peer_out_bytes(run, ranks);
    size_t sets = BENCH_SETS_BYTES / (bytes ? bytes : BENCH_SETS_BYTES);
    size_t asked = (size_t)run->buffers;

    if (sets > BENCH_SETS_MAX)
        sets = BENCH_SETS_MAX;
    if (sets < BENCH_SETS_MIN)
        sets = BENCH_SETS_MIN;
    if (asked > 0)
        sets = asked;
    run->sets = calloc(sets, sizeof(*run->sets));
    if (run->sets == NULL)
        return "no memory";
    for (run->set_count = 0; run->set_count < sets; run->set_count++)
        if (!set_make(run, rank, ranks, &run->sets[run->set_count])) {
            run->set_count++;
            return "no memory for the buffers";
        }
    session->next = 0;
    return NULL;
}

/* Reads the words of a run line. Returns the reason if one of them is not known here. */
static const char *run_parse(struct peer_session *session, const char *line, struct peer_run *run)
{
    char collective[32], dtype[32], operation[32];
    size_t block;
    int c, d, o;

    if (sscanf(line, "run %31s %zu %31s %31s %d %d %d %d %d %d %*d %d", collective, &run->bytes,
               dtype, operation, &run->root, &run->in_place, &run->warmup, &run->samples,
               &run->batch, &run->check, &run->buffers) < 10 ||
        run->buffers < 0 || run->samples < 1 || run->batch < 1)
        return "the line is not understood";
    c = find(collective_names, PEER_COLLECTIVES, collective);
    d = find(dtype_names, PEER_DTYPES, dtype);
    o = find(operation_names, PEER_OPERATIONS, operation);
    if (c < 0)
        return "no such collective here";
    if (d < 0)
        return "no such type here";
    run->collective = (enum peer_collective)c;
    run->dtype = (enum peer_dtype)d;
    if (o < 0 && (c == PEER_ALL_REDUCE || c == PEER_REDUCE || c == PEER_REDUCE_SCATTER))
        return "no such operation here";
    run->operation = o < 0 ? PEER_SUM : (enum peer_operation)o;
    run->element = dtype_bytes[d];
    run->in_place = run->in_place && c != PEER_ALL_TO_ALL; /* libdist has none */
    block = has_ranks_blocks(run->collective) ? (size_t)session->peer->ranks : 1;
    run->count = c == PEER_BARRIER ? 0 : run->bytes / run->element / block;
    return session->peer->refuse(session->peer, run);
}

/* The same memory serves the next turn, if that asks for the same. */
static int same_memory(const struct peer_run *a, const struct peer_run *b)
{
    return a->sets != NULL && a->collective == b->collective && a->bytes == b->bytes &&
           a->dtype == b->dtype && a->operation == b->operation && a->root == b->root &&
           a->in_place == b->in_place && a->buffers == b->buffers;
}

static const char *run_forget(struct peer_session *session)
{
    const char *error = NULL;

    if (session->run.sets != NULL && session->peer->forget != NULL)
        error = session->peer->forget(session->peer);
    sets_free(&session->run);
    return error;
}

static const char *run_prepare(struct peer_session *session, struct peer_run *run)
{
    const char *error;

    if (same_memory(&session->run, run)) {
        run->sets = session->run.sets;
        run->set_count = session->run.set_count;
        session->run = *run;
        return NULL;
    }
    error = run_forget(session);
    if (error == NULL)
        error = sets_make(session, run);
    session->run = *run;
    if (error == NULL && session->peer->prepare != NULL)
        error = session->peer->prepare(session->peer, &session->run);
    return error;
}

static const char *calls(struct peer_session *session, int n)
{
    struct peer_library *library = session->peer;
    const struct peer_run *run = &session->run;
    const char *error = NULL;

    if (is_messages(run->collective)) {
        size_t first = session->next;

        session->next = (first + (size_t)n * BENCH_WINDOW) % run->set_count;
        return library->rank < 2 ? library->messages(library, run, first, n) : NULL;
    }
    for (int i = 0; i < n && error == NULL; i++) {
        error = library->call(library, run, session->next);
        if (++session->next == run->set_count)
            session->next = 0;
    }
    return error;
}

/* Fresh data through one call. Sets *wrong_p to 1 and the reason if the result is not right. */
static const char *checked_call(struct peer_session *session, int *wrong_p)
{
    struct peer_library *library = session->peer;
    const struct peer_run *run = &session->run;
    const struct peer_set *set;
    const char *error;
    size_t block = 0, element = 0;

    if (!run->check || run->count == 0 || is_messages(run->collective))
        return NULL;
    set = &run->sets[session->next];
    peer_fill(run, library->rank, library->ranks, ++session->seed, set);
    error = calls(session, 1);
    if (error == NULL &&
        !peer_right(run, library->rank, library->ranks, session->seed, set, &block, &element)) {
        snprintf(session->reason, sizeof(session->reason), "rank %d: element %zu of block %zu",
                 library->rank, element, block);
        *wrong_p = 1;
    }
    return error;
}

static const char *samples(struct peer_session *session, double *took)
{
    struct peer_library *library = session->peer;
    const struct peer_run *run = &session->run;
    const char *error = calls(session, run->warmup);

    for (int s = 0; s < run->samples && error == NULL; s++) {
        double start;

        error = library->barrier(library);
        if (error != NULL)
            break;
        start = now_ns();
        error = calls(session, run->batch);
        took[s] = (now_ns() - start) / run->batch;
        if (is_messages(run->collective) && library->rank > 1)
            took[s] = 0;
    }
    return error;
}

/* All ranks go through the same calls, whatever they find out. */
static void run_measure(struct peer_session *session)
{
    double *took = calloc((size_t)session->run.samples, sizeof(*took));
    const char *error = took == NULL ? "no memory" : NULL;
    int wrong = 0;

    if (error == NULL)
        error = checked_call(session, &wrong);
    if (error == NULL)
        error = samples(session, took);
    if (error == NULL)
        error = checked_call(session, &wrong);
    if (error != NULL) {
        fprintf(session->output, "failed %s\n", error);
    } else if (wrong) {
        fprintf(session->output, "wrong %s\n", session->reason);
    } else {
        fprintf(session->output, "took");
        for (int s = 0; s < session->run.samples; s++)
            fprintf(session->output, " %.1f", took[s]);
        fprintf(session->output, "\n");
    }
    free(took);
}

static void answer(struct peer_session *session, const char *line)
{
    struct peer_run run = {0};
    const char *reason = run_parse(session, line, &run);

    if (reason == NULL && is_messages(run.collective) && session->peer->ranks < 2)
        reason = "it takes two ranks";
    if (reason != NULL)
        fprintf(session->output, "unsupported %s\n", reason);
    else if ((reason = run_prepare(session, &run)) != NULL)
        fprintf(session->output, "failed %s\n", reason);
    else
        run_measure(session);
    fflush(session->output);
}

static int session_connect(struct peer_session *session)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = getenv(BENCH_SOCKET);
    int socket_fd = -1, copy = -1;

    if (path == NULL || strlen(path) >= sizeof(address.sun_path)) {
        fprintf(stderr, "%s: dist_bench starts this program; set %s to its socket\n",
                session->peer->contestant, BENCH_SOCKET);
        return 0;
    }
    strcpy(address.sun_path, path);
    socket_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket_fd < 0 || connect(socket_fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        (copy = dup(socket_fd)) < 0 || (session->input = fdopen(socket_fd, "r")) == NULL ||
        (session->output = fdopen(copy, "w")) == NULL) {
        fprintf(stderr, "%s: no connection to dist_bench at %s: %s\n", session->peer->contestant,
                path, strerror(errno));
        return 0;
    }
    fprintf(session->output, "hello %s %d %d %s\n", session->peer->contestant, session->peer->rank,
            session->peer->ranks, session->peer->text);
    fflush(session->output);
    return 1;
}

int peer_serve(struct peer_library *library)
{
    struct peer_session session = {.peer = library};
    char line[LINE];
    int served = 0;

    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a launcher that is killed leaves nobody behind */
    signal(SIGPIPE, SIG_IGN);
    if (session_connect(&session)) {
        served = 1;
        while (fgets(line, sizeof(line), session.input) != NULL && strncmp(line, "quit", 4) != 0)
            answer(&session, line);
    }
    sets_free(&session.run);
    if (session.input != NULL)
        fclose(session.input);
    if (session.output != NULL)
        fclose(session.output);
    return served ? 0 : 1;
}
