/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting like a good neighbour: spin, then yield, then sleep. */
#include "engine/wait.h"

#include "base/clock.h"

#include <sched.h>

/*
 * A shared-memory hop takes under a microsecond, and a poll some 30 ns: spin for about a
 * millisecond, so that a yield to a stranger (which costs a whole time slice) comes only when the
 * peer is late.
 */
#define WAIT_SPINS 32768
#define WAIT_YIELD_ALONE_NS (1000 * 1000)
#define WAIT_YIELD_CROWDED_NS (4 * 1000 * 1000)
#define WAIT_SLEEP_MS 100

static void wait_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void disti_wait_policy_init(struct disti_wait_policy *policy, bool crowded)
{
    policy->spins = crowded ? 0 : WAIT_SPINS;
    policy->yield_ns = crowded ? WAIT_YIELD_CROWDED_NS : WAIT_YIELD_ALONE_NS;
    policy->sleep_ms = WAIT_SLEEP_MS;
}

bool disti_wait_step(const struct disti_wait_policy *policy, struct disti_wait *wait)
{
    if (wait->polls < policy->spins) {
        wait->polls++;
        wait_relax();
        return false;
    }
    if (!wait->since_ns)
        wait->since_ns = disti_now_ns();
    else if (disti_now_ns() - wait->since_ns > policy->yield_ns)
        return true;
    sched_yield();
    return false;
}
