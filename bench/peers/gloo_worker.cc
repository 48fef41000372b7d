/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gloo_worker CONTESTANT: Gloo's own calls over TCP, measured by dist_bench. RANK and WORLD_SIZE
 * say who this is, GLOO_STORE is an empty folder where the ranks meet, and DIST_BENCH_INTERFACE the
 * network interface (lo).
 *
 * Gloo leaves the algorithm of an all-reduce to its caller. Contestant "gloo" tries each on the
 * buffers of a run before it is measured and takes the one whose slowest rank is fastest;
 * "gloo-ring", "gloo-bcube", "gloo-hd" and "gloo-chunked" take that one always. With
 * DIST_BENCH_VERBOSE set, rank 0 says on stderr which was taken.
 */
#include "peer.h"

#include "../protocol.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

namespace
{

using Context = std::shared_ptr<gloo::Context>;
using Reduce = void (*)(void *, const void *, const void *, size_t);
using Clock = std::chrono::steady_clock;

// Slots of messages are none of those that Gloo makes of its collectives' tags.
const uint64_t MESSAGES = 1ull << 60, ANSWERS = 1ull << 48;

enum Way { RING, BCUBE, HALVING_DOUBLING, CHUNKED, WAYS };
const char *const way_names[WAYS] = {"gloo-ring", "gloo-bcube", "gloo-hd", "gloo-chunked"};

struct State {
    Context context;
    uint32_t tag = 0;         // of the last collective, all ranks' alike
    uint64_t message_tag = 0; // of the last messages, of ranks 0 and 1
    int fixed = -1;           // the contestant's way of all-reduce, or each run's best
    int way = RING;
    // Those algorithms that are bound to their memory: one for each set.
    std::vector<std::unique_ptr<gloo::Algorithm>> bound;
    // The small buffer of bw's last message.
    char byte = 0;
    std::string error;
};

State *state_of(peer_library *library)
{
    return static_cast<State *>(library->state);
}

// Runs what may throw. NULL, or the text of what was thrown.
template <typename F> const char *guarded(peer_library *library, F body)
{
    try {
        body();
        return nullptr;
    } catch (const std::exception &e) {
        std::string &error = state_of(library)->error;

        error = e.what();
        std::replace(error.begin(), error.end(), '\n', ' ');
        return error.c_str();
    }
}

// Calls body with a null pointer of the run's type.
template <typename F> void with_type(const peer_run *run, F body)
{
    switch (run->dtype) {
    case PEER_FLOAT32:
        return body(static_cast<float *>(nullptr));
    case PEER_FLOAT64:
        return body(static_cast<double *>(nullptr));
    case PEER_INT8:
        return body(static_cast<int8_t *>(nullptr));
    case PEER_UINT8:
        return body(static_cast<uint8_t *>(nullptr));
    case PEER_INT32:
        return body(static_cast<int32_t *>(nullptr));
    case PEER_UINT32:
        return body(static_cast<uint32_t *>(nullptr));
    case PEER_INT64:
        return body(static_cast<int64_t *>(nullptr));
    default:
        return body(static_cast<uint64_t *>(nullptr));
    }
}

template <typename T> Reduce reduce_of(peer_operation operation)
{
    switch (operation) {
    case PEER_PROD:
        return static_cast<Reduce>(gloo::product<T>);
    case PEER_MIN:
        return static_cast<Reduce>(gloo::min<T>);
    case PEER_MAX:
        return static_cast<Reduce>(gloo::max<T>);
    default:
        return static_cast<Reduce>(gloo::sum<T>);
    }
}

template <typename T> const gloo::ReductionFunction<T> *function_of(peer_operation operation)
{
    switch (operation) {
    case PEER_PROD:
        return gloo::ReductionFunction<T>::product;
    case PEER_MIN:
        return gloo::ReductionFunction<T>::min;
    case PEER_MAX:
        return gloo::ReductionFunction<T>::max;
    default:
        return gloo::ReductionFunction<T>::sum;
    }
}

void barrier(State *state)
{
    gloo::BarrierOptions options(state->context);

    options.setTag(++state->tag);
    gloo::barrier(options);
}

// The way of all-reduce that is possible for this run.
bool possible(const peer_run *run, int way)
{
    bool in_place = run->sets[0].in == run->sets[0].out;

    return way == RING || way == BCUBE || (in_place && run->count > 0);
}

bool is_bound(const peer_run *run, int way)
{
    return run->count > 0 && (run->collective == PEER_REDUCE_SCATTER ||
                              (run->collective == PEER_ALL_REDUCE && way >= HALVING_DOUBLING));
}

template <typename T>
std::unique_ptr<gloo::Algorithm> bind(State *state, const peer_run *run, int way, void *memory)
{
    const auto *function = function_of<T>(run->operation);
    std::vector<T *> pointers{static_cast<T *>(memory)};
    int count = static_cast<int>(run->count), ranks = state->context->size;
    gloo::Algorithm *algorithm;

    if (run->collective == PEER_REDUCE_SCATTER)
        algorithm = new gloo::ReduceScatterHalvingDoubling<T>(
            state->context, pointers, count * ranks, std::vector<int>(ranks, count), function);
    else if (way == HALVING_DOUBLING)
        algorithm =
            new gloo::AllreduceHalvingDoubling<T>(state->context, pointers, count, function);
    else
        algorithm = new gloo::AllreduceRingChunked<T>(state->context, pointers, count, function);
    return std::unique_ptr<gloo::Algorithm>(algorithm);
}

// All ranks bind and unbind together, since the memory of one is written to by others.
void unbind_all(State *state)
{
    barrier(state);
    state->bound.clear();
}

void bind_all(State *state, const peer_run *run, int way)
{
    unbind_all(state);
    state->way = way;
    if (is_bound(run, way))
        with_type(run, [&](auto *type) {
            using T = std::remove_pointer_t<decltype(type)>;
            for (size_t s = 0; s < run->set_count; s++)
                state->bound.push_back(bind<T>(state, run, way, run->sets[s].in));
        });
    barrier(state);
}

template <typename T> void all_reduce(State *state, const peer_run *run, const peer_set *set)
{
    gloo::AllreduceOptions options(state->context);

    options.setAlgorithm(state->way == BCUBE ? gloo::AllreduceOptions::Algorithm::BCUBE
                                             : gloo::AllreduceOptions::Algorithm::RING);
    if (set->in != set->out)
        options.setInput(static_cast<T *>(set->in), run->count);
    options.setOutput(static_cast<T *>(set->out), run->count);
    options.setReduceFunction(reduce_of<T>(run->operation));
    options.setTag(++state->tag);
    gloo::allreduce(options);
}

template <typename T> void reduce(State *state, const peer_run *run, const peer_set *set)
{
    gloo::ReduceOptions options(state->context);

    if (set->in != set->out)
        options.setInput(static_cast<T *>(set->in), run->count);
    options.setOutput(static_cast<T *>(set->out), run->count);
    options.setReduceFunction(reduce_of<T>(run->operation));
    options.setRoot(run->root);
    options.setTag(++state->tag);
    gloo::reduce(options);
}

template <typename T> void broadcast(State *state, const peer_run *run, const peer_set *set)
{
    gloo::BroadcastOptions options(state->context);

    options.setOutput(static_cast<T *>(set->out), run->count);
    options.setRoot(run->root);
    options.setTag(++state->tag);
    gloo::broadcast(options);
}

template <typename T> void all_gather(State *state, const peer_run *run, const peer_set *set)
{
    gloo::AllgatherOptions options(state->context);

    if (!run->in_place)
        options.setInput(static_cast<T *>(set->in), run->count);
    options.setOutput(static_cast<T *>(set->out), run->count * state->context->size);
    options.setTag(++state->tag);
    gloo::allgather(options);
}

template <typename T> void all_to_all(State *state, const peer_run *run, const peer_set *set)
{
    gloo::AlltoallOptions options(state->context);
    size_t elements = run->count * state->context->size;

    options.setInput(static_cast<T *>(set->in), elements);
    options.setOutput(static_cast<T *>(set->out), elements);
    options.setTag(++state->tag);
    gloo::alltoall(options);
}

void call(State *state, const peer_run *run, size_t s)
{
    const peer_set *set = &run->sets[s];

    if (!state->bound.empty())
        return state->bound[s]->run();
    with_type(run, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        switch (run->collective) {
        case PEER_ALL_REDUCE:
            return all_reduce<T>(state, run, set);
        case PEER_REDUCE:
            return reduce<T>(state, run, set);
        case PEER_BROADCAST:
            return broadcast<T>(state, run, set);
        case PEER_ALL_GATHER:
            return all_gather<T>(state, run, set);
        case PEER_ALL_TO_ALL:
            return all_to_all<T>(state, run, set);
        default:
            return barrier(state);
        }
    });
}

// The seconds of a call, its slowest rank's: the best of some, with some calls before.
double try_way(State *state, const peer_run *run)
{
    double best = 1e9;
    gloo::AllreduceOptions slowest(state->context);

    for (int i = 0; i < 6; i++) {
        Clock::time_point start;

        barrier(state);
        start = Clock::now();
        call(state, run, i % run->set_count);
        if (i >= 2)
            best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
    }
    slowest.setOutput(&best, 1);
    slowest.setReduceFunction(static_cast<Reduce>(gloo::max<double>));
    slowest.setTag(++state->tag);
    gloo::allreduce(slowest);
    return best;
}

// All ranks come to the same way, since they compare the same times.
int fastest(State *state, const peer_run *run)
{
    int best = RING;
    double best_time = 1e9;

    for (int way = 0; way < WAYS; way++) {
        double time;

        if (!possible(run, way))
            continue;
        bind_all(state, run, way);
        time = try_way(state, run);
        if (time < best_time) {
            best = way;
            best_time = time;
        }
    }
    if (state->context->rank == 0 && std::getenv("DIST_BENCH_VERBOSE") != nullptr)
        std::fprintf(stderr, "gloo: all_reduce of %zu bytes: %s\n", run->bytes, way_names[best]);
    return best;
}

const char *worker_refuse(peer_library *library, const peer_run *run)
{
    (void)library;
    if (run->count * run->element > (1u << 30))
        return "its all-reduce counts bytes with int";
    switch (run->collective) {
    case PEER_BIBW:
        return "not measured with Gloo";
    case PEER_GATHER:
    case PEER_SCATTER:
        return "not measured with Gloo";
    case PEER_REDUCE_SCATTER:
        return run->in_place ? nullptr : "Gloo has it in place only";
    default:
        return nullptr;
    }
}

const char *worker_prepare(peer_library *library, const peer_run *run)
{
    return guarded(library, [&] {
        State *state = state_of(library);
        int way = state->fixed < 0 ? RING : state->fixed;

        if (run->collective == PEER_ALL_REDUCE && state->fixed < 0)
            way = fastest(state, run);
        if (run->collective == PEER_ALL_REDUCE && !possible(run, way))
            throw std::runtime_error("this algorithm works in place only");
        bind_all(state, run, way);
    });
}

const char *worker_forget(peer_library *library)
{
    return guarded(library, [&] { unbind_all(state_of(library)); });
}

const char *worker_call(peer_library *library, const peer_run *run, size_t set)
{
    return guarded(library, [&] { call(state_of(library), run, set); });
}

const char *worker_barrier(peer_library *library)
{
    return guarded(library, [&] { barrier(state_of(library)); });
}

using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

// n times there and back.
void ping_pong(State *state, const peer_run *run, const peer_set *set, int n)
{
    int rank = state->context->rank, peer = 1 - rank;
    size_t bytes = run->count * run->element;
    uint64_t slot = MESSAGES + ++state->message_tag;
    Buffer out = state->context->createUnboundBuffer(set->in, bytes);
    Buffer in = state->context->createUnboundBuffer(set->out, bytes);

    for (int i = 0; i < 2 * n; i++) {
        if (i % 2 == rank) {
            out->send(peer, slot);
            out->waitSend();
        } else {
            in->recv(peer, slot);
            in->waitRecv();
        }
    }
}

// A window of messages from 0 to 1, and a byte that says that they are there.
void window(State *state, const peer_run *run, size_t first)
{
    int rank = state->context->rank, peer = 1 - rank;
    size_t bytes = run->count * run->element;
    uint64_t slot = MESSAGES + ++state->message_tag;
    Buffer buffers[BENCH_WINDOW];
    Buffer last = state->context->createUnboundBuffer(&state->byte, 1);

    for (int i = 0; i < BENCH_WINDOW; i++) {
        const peer_set *set = &run->sets[(first + i) % run->set_count];

        buffers[i] = state->context->createUnboundBuffer(rank == 0 ? set->in : set->out, bytes);
        if (rank == 0)
            buffers[i]->send(peer, slot);
        else
            buffers[i]->recv(peer, slot);
    }
    for (auto &buffer : buffers)
        if (rank == 0)
            buffer->waitSend();
        else
            buffer->waitRecv();
    if (rank == 1) {
        last->send(peer, slot + ANSWERS);
        last->waitSend();
    } else {
        last->recv(peer, slot + ANSWERS);
        last->waitRecv();
    }
}

const char *worker_messages(peer_library *library, const peer_run *run, size_t set, int n)
{
    return guarded(library, [&] {
        if (run->collective == PEER_LATENCY)
            return ping_pong(state_of(library), run, &run->sets[set], n);
        for (int i = 0; i < n; i++)
            window(state_of(library), run, set + static_cast<size_t>(i) * BENCH_WINDOW);
    });
}

int number(const char *name)
{
    const char *text = std::getenv(name);

    return text == nullptr ? -1 : std::atoi(text);
}

void connect(State *state, const peer_library *library)
{
    const char *folder = std::getenv("GLOO_STORE"), *name = std::getenv("DIST_BENCH_INTERFACE");
    gloo::rendezvous::FileStore store(folder == nullptr ? "." : folder);
    gloo::transport::tcp::attr attributes;

    attributes.iface = name == nullptr || *name == '\0' ? "lo" : name;
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    auto context = std::make_shared<gloo::rendezvous::Context>(library->rank, library->ranks);
    context->setTimeout(std::chrono::minutes(5));
    context->connectFullMesh(store, device);
    state->context = context;
}

} // namespace

int main(int argc, char **argv)
{
    std::string text = "Gloo " + std::to_string(GLOO_VERSION_MAJOR) + "." +
                       std::to_string(GLOO_VERSION_MINOR) + "." +
                       std::to_string(GLOO_VERSION_PATCH);
    peer_library library = {};
    State state;
    const char *error;
    int status;

    if (argc > 1 && std::strcmp(argv[1], "--version") == 0)
        return std::puts(text.c_str()) < 0;
    library.contestant = argc > 1 ? argv[1] : "gloo";
    library.text = text.c_str();
    library.rank = number("RANK");
    library.ranks = number("WORLD_SIZE");
    library.state = &state;
    library.refuse = worker_refuse;
    library.prepare = worker_prepare;
    library.forget = worker_forget;
    library.call = worker_call;
    library.messages = worker_messages;
    library.barrier = worker_barrier;
    for (int way = 0; way < WAYS; way++)
        if (std::strcmp(library.contestant, way_names[way]) == 0)
            state.fixed = way;
    error = guarded(&library, [&] { connect(&state, &library); });
    if (error != nullptr) {
        std::fprintf(stderr, "%s: rank %d: %s\n", library.contestant, library.rank, error);
        return 1;
    }
    status = peer_serve(&library);
    return status;
}
