/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info tune: measures with care what messages cost, and leaves it in the cache. */
#include "common/args.h"
#include "common/launched.h"
#include "common/output.h"
#include "explain.h"
#include "tools/common/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of the library's log, what it says of its costs is shown. */
static void tune_log(void *arg, dist_log_level level, const char *line)
{
    const char *text = strstr(line, "tuning: ");

    (void)level;
    (void)arg;
    progress_clear();
    if (text)
        printf("%s\n", text + strlen("tuning: "));
}

/* A rank of the job. Joining is what measures. */
static int tune_rank(int rank, void *arg)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    dist_group *group = NULL;
    dist_status status;
    int ranks = 0;

    (void)arg;
    options.log = tune_log;
    if (rank == 0)
        progress_show("measuring what messages cost, which takes some seconds");
    status = dist_init_process_group(&options, &group);
    progress_clear();
    if (status == DIST_OK) {
        ranks = dist_get_world_size(group);
        status = dist_destroy_process_group(group);
    }
    if (status != DIST_OK)
        fprintf(stderr, "dist_info: %s\n", dist_last_error());
    else if (ranks == 1)
        fprintf(stderr, "dist_info: tune needs two ranks or more: give --ranks, or start dist_info "
                        "as you start your job\n");
    return output_exit("dist_info", status == DIST_OK && ranks > 1 ? 0 : 1);
}

int tune_main(int argc, char **argv)
{
    struct words {
        int64_t ranks;
        int action;
    } words = {0};
    static const struct args_row rows[] = {
        {"ranks", 0, ARGS_INT, offsetof(struct words, ranks), 1, EXPLAIN_RANKS_MAX, "N",
         "start N ranks here (default: those of the job that starts this program)"},
        ARGS_HELP_ROWS(struct words, 0),
    };
    static const struct args args = {
        .rows = rows,
        .count = sizeof(rows) / sizeof(rows[0]),
        .program = "dist_info tune",
        .usage = "[--ranks N]",
        .about = "Measures the cost of messages, and keeps it for later jobs.\n"};
    int rest, code = args_begin(&args, argc, argv, &words, 0, &rest);

    if (code >= 0)
        return code;
    code = 0;
    setenv("DIST_TUNING", "measure", 1);
    unsetenv("DIST_DEBUG");
    if (!words.ranks)
        return tune_rank(0, NULL);
    if (dist_spawn((int)words.ranks, tune_rank, NULL, &code) != DIST_OK) {
        fprintf(stderr, "dist_info: %s\n", dist_last_error());
        return 1;
    }
    if (code != 0)
        launched_tell_end("dist_info", code);
    return code;
}
