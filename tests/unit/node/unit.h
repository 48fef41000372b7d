/* SPDX-License-Identifier: BSD-3-Clause */
/* cmocka with the headers that it needs, and functions for the tests of segments: forked processes,
 * segments, fill patterns, counts of mappings. */
#ifndef DISTI_TESTS_UNIT_NODE_UNIT_H
#define DISTI_TESTS_UNIT_NODE_UNIT_H

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include "node/node.h"
#include "node/segment.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Time limit of one step of a test, in seconds. */
#define UNIT_LIMIT 60

/*
 * A forked process that runs fn(arg, channel) and exits with its result: 0, or the source line of
 * the check that failed. The two processes synchronize over a socket, `channel`: unit_wait returns
 * when the other process has called unit_signal.
 */
struct unit_peer {
    pid_t pid;
    int channel;
};

static inline bool unit_signal(int channel)
{
    return write(channel, "x", 1) == 1;
}

/* False: the other process has not signalled within UNIT_LIMIT, or has exited. */
static inline bool unit_wait(int channel)
{
    struct pollfd wait = {.fd = channel, .events = POLLIN};
    char byte;

    return poll(&wait, 1, UNIT_LIMIT * 1000) == 1 && read(channel, &byte, 1) == 1;
}

/* Starts the process. The caller must call unit_join. */
static inline struct unit_peer unit_fork(int (*fn)(void *arg, int channel), void *arg)
{
    struct unit_peer peer;
    int channels[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channels), 0);
    fflush(NULL);
    peer.pid = fork();
    assert_true(peer.pid >= 0);
    if (peer.pid == 0) {
        alarm(UNIT_LIMIT);
        close(channels[0]);
        _exit(fn(arg, channels[1]));
    }
    close(channels[1]);
    peer.channel = channels[0];
    return peer;
}

/* Waits for the process to exit; the test fails if one of its checks did. */
static inline void unit_join(const struct unit_peer *peer)
{
    int status;

    assert_int_equal(waitpid(peer->pid, &status, 0), peer->pid);
    close(peer->channel);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg(
            "the forked process ended with wait status %#x: the check in line %d (mod 256) failed",
            status, WEXITSTATUS(status));
}

static inline void unit_run(int (*fn)(void *arg, int channel), void *arg)
{
    struct unit_peer peer = unit_fork(fn, arg);

    unit_join(&peer);
}

/* A check in a forked process's function. If it fails, the exit code is the line modulo 256, or 255
 * instead of 0. */
#define UNIT_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return __LINE__ % 256 ? __LINE__ % 256 : 255;                                          \
    } while (0)

/* Returns the name of the segment that begins at `memory`. */
static inline struct disti_segment_name unit_name(const void *memory)
{
    struct disti_segment_location at = {.offset = 1};

    assert_true(disti_segment_find(memory, 1, &at));
    assert_int_equal(at.offset, 0);
    return at.name;
}

/* Allocates memory; fails the test if that is impossible. */
static inline void *unit_alloc(size_t bytes)
{
    void *memory = NULL;

    assert_int_equal(disti_segment_alloc(bytes, &memory), DIST_OK);
    return memory;
}

/* A segment that this process owns, without an arena. */
struct unit_segment {
    struct disti_segment_name name;
    void *memory;
};

static inline struct unit_segment unit_segment(size_t bytes)
{
    size_t page = disti_segment_page();
    struct unit_segment made;

    bytes = (bytes + page - 1) / page * page;
    assert_int_equal(disti_segment_file_make(bytes, &made.name), DIST_OK);
    assert_int_equal(disti_segment_file_map(made.name.fd, 0, bytes, &made.memory), DIST_OK);
    madvise(made.memory, bytes, MADV_DONTFORK);
    return made;
}

static inline void unit_segment_free(const struct unit_segment *segment)
{
    munmap(segment->memory, segment->name.bytes);
    disti_segment_file_drop(&segment->name);
}

/* Returns byte i of the fill pattern of a seed. */
static inline unsigned char unit_byte(size_t i, unsigned seed)
{
    return (unsigned char)(i * 7 + (i >> 8) * 13 + seed * 101 + 1);
}

static inline void unit_fill(unsigned char *memory, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++)
        memory[i] = unit_byte(i, seed);
}

static inline bool unit_filled(const unsigned char *memory, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++) {
        if (memory[i] != unit_byte(i, seed))
            return false;
    }
    return true;
}

static inline bool unit_zeros(const unsigned char *memory, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (memory[i])
            return false;
    }
    return true;
}

/*
 * Returns the number of mappings of this process whose line in /proc/self/maps contains `name` and
 * `rights`.
 */
static inline int unit_mappings(const char *name, const char *rights)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    int count = 0;

    while (maps && fgets(line, sizeof(line), maps))
        count += strstr(line, name) && strstr(line, rights);
    if (maps)
        fclose(maps);
    return count;
}

/* Returns the number of shared mappings of segments. */
static inline int unit_shared_mappings(void)
{
    return unit_mappings("memfd:libdist", "rw-s");
}

/* Mappings of an arena: its used and its unused part. */
#define UNIT_ARENA_MAPPINGS 2

static inline bool unit_is_in_valgrind(void)
{
    return unit_mappings("vgpreload", "r") > 0;
}

/* True under Valgrind and sanitizers, which make mappings of their own, and whose heap may be
 * mapped in an unusual way. */
static inline bool unit_is_watched(void)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    return true;
#else
    return unit_is_in_valgrind();
#endif
}

#endif
