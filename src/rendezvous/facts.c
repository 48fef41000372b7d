/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts together what program, init method and launcher say of rank and world size. */
#include "rendezvous/facts.h"

#include "base/log.h"
#include "rendezvous/meet.h"

#include <string.h>

static struct disti_facts_number facts_pick(int option, int url, int launch, const char *launcher)
{
    if (option >= 0)
        return (struct disti_facts_number){option, "given by the program"};
    if (url >= 0)
        return (struct disti_facts_number){url, "from the init method"};
    return (struct disti_facts_number){launch, launcher};
}

static void facts_compare(const char *what, const struct disti_facts_number *number,
                          const struct disti_launch *launch, int launched)
{
    if (launched >= 0 && launched != number->value)
        disti_warn("%s is %d (%s), but the launcher (%s) says %d: using %d", what, number->value,
                   number->from, launch->launcher, launched, number->value);
}

/* Options first, then the init method, then the launcher. */
static void facts_pick_all(struct disti_facts *facts)
{
    const struct dist_options *options = facts->options;
    const struct disti_launch *launch = &facts->launch;

    facts->rank = facts_pick(options->rank, facts->url.rank, launch->rank, launch->launcher);
    facts->world_size = facts_pick(options->world_size, facts->url.world_size, launch->world_size,
                                   launch->launcher);
    facts->local_rank = options->local_rank;
    facts->local_world_size = -1;
    /* The launcher's local rank belongs to the launcher's world. */
    if (facts->world_size.value == launch->world_size) {
        facts->local_world_size = launch->local_world_size;
        if (facts->local_rank < 0)
            facts->local_rank = launch->local_rank;
    }
}

dist_status disti_facts_gather(const struct dist_options *options, struct disti_facts *facts)
{
    dist_status status = disti_url_parse(options->init_method, &facts->url);
    bool told = options->rank >= 0 && options->world_size >= 0 &&
                (options->oob_all_gather || facts->url.kind == DISTI_URL_TCP ||
                 facts->url.kind == DISTI_URL_FILE);

    facts->options = options;
    facts->launch = (struct disti_launch){.launcher = told ? "the program itself" : "none",
                                          .rank = -1,
                                          .world_size = -1,
                                          .local_rank = -1,
                                          .local_world_size = -1,
                                          .port = DISTI_PORT_DEFAULT,
                                          .timeout_ms = -1};
    /* Whoever is told everything does not look at the environment, nonsense or not. */
    if (status == DIST_OK && !told)
        status = disti_launch_detect(&facts->launch);
    if (status != DIST_OK)
        return status;
    facts_pick_all(facts);
    facts_compare("the rank", &facts->rank, &facts->launch, facts->launch.rank);
    facts_compare("the world size", &facts->world_size, &facts->launch, facts->launch.world_size);
    return DIST_OK;
}

dist_status disti_facts_ask_launcher(struct disti_facts *facts, int64_t deadline)
{
    struct disti_launch *launch = &facts->launch;
    dist_status status;

    if (!launch->pmix || launch->world_size >= 0)
        return DIST_OK;
    status = disti_launch_ask_pmix(launch, deadline);
    if (status == DIST_OK)
        facts_pick_all(facts);
    return status;
}

static dist_status facts_missing(const struct disti_facts *facts)
{
    if (facts->rank.value < 0 && facts->world_size.value < 0)
        return disti_fail(DIST_ERR_RENDEZVOUS,
                          "neither rank nor world size is known: set RANK and WORLD_SIZE for each "
                          "process, give both to dist_init_process_group, or use a launcher such "
                          "as mpirun");
    if (facts->rank.value < 0)
        return disti_fail(DIST_ERR_RENDEZVOUS,
                          "the world size is %d (%s), but this process's rank is not known: set "
                          "RANK to 0 to %d, a different one for each process",
                          facts->world_size.value, facts->world_size.from,
                          facts->world_size.value - 1);
    return disti_fail(DIST_ERR_RENDEZVOUS,
                      "this is rank %d (%s), but the world size is not known: set WORLD_SIZE to "
                      "the number of processes",
                      facts->rank.value, facts->rank.from);
}

bool disti_facts_are_scheduled(const struct disti_facts *facts)
{
    return facts->launch.scheduler != DISTI_SCHEDULER_NONE && !facts->options->oob_all_gather &&
           (facts->url.kind == DISTI_URL_NONE || facts->url.kind == DISTI_URL_ENV);
}

bool disti_facts_are_scheduler(const struct disti_facts *facts)
{
    return disti_facts_are_scheduled(facts) && facts->launch.scheduler == DISTI_SCHEDULER_SELF &&
           facts->rank.value < 0;
}

dist_status disti_facts_complete(struct disti_facts *facts)
{
    bool nothing = facts->rank.value < 0 && facts->world_size.value < 0;

    if (nothing && facts->url.kind == DISTI_URL_NONE && !facts->options->oob_all_gather)
        facts->rank.value = 0, facts->world_size.value = 1;
    if (facts->world_size.value == 1 && facts->rank.value < 0 && !disti_facts_are_scheduler(facts))
        facts->rank.value = 0;
    if (facts->world_size.value < 0 || (facts->rank.value < 0 && !disti_facts_are_scheduled(facts)))
        return facts_missing(facts);
    if (facts->world_size.value == 0)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "the world size is 0 (%s): give the number of processes, 1 or more",
                          facts->world_size.from);
    if (facts->rank.value >= facts->world_size.value)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "rank %d (%s) is out of range: the world size is %d (%s), so ranks are 0 "
                          "to %d",
                          facts->rank.value, facts->rank.from, facts->world_size.value,
                          facts->world_size.from, facts->world_size.value - 1);
    if (facts->local_rank >= facts->world_size.value)
        return disti_fail(
            DIST_ERR_INVALID_ARGUMENT,
            "local rank %d is out of range: the world size is %d (%s), so set LOCAL_RANK to less",
            facts->local_rank, facts->world_size.value, facts->world_size.from);
    return DIST_OK;
}
