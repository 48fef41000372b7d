/* SPDX-License-Identifier: BSD-3-Clause */
/* The command line: what belongs together. */
#include "options.h"

#include <inttypes.h>
#include <string.h>

#include "failure.h"

static int options_check_gradients(const struct options *options)
{
    const bool wired = strcmp(options->wire, "same") != 0;

    if (options->reproducible && wired)
        return failure("--reproducible and --wire %s exclude each other: what is rounded on the "
                       "way depends on the number of ranks",
                       options->wire);
    if (options->zero && (options->reproducible || wired))
        return failure("--zero and %s exclude each other",
                       options->reproducible ? "--reproducible" : "--wire");
    if (strcmp(options->device, "cpu") != 0 && (wired || options->clip > 0.0 || options->zero))
        return failure("%s is for --device cpu", wired           ? "--wire"
                                                 : options->zero ? "--zero"
                                                                 : "--clip");
    return 0;
}

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
    if (!options->checkpoint && (options->keep > 0 || options->checkpoint_interval > 0))
        return failure("%s is of no use without --checkpoint, which says where to write",
                       options->keep > 0 ? "--keep" : "--checkpoint-interval");
    if (options->evaluate && options->dry_run)
        return failure("--evaluate and --dry-run exclude each other");
    return options_check_gradients(options);
}

struct options options_usual(const struct task *task)
{
    struct options options = options_defaults;

    options.task = task;
    options.arch = task->arch;
    options.optimizer = task->optimizer;
    options.schedule = task->schedule;
    options.epochs = task->epochs;
    options.batch_size = task->batch_size;
    options.train_samples = task->train_samples;
    options.test_samples = task->test_samples;
    options.gamma = task->gamma;
    options.weight_decay = task->weight_decay;
    options.augment = task->augment;
    return options;
}

int options_parse(const struct task *task, int argc, char *const argv[], struct options *options)
{
    struct options read = options_usual(task);
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
        read.lr = strcmp(read.optimizer, "sgd") == 0 ? task->lr_sgd : task->lr_adadelta;
    *options = read;
    return 0;
}

void options_help(const struct task *task, FILE *to)
{
    const bool sgd = strcmp(task->optimizer, "sgd") == 0;
    struct args args = options_args;
    char text[2048];

    args.program = task->program;
    args.about = task->about;
    args_help(&args, to);
    snprintf(text, sizeof(text),
             "\nDefaults of this program: --arch %s --epochs %" PRId64 " --batch-size %" PRId64
             " --optimizer %s --lr %g (%g for %s) --schedule %s --gamma %g --weight-decay %g "
             "--augment=%d --train-samples %" PRId64 " --test-samples %" PRId64 "\n"
             "\n"
             "Long options are written with dashes or underscores. Ways to start 8 processes:\n"
             "  mpirun -np 8 %s\n"
             "  %s --multiprocessing-distributed --world-size 8\n"
             "  for r in 0 1 2 3 4 5 6 7; do\n"
             "    %s --addr 127.0.0.1 --port 29500 --world-size 8 --rank $r &\n"
             "  done; wait\n"
             "\n"
             "Exit status: 0 success, 1 failure, 2 wrong usage.\n",
             task->arch, task->epochs, task->batch_size, task->optimizer,
             sgd ? task->lr_sgd : task->lr_adadelta, sgd ? task->lr_adadelta : task->lr_sgd,
             sgd ? "adadelta" : "sgd", task->schedule, task->gamma, task->weight_decay,
             task->augment, task->train_samples, task->test_samples, task->program, task->program,
             task->program);
    args_text(text, to);
}
