/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info topology: the machine, or the machines and ranks of a job, in lines or as a picture. */
#include "tools/common/args.h"
#include "tools/common/launched.h"
#include "tools/common/output.h"
#include "topology.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct words {
    int64_t ranks;
    const char *svg;
    int action;
};

#define AT(member) offsetof(struct words, member)
static const struct args_row words_rows[] = {
    {"ranks", 0, ARGS_INT, AT(ranks), 1, 4096, "N",
     "start N ranks here, and show where they are (default: those of the launcher, or none)"},
    {"svg", 0, ARGS_TEXT, AT(svg), 0, 0, "FILE", "draw a picture into that file; - is the output"},
    ARGS_HELP_ROWS(struct words, 0),
};
static const struct args words_args = {
    .rows = words_rows,
    .count = sizeof(words_rows) / sizeof(words_rows[0]),
    .program = "dist_info topology",
    .usage = "[--ranks N] [--svg FILE]",
    .about = "Shows packages, NUMA nodes, cores and GPUs, and the ranks on them.\n"};

static int topology_show(const struct topology *topology, const struct words *words)
{
    struct output file;

    if (!words->svg) {
        topology_print(topology, stdout);
        return output_exit("dist_info", 0);
    }
    if (strcmp(words->svg, "-") == 0) {
        topology_draw(topology, stdout);
        return output_exit("dist_info", 0);
    }
    output_begin(&file);
    if (file.to)
        topology_draw(topology, file.to);
    if (output_end(&file, words->svg) == 0)
        return 0;
    fprintf(stderr, "dist_info: topology: --svg %s: cannot write: %s\n", words->svg,
            strerror(errno));
    return 1;
}

/* One rank of a job; rank 0 shows. */
static int topology_rank(int rank, void *arg)
{
    struct topology topology;
    dist_status status = topology_gather(&topology);
    int code = 0;

    (void)rank;
    if (status != DIST_OK) {
        fprintf(stderr, "dist_info: topology: %s\n", dist_last_error());
        code = 1;
    } else if (topology.ranks) {
        code = topology_show(&topology, arg);
    }
    free(topology.machine);
    free(topology.rank);
    return code;
}

/* The machine without ranks. */
static int topology_alone(const struct words *words)
{
    struct topology topology = {.machines = 1, .machine = malloc(sizeof(*topology.machine))};
    int code;

    if (!topology.machine) {
        fprintf(stderr, "dist_info: out of memory\n");
        return 1;
    }
    topology_discover(topology.machine);
    code = topology_show(&topology, words);
    free(topology.machine);
    return code;
}

int topology_main(int argc, char **argv)
{
    struct words words = {0};
    int rest, code = args_begin(&words_args, argc, argv, &words, 0, &rest);

    if (code >= 0)
        return code;
    code = 0;
    if (!words.ranks)
        return launched_in_job() ? topology_rank(0, &words) : topology_alone(&words);
    if (dist_spawn((int)words.ranks, topology_rank, &words, &code) != DIST_OK) {
        fprintf(stderr, "dist_info: %s\n", dist_last_error());
        return 1;
    }
    if (code != 0)
        launched_tell_end("dist_info", code);
    return code;
}
