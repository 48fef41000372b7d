/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the stand-in's own tests: its functions, loaded as a program would, and ranks. */
#ifndef TESTS_STANDIN_TRIAL_H
#define TESTS_STANDIN_TRIAL_H

#include "nccl_abi.h"

#include "device/driver.h"

#include <stdio.h>
#include <stdlib.h>

struct ncclComm;

/* Functions of NCCL and of capture, by the names in the library. */
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

/* Loads the library .libs/NAME.so of the build tree; exits the process if that fails. */
void trial_load(const char *name);

/* Makes a device's context current in this thread. */
void trial_device(int ordinal);

/* Runs the ranks, each in a process. Returns false if one of them fails or takes too long. */
bool trial_ranks(int ranks, void (*run)(int rank, int ranks, void *arg), void *arg);

/* Returns memory shared with the ranks, for a unique id. */
void *trial_shared(size_t bytes);

/* Prints where the expression is false, and exits the process (a rank or the test). */
#define TRIAL(expression)                                                                          \
    do {                                                                                           \
        if (!(expression)) {                                                                       \
            fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #expression);              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* trial_memory returns device memory with a copy of data; trial_read reads it after the stream's
 * earlier work. */
uintptr_t trial_memory(const void *data, size_t bytes);
void trial_read(void *data, uintptr_t memory, size_t bytes, void *stream);
void *trial_stream(void);

#endif
