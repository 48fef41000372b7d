/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gloo_worker LIBRARY: the driver of Gloo over TCP for dist_bench. Uses the variables RANK,
 * WORLD_SIZE, GLOO_STORE (an empty directory for the rendezvous) and DIST_BENCH_INTERFACE (the
 * network interface, default lo).
 *
 * In Gloo the caller chooses the algorithm of an all-reduce. Library "gloo" tries every algorithm
 * on the buffers of a run before the measurement, and uses the one whose slowest rank is fastest;
 * "gloo-ring", "gloo-bcube", "gloo-hd" and "gloo-chunked" always use that algorithm. If
 * DIST_BENCH_VERBOSE is set, rank 0 prints the chosen algorithm to stderr.
 */
extern "C" {
#include "bench/measure.h"
}

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
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
#include <signal.h>
#include <sys/prctl.h>

namespace
{

using Reduce = void (*)(void *, const void *, const void *, size_t);
using Clock = std::chrono::steady_clock;

using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

// Slots of messages do not overlap those that Gloo derives from the tags of its collectives.
const uint64_t MESSAGES = 1ull << 60, ANSWERS = 1ull << 48;

enum Variant { RING, BCUBE, HALVING_DOUBLING, CHUNKED, VARIANTS };
const char *const variant_names[VARIANTS] = {"gloo-ring", "gloo-bcube", "gloo-hd", "gloo-chunked"};

struct State {
    struct driver driver; // must be the first member
    std::shared_ptr<gloo::Context> context;
    uint32_t tag = 0;         // tag of the last collective; equal on all ranks
    uint64_t message_tag = 0; // tag of the last messages between ranks 0 and 1
    int fixed = -1;           // variant of all-reduce; -1: the fastest for each order
    int variant = RING;
    bool prepared = false; // prepare was called for `order`
    struct order order;
    // Algorithms that are bound to buffers, by address of the buffer.
    std::map<const void *, std::unique_ptr<gloo::Algorithm>> bound;
    // Buffers of messages, by address.
    std::map<const void *, Buffer> unbound;
    char byte = 0; // the answer in bw
    std::string error;
};

// The buffers of a call; count and bytes are those of a block.
struct Arguments {
    const struct order *order;
    void *in, *out;
    size_t count, bytes;
};

Arguments arguments_of(const State *state, const struct order *order, const void *in, void *out)
{
    return {order, const_cast<void *>(in), out, order_count(order, state->driver.ranks),
            order_block(order, state->driver.ranks)};
}

State *state_of(struct driver *driver)
{
    return reinterpret_cast<State *>(driver);
}

// Runs body and converts an exception into an error.
template <typename F> dist_status guarded(struct driver *driver, F body)
{
    try {
        body();
        return DIST_OK;
    } catch (const std::exception &e) {
        std::string &error = state_of(driver)->error;

        error = e.what();
        return DIST_ERR_SYSTEM;
    }
}

// Calls body with a null pointer of the order's type.
template <typename F> void with_type(const struct order *order, F body)
{
    switch (order->dtype) {
    case DIST_FLOAT32:
        return body(static_cast<float *>(nullptr));
    case DIST_FLOAT64:
        return body(static_cast<double *>(nullptr));
    case DIST_INT8:
        return body(static_cast<int8_t *>(nullptr));
    case DIST_UINT8:
        return body(static_cast<uint8_t *>(nullptr));
    case DIST_INT32:
        return body(static_cast<int32_t *>(nullptr));
    case DIST_UINT32:
        return body(static_cast<uint32_t *>(nullptr));
    case DIST_INT64:
        return body(static_cast<int64_t *>(nullptr));
    default:
        return body(static_cast<uint64_t *>(nullptr));
    }
}

template <typename T> Reduce reduce_of(dist_op op)
{
    switch (op) {
    case DIST_PROD:
        return static_cast<Reduce>(gloo::product<T>);
    case DIST_MIN:
        return static_cast<Reduce>(gloo::min<T>);
    case DIST_MAX:
        return static_cast<Reduce>(gloo::max<T>);
    default:
        return static_cast<Reduce>(gloo::sum<T>);
    }
}

template <typename T> const gloo::ReductionFunction<T> *function_of(dist_op op)
{
    switch (op) {
    case DIST_PROD:
        return gloo::ReductionFunction<T>::product;
    case DIST_MIN:
        return gloo::ReductionFunction<T>::min;
    case DIST_MAX:
        return gloo::ReductionFunction<T>::max;
    default:
        return gloo::ReductionFunction<T>::sum;
    }
}

// ---- collectives ----

void barrier(State *state)
{
    gloo::BarrierOptions options(state->context);

    options.setTag(++state->tag);
    gloo::barrier(options);
}

template <typename T> void all_reduce(State *state, const Arguments &a)
{
    gloo::AllreduceOptions options(state->context);

    options.setAlgorithm(state->variant == BCUBE ? gloo::AllreduceOptions::Algorithm::BCUBE
                                                 : gloo::AllreduceOptions::Algorithm::RING);
    if (a.in != a.out)
        options.setInput(static_cast<T *>(a.in), a.count);
    options.setOutput(static_cast<T *>(a.out), a.count);
    options.setReduceFunction(reduce_of<T>(a.order->op));
    options.setTag(++state->tag);
    gloo::allreduce(options);
}

template <typename T> void reduce(State *state, const Arguments &a)
{
    gloo::ReduceOptions options(state->context);

    if (a.in != a.out)
        options.setInput(static_cast<T *>(a.in), a.count);
    options.setOutput(static_cast<T *>(a.out), a.count);
    options.setReduceFunction(reduce_of<T>(a.order->op));
    options.setRoot(a.order->root);
    options.setTag(++state->tag);
    gloo::reduce(options);
}

template <typename T> void broadcast(State *state, const Arguments &a)
{
    gloo::BroadcastOptions options(state->context);

    options.setOutput(static_cast<T *>(a.out), a.count);
    options.setRoot(a.order->root);
    options.setTag(++state->tag);
    gloo::broadcast(options);
}

template <typename T> void all_gather(State *state, const Arguments &a)
{
    gloo::AllgatherOptions options(state->context);

    if (!buffers_in_place(a.order))
        options.setInput(static_cast<T *>(a.in), a.count);
    options.setOutput(static_cast<T *>(a.out), a.count * state->driver.ranks);
    options.setTag(++state->tag);
    gloo::allgather(options);
}

template <typename T> void all_to_all(State *state, const Arguments &a)
{
    gloo::AlltoallOptions options(state->context);
    size_t elements = a.count * state->driver.ranks;

    options.setInput(static_cast<T *>(a.in), elements);
    options.setOutput(static_cast<T *>(a.out), elements);
    options.setTag(++state->tag);
    gloo::alltoall(options);
}

// ---- messages ----

gloo::transport::UnboundBuffer *buffer_of(State *state, void *memory, size_t bytes)
{
    Buffer &buffer = state->unbound[memory];

    if (!buffer)
        buffer = state->context->createUnboundBuffer(memory, bytes);
    return buffer.get();
}

void latency(State *state, const Arguments &a)
{
    int rank = state->driver.rank, peer = 1 - rank;
    uint64_t slot = MESSAGES + ++state->message_tag;
    auto out = buffer_of(state, a.in, a.bytes), in = buffer_of(state, a.out, a.bytes);

    for (int i = 0; i < 2; i++) {
        if (i == rank) {
            out->send(peer, slot);
            out->waitSend();
        } else {
            in->recv(peer, slot);
            in->waitRecv();
        }
    }
}

// Sends a window of messages from 0 to 1, and a byte back that acknowledges them.
void window(State *state, const Arguments &a)
{
    int rank = state->driver.rank, peer = 1 - rank;
    uint64_t slot = MESSAGES + ++state->message_tag;
    auto buffer = buffer_of(state, rank == 0 ? a.in : a.out, a.bytes);
    auto last = buffer_of(state, &state->byte, 1);

    for (int i = 0; i < a.order->window; i++)
        rank == 0 ? buffer->send(peer, slot) : buffer->recv(peer, slot);
    for (int i = 0; i < a.order->window; i++)
        rank == 0 ? buffer->waitSend() : buffer->waitRecv();
    if (rank == 1) {
        last->send(peer, slot + ANSWERS);
        last->waitSend();
    } else {
        last->recv(peer, slot + ANSWERS);
        last->waitRecv();
    }
}

void call(State *state, const Arguments &a)
{
    auto bound = state->bound.find(a.in);

    if (bound != state->bound.end())
        return bound->second->run();
    with_type(a.order, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        switch (a.order->operation->id) {
        case OPERATION_all_reduce:
            return all_reduce<T>(state, a);
        case OPERATION_reduce:
            return reduce<T>(state, a);
        case OPERATION_broadcast:
            return broadcast<T>(state, a);
        case OPERATION_all_gather:
            return all_gather<T>(state, a);
        case OPERATION_all_to_all:
            return all_to_all<T>(state, a);
        case OPERATION_latency:
            return state->driver.rank > 1 ? void() : latency(state, a);
        case OPERATION_bw:
            return state->driver.rank > 1 ? void() : window(state, a);
        default:
            return barrier(state);
        }
    });
}

// ---- variants of all-reduce ----

// True if this variant of all-reduce supports the order.
bool is_possible(const struct order *order, int variant)
{
    return variant == RING || variant == BCUBE || (buffers_in_place(order) && order->bytes > 0);
}

bool is_bound(const struct order *order, int variant)
{
    return order->bytes > 0 &&
           (order->operation->id == OPERATION_reduce_scatter ||
            (order->operation->id == OPERATION_all_reduce && variant >= HALVING_DOUBLING));
}

template <typename T>
std::unique_ptr<gloo::Algorithm> bind(State *state, const Arguments &a, int variant)
{
    const auto *function = function_of<T>(a.order->op);
    std::vector<T *> pointers{static_cast<T *>(a.in)};
    int count = static_cast<int>(a.count), ranks = state->driver.ranks;
    gloo::Algorithm *algorithm;

    if (a.order->operation->id == OPERATION_reduce_scatter)
        algorithm = new gloo::ReduceScatterHalvingDoubling<T>(
            state->context, pointers, count * ranks, std::vector<int>(ranks, count), function);
    else if (variant == HALVING_DOUBLING)
        algorithm =
            new gloo::AllreduceHalvingDoubling<T>(state->context, pointers, count, function);
    else
        algorithm = new gloo::AllreduceRingChunked<T>(state->context, pointers, count, function);
    return std::unique_ptr<gloo::Algorithm>(algorithm);
}

Arguments set_of(State *state, const struct order *order, const struct buffers *buffers, int set)
{
    return arguments_of(state, order, buffers_in(buffers, set), buffers_out(buffers, set));
}

// All ranks must bind and unbind together, because they write to each other's memory.
void unbind_all(State *state)
{
    barrier(state);
    state->bound.clear();
    state->unbound.clear();
}

void bind_all(State *state, const struct order *order, const struct buffers *buffers, int variant)
{
    unbind_all(state);
    state->variant = variant;
    if (is_bound(order, variant))
        with_type(order, [&](auto *type) {
            using T = std::remove_pointer_t<decltype(type)>;
            for (int set = 0; set < buffers->sets; set++) {
                Arguments a = set_of(state, order, buffers, set);

                state->bound[a.in] = bind<T>(state, a, variant);
            }
        });
    barrier(state);
}

// Returns the time of a call in seconds: after 2 warm-up calls, the fastest of 4 on each rank, and
// the maximum of these over the ranks.
double time_variant(State *state, const struct order *order, const struct buffers *buffers)
{
    double best = 1e9;
    gloo::AllreduceOptions slowest(state->context);

    for (int i = 0; i < 6; i++) {
        Clock::time_point start;

        barrier(state);
        start = Clock::now();
        call(state, set_of(state, order, buffers, i % buffers->sets));
        if (i >= 2)
            best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
    }
    slowest.setOutput(&best, 1);
    slowest.setReduceFunction(static_cast<Reduce>(gloo::max<double>));
    slowest.setTag(++state->tag);
    gloo::allreduce(slowest);
    return best;
}

// Returns the fastest variant. All ranks return the same one, because they compare the same times.
int fastest(State *state, const struct order *order, const struct buffers *buffers)
{
    int best = RING;
    double best_time = 1e9;

    for (int variant = 0; variant < VARIANTS; variant++) {
        double time;

        if (!is_possible(order, variant))
            continue;
        bind_all(state, order, buffers, variant);
        time = time_variant(state, order, buffers);
        if (time < best_time) {
            best = variant;
            best_time = time;
        }
    }
    if (state->driver.rank == 0 && std::getenv("DIST_BENCH_VERBOSE") != nullptr)
        std::fprintf(stderr, "gloo: all_reduce of %zu bytes: %s\n", order->bytes,
                     variant_names[best]);
    return best;
}

// ---- driver functions ----

bool has_type(const struct order *order)
{
    return order->dtype != DIST_FLOAT16 && order->dtype != DIST_BFLOAT16 &&
           order->dtype != DIST_BOOL;
}

// Returns why the order is not supported, or NULL if it is.
const char *refusal(const State *state, const struct order *order)
{
    bool reduces = order->op == DIST_SUM || order->op == DIST_PROD || order->op == DIST_MIN ||
                   order->op == DIST_MAX;

    if (!has_type(order) || (order->operation->reduces && !reduces))
        return "Gloo has no such type or reduction";
    if (order_block(order, state->driver.ranks) > (1u << 30))
        return "more bytes than an int of Gloo can count";
    switch (order->operation->id) {
    case OPERATION_all_reduce:
        return state->fixed < 0 || is_possible(order, state->fixed)
                   ? nullptr
                   : "this algorithm requires in place";
    case OPERATION_reduce_scatter:
        return order->in_place ? nullptr : "Gloo supports this in place only";
    case OPERATION_reduce:
    case OPERATION_broadcast:
    case OPERATION_all_gather:
    case OPERATION_all_to_all:
    case OPERATION_barrier:
    case OPERATION_latency:
    case OPERATION_bw:
        return nullptr;
    default:
        return "not implemented for Gloo";
    }
}

// True if bound algorithms can be reused: they depend on these fields only.
bool same(const struct order *a, const struct order *b)
{
    return a->operation == b->operation && a->bytes == b->bytes && a->dtype == b->dtype &&
           a->op == b->op && a->in_place == b->in_place && a->buffers == b->buffers;
}

dist_status worker_prepare(struct driver *driver, const struct order *order,
                           const struct buffers *buffers)
{
    State *state = state_of(driver);
    const char *why = refusal(state, order);

    if (why != nullptr) {
        state->error = why;
        return DIST_ERR_UNSUPPORTED;
    }
    if (state->prepared && same(&state->order, order))
        return DIST_OK;
    state->prepared = true;
    state->order = *order;
    return guarded(driver, [&] {
        int variant = state->fixed < 0 ? RING : state->fixed;

        if (order->operation->id == OPERATION_all_reduce && state->fixed < 0)
            variant = fastest(state, order, buffers);
        bind_all(state, order, buffers, variant);
    });
}

void worker_forget(struct driver *driver)
{
    state_of(driver)->prepared = false;
    guarded(driver, [&] { unbind_all(state_of(driver)); });
}

dist_status worker_call(struct driver *driver, const struct order *order, const void *in, void *out)
{
    State *state = state_of(driver);

    return guarded(driver, [&] { call(state, arguments_of(state, order, in, out)); });
}

dist_status worker_barrier(struct driver *driver)
{
    return guarded(driver, [&] { barrier(state_of(driver)); });
}

const char *worker_error(struct driver *driver)
{
    return state_of(driver)->error.c_str();
}

int number(const char *name)
{
    const char *text = std::getenv(name);

    return text == nullptr ? -1 : std::atoi(text);
}

void connect(State *state)
{
    const char *folder = std::getenv("GLOO_STORE"), *name = std::getenv("DIST_BENCH_INTERFACE");
    gloo::rendezvous::FileStore store(folder == nullptr ? "." : folder);
    gloo::transport::tcp::attr attributes;

    attributes.iface = name == nullptr || *name == '\0' ? "lo" : name;
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    auto context =
        std::make_shared<gloo::rendezvous::Context>(state->driver.rank, state->driver.ranks);
    context->setTimeout(std::chrono::minutes(5));
    context->connectFullMesh(store, device);
    state->context = context;
}

} // namespace

int main(int argc, char **argv)
{
    std::string release = "Gloo " + std::to_string(GLOO_VERSION_MAJOR) + "." +
                          std::to_string(GLOO_VERSION_MINOR) + "." +
                          std::to_string(GLOO_VERSION_PATCH);
    const char *name = argc > 1 ? argv[1] : "gloo";
    State state = {};

    if (std::strcmp(name, "--version") == 0)
        return std::puts(release.c_str()) < 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    state.fixed = -1;
    state.driver.rank = number("RANK");
    state.driver.ranks = number("WORLD_SIZE");
    state.driver.block_in_front = true;
    state.driver.prepare = worker_prepare;
    state.driver.forget = worker_forget;
    state.driver.call = worker_call;
    state.driver.barrier = worker_barrier;
    state.driver.error = worker_error;
    for (int variant = 0; variant < VARIANTS; variant++)
        if (std::strcmp(name, variant_names[variant]) == 0)
            state.fixed = variant;
    if (guarded(&state.driver, [&] { connect(&state); }) != DIST_OK) {
        std::fprintf(stderr, "%s: rank %d: %s\n", name, state.driver.rank, state.error.c_str());
        return 1;
    }
    return serve(&state.driver, name, release.c_str()) == 0 ? 0 : 1;
}
