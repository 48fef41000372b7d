// SPDX-License-Identifier: BSD-3-Clause
// Collectives of oneCCL on CPUs, for ctypes; libraries.py compiles it. bf16: bfloat16, else
// float32.
#include <cstring>
#include <oneapi/ccl.hpp>

static ccl::communicator *group;
static ccl::shared_ptr_class<ccl::kvs> store;

static ccl::datatype type(int bf16)
{
    return bf16 ? ccl::datatype::bfloat16 : ccl::datatype::float32;
}

extern "C" {
int address_size()
{
    return sizeof(ccl::kvs::address_type);
}

void create_store(void *address)
{
    ccl::init();
    store = ccl::create_main_kvs();
    memcpy(address, store->get_address().data(), sizeof(ccl::kvs::address_type));
}

// Rank 0 has called create_store; the other ranks pass the address that it returned.
void join(int ranks, int rank, const void *address)
{
    ccl::kvs::address_type main;

    ccl::init();
    memcpy(main.data(), address, main.size());
    if (rank != 0)
        store = ccl::create_kvs(main);
    group = new ccl::communicator(ccl::create_communicator(ranks, rank, store));
}

void all_reduce(void *in, void *out, size_t count, int bf16)
{
    ccl::allreduce(in, out, count, type(bf16), ccl::reduction::sum, *group).wait();
}

void all_gather(void *in, void *out, size_t count, int bf16)
{
    ccl::allgather(in, out, count, type(bf16), *group).wait();
}

void reduce_scatter(void *in, void *out, size_t count, int bf16)
{
    ccl::reduce_scatter(in, out, count, type(bf16), ccl::reduction::sum, *group).wait();
}
}
