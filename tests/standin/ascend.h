/* SPDX-License-Identifier: BSD-3-Clause */
/* A stand-in for Ascend devices: CANN's runtime and HCCL, on the memory of the host. */
#ifndef TESTS_STANDIN_ASCEND_H
#define TESTS_STANDIN_ASCEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * One library for both: DIST_ACL_LIBRARY and DIST_HCCL_LIBRARY name it.
 *
 * Modelled: device memory that the host cannot touch; streams with a thread each, events, the
 * default stream; contexts of threads; HCCL between processes of one machine, with its first call
 * that blocks until the ranks are connected, and with an error where two operations of a
 * communicator run at a time.
 * Not modelled: graphs, devices that differ, arithmetic of a device, speed.
 *
 * Environment:
 *   STANDIN_ASCEND_DEVICES=8
 *   STANDIN_ASCEND_FAULT=KIND:RANK:N   the N-th operation (from 1) of that rank: "call" is refused,
 *                                      "hang" never ends, "remote" fails on the stream
 *   HCCL_CONNECT_TIMEOUT=120           seconds until a first call gives up
 */
#define ASCEND_API __attribute__((visibility("default")))

/* The head of a call of theirs. */
#define CALL(name, ...)                                                                            \
    ASCEND_API int name(__VA_ARGS__);                                                              \
    int name(__VA_ARGS__)

/* Errors of the runtime, and of HCCL. */
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

/* Where the stand-in reads and writes these bytes of a device; NULL: they are none. */
char *ascend_alias(const void *address, size_t bytes);

/* What aclGetRecentErrMsg says next, of this thread. */
void ascend_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Copies between memory of a device and of the host, of these kinds. */
enum { ASCEND_TO_DEVICE = 1, ASCEND_TO_HOST = 2 };
int ascend_copy(void *to, const void *from, size_t bytes, int kind);

/* 0, or the error of a thread without a context. */
int ascend_need_context(void);
int ascend_error(int error, const char *text);

/* ---- ascend_stream.c ---- */

/* Puts a task on a stream (NULL: the default one); run returns 0 or an error. It owns arg. */
int ascend_put(void *stream, int (*run)(void *arg), void *arg);

/* ---- ascend_reduce.c ---- */

/* Bytes of an element of HCCL's type; 0: there is none. */
size_t ascend_size(int dtype);
/* into[i] = into[i] op from[i]; false: no such type or operation. */
bool ascend_reduce(int dtype, int op, void *into, const void *from, size_t count);

#endif
