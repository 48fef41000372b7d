/* SPDX-License-Identifier: BSD-3-Clause */
/* The command line: what belongs together. */
#include "options.h"

#include <inttypes.h>
#include <string.h>

#include "failure.h"

/* What no option can say by itself. */
static int options_check(const struct options *options)
{
    if (options->data && options->dummy)
        return failure("--data and --dummy exclude each other");
    if (options->dist_url && (options->addr || options->port >= 0))
        return failure("--dist-url and --addr/--port exclude each other: both say where to meet");
    if (options->rank >= 0 && options->spawn)
        return failure("--rank has no meaning with --multiprocessing-distributed, which starts all "
                       "ranks (--rank and --world-size count processes, not nodes)");
    if (options->rank >= 0 && options->world_size >= 0 && options->rank >= options->world_size)
        return failure("--rank: %" PRId64 " is out of range: with --world-size %" PRId64
                       " the ranks are 0 to %" PRId64,
                       options->rank, options->world_size, options->world_size - 1);
    if (options->evaluate && options->dry_run)
        return failure("--evaluate and --dry-run exclude each other");
    return 0;
}

int options_parse(int argc, char *const argv[], struct options *options)
{
    struct options read = options_defaults;
    char text[ARGS_FAILURE];
    int rest;

    if (args_read(&options_args, argc, argv, &read, &rest, text) < 0)
        return failure("%s", text);
    if (read.action == OPTIONS_RUN && rest < argc)
        return failure("'%s': unexpected argument; a folder of data is given with --data",
                       argv[rest]);
    if (read.action == OPTIONS_RUN && options_check(&read) < 0)
        return -1;
    if (read.lr < 0.0)
        read.lr = strcmp(read.optimizer, "sgd") == 0 ? 0.01 : 1.0;
    *options = read;
    return 0;
}

void options_help(FILE *to)
{
    fputs("Usage: train_mnist [OPTION]...\n"
          "Trains a digit classifier on MNIST with as many processes as were started.\n",
          to);
    args_help(&options_args, to);
    fputs("\n"
          "Long options are written with dashes or underscores. Ways to start 8 processes:\n"
          "  mpirun -np 8 train_mnist\n"
          "  train_mnist --multiprocessing-distributed --world-size 8\n"
          "  for r in 0 1 2 3 4 5 6 7; do\n"
          "    train_mnist --addr 127.0.0.1 --port 29500 --world-size 8 --rank $r &\n"
          "  done; wait\n"
          "\n"
          "Exit status: 0 success, 1 failure, 2 wrong usage.\n",
          to);
}
