/* SPDX-License-Identifier: BSD-3-Clause */
/* A stand-in for Ascend devices: CANN's runtime and HCCL, on host memory. */
#ifndef TESTS_STANDIN_ASCEND_H
#define TESTS_STANDIN_ASCEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * One library for both: DIST_ACL_LIBRARY and DIST_HCCL_LIBRARY name it.
 *
 * Modelled: device memory that the host cannot access; streams with a thread each, events, the
 * default stream; contexts of threads; HCCL between processes of one machine, whose first call
 * blocks until the ranks are connected, and which reports an error if two operations of a
 * communicator run at the same time. Not modelled: graphs, different kinds of devices, a device's
 * arithmetic, speed.
 *
 * Environment:
 *   STANDIN_ASCEND_DEVICES=8
 *   STANDIN_ASCEND_FAULT=KIND:RANK:N   the N-th operation (from 1) of that rank: "call" is refused,
 *                                      "hang" never ends, "remote" fails on the stream
 *   HCCL_CONNECT_TIMEOUT=120           seconds after which a first call fails
 */
#define ASCEND_API __attribute__((visibility("default")))

/* Declares and begins the definition of a function of the runtime or of HCCL. */
#define CALL(name, ...)                                                                            \
    ASCEND_API int name(__VA_ARGS__);                                                              \
    int name(__VA_ARGS__)

/* Error codes of the runtime, and of HCCL. */
enum { ASCEND_INVALID = 100000, ASCEND_REPEATED = 100002, ASCEND_NO_CONTEXT = 107002 };
enum {
    ASCEND_E_PARA = 1,
    ASCEND_E_MEMORY = 3,
    ASCEND_E_INTERNAL = 4,
    ASCEND_E_NOT_SUPPORT = 5,
    ASCEND_E_TCP_CONNECT = 11,
    ASCEND_E_REMOTE = 21
};

/* ---- ascend_runtime.c ---- */

/* Returns the stand-in's mapping of these bytes of device memory, or NULL if they are not device
 * memory. */
char *ascend_alias(const void *address, size_t bytes);

/* Sets the text that aclGetRecentErrMsg returns next in this thread. */
void ascend_set_message(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Directions of copies between device and host memory. */
enum { ASCEND_TO_DEVICE = 1, ASCEND_TO_HOST = 2 };
int ascend_copy(void *to, const void *from, size_t bytes, int kind);

/* Returns 0, or the error of a thread without a context. */
int ascend_need_context(void);
int ascend_error(int error, const char *text);

/* ---- ascend_stream.c ---- */

/* Enqueues a task on a stream (NULL: the default stream), which owns arg. run returns 0 or an
 * error. */
int ascend_put(void *stream, int (*run)(void *arg), void *arg);

/* ---- ascend_reduce.c ---- */

/* Returns the bytes of an element of HCCL's type, or 0 if there is no such type. */
size_t ascend_size(int dtype);
/* into[i] = into[i] op from[i]. Returns false if there is no such type or operation. */
bool ascend_reduce(int dtype, int op, void *into, const void *from, size_t count);

#endif
