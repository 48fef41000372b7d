/* SPDX-License-Identifier: BSD-3-Clause */
/* The transitions of a connection: every pair of states, as drawn in transports/tcp/state.h. */
#include "base/log.h"
#include "transports/tcp/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define STATES (TCP_CONN_LOST + 1)

/* A row for each state; '>' marks an allowed transition to the state of the column. */
static const char drawing[STATES][STATES + 1] = {
    /*                      ICGUWRLDFX */
    [TCP_CONN_IDLE] = " >>      >",     /* I */
    [TCP_CONN_CALLING] = "> >      >",  /* C */
    [TCP_CONN_GREETING] = ">  >     >", /* G */
    [TCP_CONN_UP] = "    >>>> >",       /* U */
    [TCP_CONN_WAITING] = "     >   >",  /* W */
    [TCP_CONN_RESUMING] = "   >   > >", /* R */
    [TCP_CONN_LEAVING] = "        > ",  /* L */
    [TCP_CONN_DRAINING] = "    > >  >", /* D */
    [TCP_CONN_LEFT] = "          ",     /* F */
    [TCP_CONN_LOST] = "          ",     /* X */
};

static int reports;

static void count_report(void *arg, dist_log_level level, const char *line)
{
    (void)arg, (void)line;
    reports += level == DIST_LOG_ERROR;
}

static void test_only_drawn_transitions_are_allowed(void **unused)
{
    const struct disti_log log = {.fn = count_report, .level = DIST_LOG_ERROR};

    (void)unused;
    disti_log_use(&log);
    for (int from = 0; from < STATES; from++) {
        for (int to = 0; to < STATES; to++) {
            struct tcp_conn conn = {.state = (enum tcp_conn_state)from};
            bool drawn = drawing[from][to] == '>';

            reports = 0;
            assert_int_equal(disti_tcp_conn_set_state(&conn, (enum tcp_conn_state)to),
                             drawn ? DIST_OK : DIST_ERR_INTERNAL);
            assert_int_equal(conn.state, drawn ? to : from);
            assert_int_equal(reports, drawn ? 0 : 1);
        }
    }
    disti_log_use(NULL);
}

/* Compares the predicates on states with tables, in which '#' means true. */
static void test_states_allow_sending_and_receiving(void **unused)
{
    static const char open[] = "...#####..", sends[] = "...####...", ended[] = "........##";
    static const char reads[] = "...#.###..", without_guess[] = ".....#....";

    (void)unused;
    for (int i = 0; i < STATES; i++) {
        struct tcp_conn conn = {.state = (enum tcp_conn_state)i};

        assert_int_equal(disti_tcp_conn_is_open(&conn), open[i] == '#');
        assert_int_equal(disti_tcp_conn_sends(&conn), sends[i] == '#');
        assert_int_equal(disti_tcp_conn_has_ended(&conn), ended[i] == '#');
        assert_int_equal(disti_tcp_conn_can_receive(&conn, true), reads[i] == '#');
        assert_int_equal(disti_tcp_conn_can_receive(&conn, false), without_guess[i] == '#');
        conn.readable = true;
        assert_int_equal(disti_tcp_conn_can_receive(&conn, false), reads[i] == '#');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_only_drawn_transitions_are_allowed),
                                       cmocka_unit_test(test_states_allow_sending_and_receiving)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
