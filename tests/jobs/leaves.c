/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * leaves BACKEND WAY: rank 2 of three leaves while the other ranks make a call that needs it. Exit
 * 0: they got an error at once that names it. The timeout is longer than a job may take.
 *
 *   reduce, recv, send    it leaves the world while the other ranks wait in that call
 *   monitored, group      as above, in monitored_barrier and in dist_new_group
 *   other                 it leaves the world, starting with another group than the one in which
 *                         the other ranks wait
 *   one                   it leaves one group, in which the other ranks wait; the world continues
 *   exit                  it exits without leaving
 *   broadcast             it is the root of the last call, and the other ranks are late: no error
 */
#include <dist/dist.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TIMEOUT_MS 100000
#define LATE_MS 800
#define LEAVER 2
#define COUNT 1000
#define LONG (1 << 22)

static float data[LONG];

static void sleep_ms(long ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};

    nanosleep(&time, NULL);
}

static dist_status reduce(dist_group *group)
{
    return dist_all_reduce(group, data, data, COUNT, DIST_FLOAT32, DIST_SUM);
}

/* Makes the call that needs the rank that leaves. */
static dist_status wait_for_leaver(dist_group *world, dist_group *group, const char *way)
{
    static const int all[] = {0, 1, 2};
    dist_group *made;

    if (strcmp(way, "recv") == 0 && dist_get_rank(world) == 0)
        return dist_recv(world, data, COUNT, DIST_FLOAT32, LEAVER, 1, NULL);
    if (strcmp(way, "send") == 0 && dist_get_rank(world) == 0)
        return dist_send(world, data, LONG, DIST_FLOAT32, LEAVER, 1);
    if (strcmp(way, "monitored") == 0)
        return dist_monitored_barrier(world, 0);
    if (strcmp(way, "group") == 0)
        return dist_new_group(world, all, 3, NULL, &made);
    if (strcmp(way, "other") == 0 || strcmp(way, "one") == 0)
        return reduce(group);
    return reduce(world);
}

/* Checks that the error names the leaver and was returned in time. */
static int check_error(const char *way, int rank, dist_status status)
{
    printf("rank %d, %s: %s: %s\n", rank, way, dist_status_string(status), dist_last_error());
    if (strcmp(way, "broadcast") == 0)
        return status != DIST_OK;
    return status != DIST_ERR_PEER_LOST || !strstr(dist_last_error(), "rank 2");
}

static int leave(dist_group *world, dist_group *group, const char *way)
{
    dist_status status;

    if (strcmp(way, "exit") == 0)
        return 0;
    status = dist_destroy_process_group(strcmp(way, "one") == 0 ? group : world);
    if (strcmp(way, "one") == 0 && reduce(world) != DIST_OK)
        return 1;
    /* These calls fail on their own and leave the group usable, so leaving must succeed. */
    if (strcmp(way, "monitored") == 0 || strcmp(way, "group") == 0 || strcmp(way, "broadcast") == 0)
        return status != DIST_OK;
    return check_error(way, LEAVER, status);
}

static int stay(dist_group *world, dist_group *group, const char *way)
{
    const bool late = strcmp(way, "broadcast") == 0;
    dist_status status;
    int code;

    if (late)
        sleep_ms(LATE_MS);
    status = late ? dist_broadcast(world, data, COUNT, DIST_FLOAT32, LEAVER)
                  : wait_for_leaver(world, group, way);
    code = check_error(way, dist_get_rank(world), status);
    if (strcmp(way, "one") == 0 && reduce(world) != DIST_OK)
        code = 1;
    dist_destroy_process_group(world);
    return code;
}

int main(int argc, char **argv)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    dist_group *world, *first, *second;

    if (argc != 3)
        return 2;
    options.backend = argv[1];
    options.timeout_ms = TIMEOUT_MS;
    if (dist_init_process_group(&options, &world) != DIST_OK ||
        dist_dup_group(world, NULL, &first) != DIST_OK ||
        dist_dup_group(world, NULL, &second) != DIST_OK || reduce(world) != DIST_OK ||
        reduce(second) != DIST_OK)
        return 3;
    if (dist_get_rank(world) != LEAVER)
        return stay(world, second, argv[2]);
    if (strcmp(argv[2], "broadcast") == 0 &&
        dist_broadcast(world, data, COUNT, DIST_FLOAT32, LEAVER) != DIST_OK)
        return 4;
    return leave(world, second, argv[2]);
}
