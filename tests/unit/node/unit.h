/* SPDX-License-Identifier: BSD-3-Clause */
/* cmocka with what it must have before it, and a forked process beside the test. */
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

/* No step of a test takes that long, in seconds. */
#define UNIT_LIMIT 60

/*
 * A process that runs fn(arg, line) and exits with what it returns: 0, or the line of the check
 * that failed. Either side tells the other by unit_tell that it may go on.
 */
struct unit_peer {
    pid_t pid;
    int line;
};

static inline bool unit_tell(int line)
{
    return write(line, "x", 1) == 1;
}

static inline bool unit_hear(int line)
{
    struct pollfd wait = {.fd = line, .events = POLLIN};
    char byte;

    return poll(&wait, 1, UNIT_LIMIT * 1000) == 1 && read(line, &byte, 1) == 1;
}

static inline struct unit_peer unit_fork(int (*fn)(void *arg, int line), void *arg)
{
    struct unit_peer peer;
    int lines[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, lines), 0);
    fflush(NULL);
    peer.pid = fork();
    assert_true(peer.pid >= 0);
    if (peer.pid == 0) {
        alarm(UNIT_LIMIT);
        close(lines[0]);
        _exit(fn(arg, lines[1]));
    }
    close(lines[1]);
    peer.line = lines[0];
    return peer;
}

static inline void unit_join(const struct unit_peer *peer)
{
    int status;

    assert_int_equal(waitpid(peer->pid, &status, 0), peer->pid);
    close(peer->line);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("the peer ended with status %#x: check %d (mod 256) failed", status,
                 WEXITSTATUS(status));
}

static inline void unit_run(int (*fn)(void *arg, int line), void *arg)
{
    struct unit_peer peer = unit_fork(fn, arg);

    unit_join(&peer);
}

/* In a peer's function: the exit code is the line, or 255 where that would be 0. */
#define UNIT_CHECK(what)                                                                           \
    do {                                                                                           \
        if (!(what))                                                                               \
            return __LINE__ % 256 ? __LINE__ % 256 : 255;                                          \
    } while (0)

static inline struct disti_segment_name unit_name(const void *memory)
{
    struct disti_segment_location at = {.offset = 1};

    assert_true(disti_segment_find(memory, 1, &at));
    assert_int_equal(at.offset, 0);
    return at.name;
}

/* The only block of an arena that is new. */
static inline void *unit_alloc(size_t bytes)
{
    void *memory = NULL;

    assert_int_equal(disti_segment_alloc(bytes, &memory), DIST_OK);
    return memory;
}

/* What an arena is made of: a segment that this process owns. */
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

/* Bytes that differ from place to place, and from seed to seed. */
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

/* How many mappings of this process are of that name and have these rights. */
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

/* Those of segments that are shared. */
static inline int unit_shared_mappings(void)
{
    return unit_mappings("memfd:libdist", "rw-s");
}

/* Those of an arena: what is used of it, and what is not yet. */
#define UNIT_ARENA_MAPPINGS 2

static inline bool unit_is_in_valgrind(void)
{
    return unit_mappings("vgpreload", "r") > 0;
}

/* Valgrind and sanitizers need mappings for themselves, and may give odd ones to the program. */
static inline bool unit_is_watched(void)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    return true;
#else
    return unit_is_in_valgrind();
#endif
}

#endif
