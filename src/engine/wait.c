/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting like a good neighbour: spin, then yield, then sleep. */
#include "engine/engine.h"

#include "base/clock.h"

#include <sched.h>
#include <sys/resource.h>

#define WAIT_SLEEP_MS 100

/*
 * A hop through shared memory takes under a microsecond, and a poll some 30 ns: alone, a
 * rank spins for about a millisecond, since its peer may compute that long. Beside a stranger the
 * peer is running now, and the news comes soon, or it is not, and our CPU can be its.
 */
static const struct {
    uint32_t spins;
    int64_t spin_ns, yield_ns;
} wait_manners[] = {
    [DISTI_WAIT_EXCLUSIVE] = {32768, 2000 * 1000, 1000 * 1000},
    [DISTI_WAIT_CROWDED] = {0, 0, 4 * 1000 * 1000},
    [DISTI_WAIT_BESIDE] = {4096, 250 * 1000, 0},
};

/* Polls between two looks at the clock while spinning: where a poll is a call of the kernel, all
 * spins would take ten times as long. */
#define WAIT_SPINS_BETWEEN 32

/* Programs that wait give the CPU back within microseconds, one that computes after a time slice,
 * some milliseconds. */
#define WAIT_SLOW_NS (200 * 1000)

/* To find out whether the stranger is still there costs a time slice. */
#define WAIT_BESIDE_NS (250LL * 1000 * 1000)

/* The first nap, and the longest; each is longer than the one before by this share of it. */
#define WAIT_NAP_NS (50 * 1000)
#define WAIT_NAP_MOST_NS (20 * 1000 * 1000)
#define WAIT_NAP_SHARE 8

static void wait_behave(struct disti_wait_policy *policy, enum disti_wait_manner manner)
{
    policy->manner = manner;
    policy->spins = wait_manners[manner].spins;
    policy->spin_ns = wait_manners[manner].spin_ns;
    policy->yield_ns = wait_manners[manner].yield_ns;
    policy->yields = 0;
}

void disti_wait_policy_init(struct disti_wait_policy *policy, bool crowded)
{
    *policy = (struct disti_wait_policy){
        .sleep_ms = WAIT_SLEEP_MS, .crowded = crowded, .revises = !crowded};
    wait_behave(policy, crowded ? DISTI_WAIT_CROWDED : DISTI_WAIT_EXCLUSIVE);
}

/* One more spin; the last one if it has been so long. */
static void wait_spin(const struct disti_wait_policy *policy, struct disti_wait *wait)
{
    int64_t now;

#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
    if (++wait->polls % WAIT_SPINS_BETWEEN != 0 || !policy->spin_ns)
        return;
    now = disti_now_ns();
    if (!wait->spun_ns)
        wait->spun_ns = now;
    else if (now - wait->spun_ns > policy->spin_ns)
        wait->polls = policy->spins;
}

bool disti_wait_step(const struct disti_wait_policy *policy, struct disti_wait *wait)
{
    int64_t now;

    if (wait->polls < policy->spins) {
        wait_spin(policy, wait);
        return false;
    }
    if (!policy->yield_ns)
        return true;
    if (!wait->since_ns)
        wait->since_ns = wait->last_ns = disti_now_ns();
    else if (wait->last_ns - wait->since_ns > policy->yield_ns)
        return true;
    sched_yield();
    now = disti_now_ns();
    wait->took_ns = now - wait->last_ns;
    wait->last_ns = now;
    return false;
}

int64_t disti_wait_nap(struct disti_wait *wait)
{
    int64_t longer = wait->nap_ns + wait->nap_ns / WAIT_NAP_SHARE;

    wait->nap_ns = longer < WAIT_NAP_NS        ? WAIT_NAP_NS
                   : longer < WAIT_NAP_MOST_NS ? longer
                                               : WAIT_NAP_MOST_NS;
    return wait->nap_ns;
}

bool disti_wait_yielded(struct disti_wait_policy *policy, int64_t now_ns, int64_t took_ns)
{
    if (took_ns > WAIT_SLOW_NS) {
        wait_behave(policy, DISTI_WAIT_BESIDE);
        policy->beside_until_ns = now_ns + WAIT_BESIDE_NS;
        return false;
    }
    return ++policy->yields > DISTI_WAIT_WINDOW;
}

void disti_wait_adapt(struct disti_wait_policy *policy, long switches)
{
    wait_behave(policy,
                switches > DISTI_WAIT_WINDOW / 2 ? DISTI_WAIT_CROWDED : DISTI_WAIT_EXCLUSIVE);
}

void disti_wait_tire(struct disti_wait_policy *policy, int64_t now_ns)
{
    if (policy->manner == DISTI_WAIT_BESIDE && now_ns > policy->beside_until_ns)
        wait_behave(policy, DISTI_WAIT_CROWDED);
}

void disti_wait_learn(struct disti_wait_policy *policy, const struct disti_wait *wait, bool tired)
{
    long switches;

    if (!policy->revises)
        return;
    if (tired) {
        disti_wait_tire(policy, disti_now_ns());
        return;
    }
    if (!pthread_equal(policy->thread, pthread_self()))
        policy->yields = 0;
    if (!disti_wait_yielded(policy, wait->last_ns, wait->took_ns) && policy->yields != 1)
        return;
    /* How often the calling thread has lost its CPU without having gone to sleep. */
    struct rusage use;
    switches = getrusage(RUSAGE_THREAD, &use) == 0 ? use.ru_nivcsw : 0;
    if (policy->yields > 1)
        disti_wait_adapt(policy, switches - policy->switches);
    policy->switches = switches;
    policy->thread = pthread_self();
}
