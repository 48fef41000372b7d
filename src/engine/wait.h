/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting like a good neighbour: spin, then yield, then sleep. */
#ifndef DISTI_ENGINE_WAIT_H
#define DISTI_ENGINE_WAIT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * How a rank waits. It begins as the CPUs that the ranks may use and the ranks that share them say,
 * and is revised by what yields tell, since CPUs are taken away and strangers come:
 *
 *      EXCLUSIVE the peer runs on a CPU of its own, the news comes within a microsecond: spin
 *      CROWDED   spinning keeps the very peer from running that is waited for: yield at once, and
 *                sleep late, since a yield costs less than a sleep and a wake-up
 *      BESIDE    a program that never yields shares our CPU: a yield costs a whole time slice, a
 *                sleeper gets the CPU back when it is woken: spin shortly, then sleep
 *
 *                  a slow yield                      sleeps again, after a while
 *      EXCLUSIVE --------------------> BESIDE --------------------------------> CROWDED
 *        ^ \                             ^             a slow yield             /  |
 *        |  \                            `-------------------------------------'   |
 *        |   `-- most yields let others run ---------------------------------->    |
 *        `------ most yields let nobody run ---------------------------------------'
 *
 * Ranks that are crowded by the number of CPUs stay so: there a slow yield is a rank that works.
 */
enum disti_wait_manner { DISTI_WAIT_EXCLUSIVE, DISTI_WAIT_CROWDED, DISTI_WAIT_BESIDE };

struct disti_wait_policy {
    uint32_t spins;   /* polls before the first yield, */
    int64_t spin_ns;  /* and no longer than that, about; 0: however long they take */
    int64_t yield_ns; /* then yields for so long; 0: not at all */
    int sleep_ms;     /* then sleeps, so long at a time at most */
    bool crowded;     /* what it began as; is not revised */

    /* For disti_wait_learn; all zero: the policy stays as it is. */
    bool revises;
    enum disti_wait_manner manner;
    int64_t beside_until_ns;
    pthread_t thread; /* the one that the rest is about */
    uint32_t yields;  /* since the last verdict */
    long switches;    /* involuntary ones of the thread at the last verdict */
};

/* crowded: there are more ranks than CPUs for them. */
void disti_wait_policy_init(struct disti_wait_policy *policy, bool crowded);

/* One wait. Zeroed at the beginning, and whenever something has happened. */
struct disti_wait {
    uint32_t polls;
    int64_t spun_ns;  /* about when it began to spin; 0: just now */
    int64_t since_ns; /* of the first yield; 0: there was none */
    int64_t last_ns;  /* the end of the last yield */
    int64_t took_ns;  /* that it took, with the poll before it */
    int64_t nap_ns;   /* the last nap */
};

/* A poll found nothing: spins or yields, and returns false; true: sleep now. */
bool disti_wait_step(const struct disti_wait_policy *policy, struct disti_wait *wait);

/*
 * Nanoseconds to sleep where nothing wakes the sleeper: naps grow with the time that the wait has
 * taken, so that a short wait is not made long, and a long one costs little.
 */
int64_t disti_wait_nap(struct disti_wait *wait);

/* After a step that did not spin: revises the policy, by the clock and the thread's switches. */
void disti_wait_learn(struct disti_wait_policy *policy, const struct disti_wait *wait, bool tired);

/* ---- what it is made of: pure, for the tests ---- */

/* Yields until the next verdict about them. */
#define DISTI_WAIT_WINDOW 32

/* A yield that ended at now_ns and took so long. True: disti_wait_adapt is due. */
bool disti_wait_yielded(struct disti_wait_policy *policy, int64_t now_ns, int64_t took_ns);

/* So many of the window's yields let somebody else run. */
void disti_wait_adapt(struct disti_wait_policy *policy, long switches);

/* About to sleep, at now_ns. */
void disti_wait_tire(struct disti_wait_policy *policy, int64_t now_ns);

#endif
