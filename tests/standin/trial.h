/* SPDX-License-Identifier: BSD-3-Clause */
/* What the stand-in's own tests share: its calls, loaded as a program would, and ranks. */
#ifndef TESTS_STANDIN_TRIAL_H
#define TESTS_STANDIN_TRIAL_H

#include "nccl_abi.h"

#include "device/driver.h"

#include <stdio.h>
#include <stdlib.h>

struct ncclComm;

/* Of NCCL and of capture, by the name of the library's function. */
struct trial_calls {
#define TRIAL_MEMBER(name, parameters) NCCL_T_RESULT(*name) parameters;
    NCCL_CALLS(TRIAL_MEMBER)
#undef TRIAL_MEMBER
    const char *(*ncclGetErrorString)(int result);
    const char *(*ncclGetLastError)(struct ncclComm *comm);
    int (*capture_begin)(void *stream, int mode);
    int (*capture_end)(void *stream, void **graph);
    int (*graph_instantiate)(void **exec, void *graph, unsigned long long flags);
    int (*graph_launch)(void *exec, void *stream);
    int (*exec_destroy)(void *exec);
    int (*graph_destroy)(void *graph);
};

extern const struct disti_driver *trial_driver;
extern struct trial_calls trial;

/* Loads the library .libs/NAME.so of the build tree; ends the process if that fails. */
void trial_load(const char *name);

/* A device's context for this thread. */
void trial_device(int ordinal);

/* Runs the ranks, each a process; false if one of them fails, or takes too long. */
bool trial_ranks(int ranks, void (*run)(int rank, int ranks, void *arg), void *arg);

/* Memory shared with the ranks: for a unique id. */
void *trial_shared(size_t bytes);

/* In a rank, or elsewhere: says where it is false, and ends the process. */
#define TRIAL(expression)                                                                          \
    do {                                                                                           \
        if (!(expression)) {                                                                       \
            fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #expression);              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Device memory with these contents; and its contents, when the stream has done all before. */
uintptr_t trial_memory(const void *data, size_t bytes);
void trial_read(void *data, uintptr_t memory, size_t bytes, void *stream);
void *trial_stream(void);

#endif
