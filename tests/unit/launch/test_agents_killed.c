/* SPDX-License-Identifier: BSD-3-Clause */
/* Agents as processes, one of which is killed or stopped at a random moment: the other agents
 * finish the job, or end. */
#include "tests/unit/launch/agents.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define AGENTS 5
#define MIN_NODES 2
#define ROUNDS 64
#define WORK_MS 60
#define INTERVAL_MS 150
#define ATTEMPTS 10

/* Exit codes of an agent's process. */
enum { ENDED_FINISHED, ENDED_GIVEN_UP = 3, ENDED_BROKEN, ENDED_STUCK, ENDED_INCONSISTENT };

/* For each round: the process of each node rank, and the number of nodes. For each agent: its last
 * round. */
static struct shared {
    int port;
    pid_t nodes[ROUNDS][AGENTS];
    int counts[ROUNDS], last[AGENTS];
    bool took_part[AGENTS];
    char broken[AGENTS][DISTI_AGENTS_TEXT];
} * shared;

static uint64_t seed = 1;

static int any(int n)
{
    return (int)(unit_random(&seed) % (uint64_t)n);
}

/* False: two agents have different data about a round. */
static bool note_round(int agent, const struct disti_agents_round *round)
{
    pid_t none = 0;
    int zero = 0;

    if (round->round >= ROUNDS || round->nodes > AGENTS)
        return false;
    shared->last[agent] = round->round;
    shared->took_part[agent] = true;
    if (!__atomic_compare_exchange_n(&shared->counts[round->round], &zero, round->nodes, false,
                                     __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) &&
        zero != round->nodes)
        return false;
    return __atomic_compare_exchange_n(&shared->nodes[round->round][round->node_rank], &none,
                                       getpid(), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* Runs an agent as distrun does: polls its one descriptor, and reports its workers as ended after a
 * random time. Returns an exit code. */
static int agent_run(struct disti_agents *agents, int agent)
{
    struct pollfd ready = {.fd = disti_agents_fd(agents), .events = POLLIN};
    int64_t deadline = disti_deadline_ms(WAIT_MS), done = 0;
    struct disti_agents_failure failure = {.rank = 1, .exit_code = 1};
    struct disti_agents_event event;

    while (!disti_expired(deadline)) {
        poll(&ready, 1, disti_left_ms(done ? done : deadline));
        if (done && disti_expired(done)) {
            if (any(12) == 0)
                disti_agents_failed(agents, &failure);
            else
                disti_agents_ended(agents, 1);
            done = 0;
        }
        while (disti_agents_next_event(agents, &event)) {
            if (event.type == DISTI_AGENTS_ROUND && !note_round(agent, &event.round))
                return ENDED_INCONSISTENT;
            if (event.type == DISTI_AGENTS_ROUND)
                done = disti_deadline_ms(1 + any(WORK_MS));
            if (event.type == DISTI_AGENTS_RESTART) {
                done = 0;
                disti_sleep_ns(any(20) * INT64_C(1000000));
                disti_agents_ready(agents);
            }
            if (event.type == DISTI_AGENTS_BROKEN) {
                memcpy(shared->broken[agent], event.text, sizeof(event.text));
                return ENDED_BROKEN;
            }
            if (event.type == DISTI_AGENTS_GIVEN_UP)
                return ENDED_GIVEN_UP;
            if (event.type == DISTI_AGENTS_FINISHED)
                return ENDED_FINISHED;
        }
    }
    return ENDED_STUCK;
}

static pid_t agent_start(int agent)
{
    struct disti_agents_config config = agents_config(shared->port, MIN_NODES, AGENTS);
    struct disti_agents *agents;
    uint64_t child_seed = unit_random(&seed);
    char host[16];
    pid_t pid = fork();
    int code;

    if (pid)
        return pid;
    seed = child_seed;
    snprintf(host, sizeof(host), "node%d", agent);
    config.host = host;
    config.workers = 1 + agent;
    config.max_restarts = ROUNDS;
    config.last_call_timeout_ms = 60 * unit_patience();
    config.keep_alive_interval_ms = INTERVAL_MS * unit_patience();
    config.keep_alive_max_attempt = ATTEMPTS;
    config.serve = agent ? DISTI_AGENTS_SERVE_NEVER : DISTI_AGENTS_SERVE;
    if (disti_agents_open(&config, &agents) != DIST_OK)
        _exit(ENDED_INCONSISTENT);
    __atomic_store_n(&shared->port, disti_agents_port(agents), __ATOMIC_SEQ_CST);
    code = agent_run(agents, agent);
    disti_agents_close(agents, NULL, 300);
    _exit(code);
}

static void start_all(pid_t pids[AGENTS])
{
    memset(shared, 0, sizeof(*shared));
    fflush(NULL);
    pids[0] = agent_start(0);
    for (int i = 0; i < WAIT_MS && !__atomic_load_n(&shared->port, __ATOMIC_SEQ_CST); i++)
        disti_sleep_ns(1000000);
    for (int i = 1; i < AGENTS; i++)
        pids[i] = agent_start(i);
}

static void wait_for_first_round(void)
{
    int64_t deadline = disti_deadline_ms(WAIT_MS);

    while (!__atomic_load_n(&shared->counts[0], __ATOMIC_SEQ_CST)) {
        assert_false(disti_expired(deadline));
        disti_sleep_ns(1000000);
    }
}

static int wait_for(pid_t pid)
{
    int how = 0;

    assert_int_equal(waitpid(pid, &how, 0), pid);
    return WIFEXITED(how) ? WEXITSTATUS(how) : -WTERMSIG(how);
}

/* Checks that all agents except the victim ended with `code`, and after the same round, which had
 * at least AGENTS - 1 nodes. */
static void expect_others(const pid_t pids[AGENTS], int victim, int code)
{
    for (int i = 0; i < AGENTS; i++) {
        int ended = i == victim ? code : wait_for(pids[i]);

        if (ended != code)
            print_message("agent %d, victim %d: %s\n", i, victim, shared->broken[i]);
        assert_int_equal(ended, code);
    }
    for (int i = 0; code == ENDED_FINISHED && i < AGENTS; i++) {
        int last = shared->last[victim ? 0 : 1];

        if (i != victim)
            assert_int_equal(shared->last[i], last);
        assert_true(shared->counts[last] >= AGENTS - 1);
    }
}

/* Checks that the agent reports that node0 is lost, and why. An agent that was too late for any
 * round may report that it found no server. */
static void expect_broken(int agent, int ended, const char *why)
{
    const char *text = shared->broken[agent];
    bool lost = strstr(text, "node0") && strstr(text, why);
    bool late = !shared->took_part[agent] && strstr(text, "found no agent that serves");

    if (ended != ENDED_BROKEN || (!lost && !late))
        print_message("agent %d ended with %d: %s\n", agent, ended, text);
    assert_int_equal(ended, ENDED_BROKEN);
    assert_true(lost || late);
}

static int repeats(void)
{
    return getenv("CHECK_LONG") ? 300 : getenv("CHECK_SHORT") ? 3 : 12;
}

static void test_a_killed_agent_is_dropped(void **state)
{
    pid_t pids[AGENTS];

    (void)state;
    for (int i = 0; i < repeats(); i++) {
        int victim = 1 + any(AGENTS - 1), ended;

        start_all(pids);
        disti_sleep_ns(any(90) * INT64_C(1000000));
        kill(pids[victim], SIGKILL);
        ended = wait_for(pids[victim]);
        assert_true(ended == -SIGKILL || ended == ENDED_FINISHED);
        expect_others(pids, victim, ENDED_FINISHED);
    }
}

/* A killed agent that is started again joins a later round, or finds the job finished. */
static void test_a_killed_agent_may_be_started_again(void **state)
{
    pid_t pids[AGENTS];

    (void)state;
    for (int i = 0; i < repeats() / 2; i++) {
        int victim = 1 + any(AGENTS - 1), ended;

        start_all(pids);
        disti_sleep_ns(any(90) * INT64_C(1000000));
        kill(pids[victim], SIGKILL);
        wait_for(pids[victim]);
        pids[victim] = agent_start(victim);
        for (int k = 0; k < AGENTS; k++) {
            if (k != victim)
                assert_int_equal(wait_for(pids[k]), ENDED_FINISHED);
        }
        kill(pids[victim], SIGTERM); /* the new agent may still wait for a job of that name */
        ended = wait_for(pids[victim]);
        assert_true(ended == ENDED_FINISHED || ended == ENDED_BROKEN || ended == -SIGTERM);
    }
}

static void test_agents_end_if_the_server_is_killed(void **state)
{
    pid_t pids[AGENTS];

    (void)state;
    for (int i = 0; i < repeats() / 2; i++) {
        bool killed;

        start_all(pids);
        wait_for_first_round();
        disti_sleep_ns(any(20) * INT64_C(1000000));
        kill(pids[0], SIGKILL);
        killed = wait_for(pids[0]) == -SIGKILL;
        for (int k = 1; k < AGENTS; k++) {
            int ended = wait_for(pids[k]);

            if (ended != ENDED_FINISHED && killed)
                expect_broken(k, ended, "its connection broke");
        }
    }
}

/* The other agents finish without the stopped one. When it continues, it ends too. */
static void test_a_stopped_agent_is_dropped(void **state)
{
    pid_t pids[AGENTS];

    (void)state;
    for (int i = 0; i < (repeats() + 11) / 12; i++) {
        int victim = 1 + any(AGENTS - 1), ended;

        start_all(pids);
        disti_sleep_ns(any(90) * INT64_C(1000000));
        kill(pids[victim], SIGSTOP);
        expect_others(pids, victim, ENDED_FINISHED);
        kill(pids[victim], SIGCONT);
        kill(pids[victim], SIGTERM); /* the agent may have been stopped before it connected */
        ended = wait_for(pids[victim]);
        assert_true(ended == ENDED_FINISHED || ended == ENDED_BROKEN || ended == -SIGTERM);
    }
}

/* A stopped server keeps its connections open but is silent: the other agents end after the
 * timeout. */
static void test_agents_end_if_the_server_is_stopped(void **state)
{
    pid_t pids[AGENTS];
    char silence[64];

    (void)state;
    snprintf(silence, sizeof(silence), "sent nothing for %.1f s",
             unit_patience() * INTERVAL_MS * ATTEMPTS / 1000.0);
    start_all(pids);
    wait_for_first_round();
    kill(pids[0], SIGSTOP);
    for (int i = 1; i < AGENTS; i++) {
        int ended = wait_for(pids[i]);

        if (ended == ENDED_FINISHED) /* the server had reported this before it was stopped */
            continue;
        expect_broken(i, ended, silence);
    }
    kill(pids[0], SIGKILL);
    assert_int_equal(wait_for(pids[0]), -SIGKILL);
}

static int map_shared(void **state)
{
    (void)state;
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? -1 : 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_killed_agent_is_dropped),
        cmocka_unit_test(test_a_killed_agent_may_be_started_again),
        cmocka_unit_test(test_agents_end_if_the_server_is_killed),
        cmocka_unit_test(test_a_stopped_agent_is_dropped),
        cmocka_unit_test(test_agents_end_if_the_server_is_stopped),
    };

    if (getenv("DIST_TEST_SEED"))
        seed = strtoull(getenv("DIST_TEST_SEED"), NULL, 10);
    return cmocka_run_group_tests(tests, map_shared, NULL);
}
