/* SPDX-License-Identifier: BSD-3-Clause */
/* Which groups share an open transport, and which groups open their own. */
#include "endpoint/endpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int opened, closed;
static const struct dist_transport_config *given; /* of the last open */

struct fake_state {
    struct dist_transport_config config;
    struct dist_request *posted;
};

static dist_status fake_open(void *opaque, const struct dist_transport_config *config)
{
    struct fake_state *state = opaque;

    state->config = *config;
    given = config;
    state->posted = NULL;
    opened++;
    return DIST_OK;
}

/* The address is the configuration, for the test to inspect. */
static dist_status fake_address(void *opaque, void *blob, size_t *size_p)
{
    const struct fake_state *state = opaque;

    memcpy(blob, &state->config, sizeof(state->config));
    *size_p = sizeof(state->config);
    return DIST_OK;
}

static void fake_cancel(void *opaque, uint64_t tag, uint64_t mask)
{
    (void)opaque;
    (void)tag;
    (void)mask;
}

static void fake_recv(void *opaque, struct dist_request *request)
{
    struct fake_state *state = opaque;

    request->next = state->posted;
    state->posted = request;
}

static int fake_progress(void *opaque)
{
    (void)opaque;
    return 0;
}

/* All posted receives complete while the transport is armed. */
static int fake_arm(void *opaque)
{
    struct fake_state *state = opaque;

    for (; state->posted; state->posted = state->posted->next)
        state->posted->status = DIST_OK;
    return STDIN_FILENO;
}

static void fake_disarm(void *opaque)
{
    (void)opaque;
}

static void fake_close(void *opaque)
{
    (void)opaque;
    closed++;
}

static const struct dist_transport fake_shared = {.name = "shared",
                                                  .state_size = sizeof(struct fake_state),
                                                  .open = fake_open,
                                                  .address = fake_address,
                                                  .recv = fake_recv,
                                                  .progress = fake_progress,
                                                  .arm = fake_arm,
                                                  .disarm = fake_disarm,
                                                  .cancel = fake_cancel,
                                                  .close = fake_close};
static const struct dist_transport fake_own = {.name = "own",
                                               .state_size = sizeof(struct fake_state),
                                               .open = fake_open,
                                               .address = fake_address,
                                               .close = fake_close};

/* Rank 2 of a world of 4 ranks, in a group of the world's ranks 0 and 2. */
static const int fake_members[] = {0, 2};
static const struct dist_backend_config fake_group = {.size = sizeof(fake_group),
                                                      .rank = 1,
                                                      .world_size = 2,
                                                      .local_ranks = 2,
                                                      .timeout_ms = 1000,
                                                      .job = "world/group",
                                                      .members = fake_members,
                                                      .world_job = "world",
                                                      .world_rank = 2,
                                                      .world_ranks = 4,
                                                      .world_local_ranks = 4,
                                                      .world_timeout_ms = 2000};

static int start(void **unused)
{
    (void)unused;
    opened = closed = 0;
    return 0;
}

static struct dist_transport_config opened_with(struct engine_attachment *link)
{
    struct dist_transport_config config;
    unsigned char blob[DIST_ADDRESS_MAX];
    size_t size;

    assert_int_equal(disti_attachment_address(link, blob, &size), DIST_OK);
    assert_int_equal(size, sizeof(config));
    memcpy(&config, blob, sizeof(config));
    return config;
}

/* The timeout is at least the world's, and never becomes shorter. */
static void the_longest_timeout_is_used(void **unused)
{
    static const int timeouts[] = {1000, 5000, 3000}, longest[] = {2000, 5000, 5000};
    struct engine_attachment links[3];

    (void)unused;
    for (int i = 0; i < 3; i++) {
        struct dist_backend_config group = fake_group;

        group.timeout_ms = timeouts[i];
        assert_int_equal(disti_attachment_open(&links[i], &fake_shared, &group, NULL), DIST_OK);
        assert_int_equal(given->timeout_ms, longest[i]);
    }
    for (int i = 0; i < 3; i++)
        disti_attachment_close(&links[i]);
    disti_endpoints_close("world", 2);
    assert_int_equal(opened, 1);
}

/* Contexts have different addresses on each rank, and an address can be reused after a group has
 * been closed. So they must not decide about sharing. */
static void groups_of_a_world_share_whatever_their_contexts_are(void **unused)
{
    struct dist_backend_config other = fake_group;
    struct engine_attachment a, b, c;
    int contexts[3];

    (void)unused;
    other.group = 7;
    assert_int_equal(disti_attachment_open(&a, &fake_shared, &fake_group, &contexts[0]), DIST_OK);
    assert_int_equal(disti_attachment_open(&b, &fake_shared, &other, &contexts[1]), DIST_OK);
    assert_ptr_equal(a.endpoint, b.endpoint);
    disti_attachment_close(&b);
    assert_int_equal(disti_attachment_open(&c, &fake_shared, &other, &contexts[2]), DIST_OK);
    assert_int_equal(opened, 1);
    disti_attachment_close(&c);
    disti_attachment_close(&a);
    assert_int_equal(closed, 0);
    disti_endpoints_close("world", 2);
    assert_int_equal(closed, 1);
}

static void a_shared_endpoint_is_the_worlds_and_has_no_context(void **unused)
{
    struct dist_transport_config config;
    struct engine_attachment link;
    int context;

    (void)unused;
    assert_int_equal(disti_attachment_open(&link, &fake_shared, &fake_group, &context), DIST_OK);
    config = opened_with(&link);
    assert_null(config.context);
    assert_int_equal(config.rank, 2);
    assert_int_equal(config.world_size, 4);
    assert_int_equal(config.timeout_ms, 2000);
    disti_attachment_close(&link);
    disti_endpoints_close("world", 2);
}

/* Ranks that are threads of one process, and worlds that exist one after the other. */
static void different_ranks_and_worlds_share_nothing(void **unused)
{
    struct dist_backend_config rank = fake_group, world = fake_group;
    struct engine_attachment a, b, c;

    (void)unused;
    rank.world_rank = 0;
    world.world_job = "next world";
    assert_int_equal(disti_attachment_open(&a, &fake_shared, &fake_group, NULL), DIST_OK);
    assert_int_equal(disti_attachment_open(&b, &fake_shared, &rank, NULL), DIST_OK);
    assert_int_equal(disti_attachment_open(&c, &fake_shared, &world, NULL), DIST_OK);
    assert_int_equal(opened, 3);
    disti_attachment_close(&a);
    disti_attachment_close(&b);
    disti_attachment_close(&c);
    disti_endpoints_close("world", 2);
    disti_endpoints_close("world", 0);
    disti_endpoints_close("next world", 2);
    assert_int_equal(closed, 3);
}

static void without_cancel_each_group_opens_its_own_endpoint(void **unused)
{
    struct dist_transport_config config;
    struct engine_attachment a, b;
    int contexts[2];

    (void)unused;
    assert_int_equal(disti_attachment_open(&a, &fake_own, &fake_group, &contexts[0]), DIST_OK);
    assert_int_equal(disti_attachment_open(&b, &fake_own, &fake_group, &contexts[1]), DIST_OK);
    assert_int_equal(opened, 2);
    config = opened_with(&b);
    assert_ptr_equal(config.context, &contexts[1]);
    assert_int_equal(config.rank, 1);
    assert_int_equal(config.world_size, 2);
    disti_attachment_close(&a);
    disti_attachment_close(&b);
    assert_int_equal(closed, 2);
}

/* Nothing else reports these completions, so neither the caller, which was about to sleep, nor the
 * other group may miss them. */
static void completions_while_arming_are_collected(void **unused)
{
    struct dist_backend_config other = fake_group;
    struct engine_request request = {0}, others = {0};
    struct engine_attachment a, b;

    (void)unused;
    other.group = 7;
    assert_int_equal(disti_attachment_open(&a, &fake_shared, &fake_group, NULL), DIST_OK);
    assert_int_equal(disti_attachment_open(&b, &fake_shared, &other, NULL), DIST_OK);
    disti_attachment_recv(&a, 0, &request);
    disti_attachment_recv(&b, 0, &others);
    assert_int_equal(disti_attachment_progress(&a), 0);
    assert_int_equal(disti_attachment_progress(&b), 0);
    assert_int_equal(request.status, DIST_IN_PROGRESS);
    assert_int_equal(disti_attachment_arm(&a, false), DIST_ARM_READY);
    assert_int_equal(disti_attachment_progress(&a), 1);
    assert_int_equal(disti_attachment_progress(&b), 1);
    assert_int_equal(request.status, DIST_OK);
    assert_int_equal(others.status, DIST_OK);
    disti_attachment_close(&b);
    disti_attachment_close(&a);
    disti_endpoints_close("world", 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(groups_of_a_world_share_whatever_their_contexts_are, start),
        cmocka_unit_test_setup(a_shared_endpoint_is_the_worlds_and_has_no_context, start),
        cmocka_unit_test_setup(the_longest_timeout_is_used, start),
        cmocka_unit_test_setup(different_ranks_and_worlds_share_nothing, start),
        cmocka_unit_test_setup(without_cancel_each_group_opens_its_own_endpoint, start),
        cmocka_unit_test_setup(completions_while_arming_are_collected, start),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
