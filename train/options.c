/* SPDX-License-Identifier: BSD-3-Clause */
/* The command line of train_mnist and train_cifar10. */
#include "options.h"

#include <inttypes.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "failure.h"
#include "model.h"
#include "records.h"

/*
 * ---- the tasks: PyTorch's MNIST example; CIFAR-10 as trained by He et al., with fewer epochs ----
 */

/* Defaults of both tasks. */
#define TASK_DEFAULTS                                                                              \
    .start_epoch = -1, .test_batch_size = 1000, .lr = -1.0, .momentum = 0.9, .seed = 1,            \
    .max_steps = -1, .accumulate = 1, .compression = "same", .record_interval = 1,                 \
    .world_size = -1, .rank = -1, .local_rank = -1, .port = -1, .timeout = -1, .device = "cpu"

static const double task_lr_adadelta = 1.0;

const struct task task_mnist = {
    .program = "train_mnist",
    .about = "Trains a digit classifier on MNIST with all processes of the job.",
    .model = "mnist",
    .data = &dataset_mnist,
    .lr_sgd = 0.01,
    .defaults = {TASK_DEFAULTS, .task = &task_mnist, .arch = "cnn", .optimizer = "adadelta",
                 .schedule = "step", .epochs = 2, .batch_size = 64, .train_samples = 60000,
                 .test_samples = 10000, .gamma = 0.7},
};

const struct task task_cifar10 = {
    .program = "train_cifar10",
    .about = "Trains a classifier of small pictures on CIFAR-10 with all processes of the job.",
    .model = "cifar10",
    .data = &dataset_cifar10,
    .lr_sgd = 0.1,
    .defaults = {TASK_DEFAULTS, .task = &task_cifar10, .arch = "resnet20", .optimizer = "sgd",
                 .schedule = "cosine", .epochs = 30, .batch_size = 128, .train_samples = 50000,
                 .test_samples = 10000, .gamma = 0.9, .weight_decay = 1e-4, .augment = true},
};

/* ---- the table of options ---- */

#define AT(member) offsetof(struct options, member)
#define GROUP(name) name, 0, ARGS_GROUP, 0, 0, 0, NULL, NULL
#define FLAG(names, letter, member, help) names, letter, ARGS_FLAG, AT(member), 0, 0, NULL, help
#define SWITCH(names, letter, member, help) names, letter, ARGS_SWITCH, AT(member), 0, 0, NULL, help
#define INT(names, letter, member, least, most, argument, help)                                    \
    names, letter, ARGS_INT, AT(member), least, most, argument, help
#define REAL(names, letter, member, least, most, help)                                             \
    names, letter, ARGS_REAL, AT(member), least, most, "X", help
#define TEXT(names, letter, member, argument, help)                                                \
    names, letter, ARGS_TEXT, AT(member), 0, 0, argument, help
#define CHOICE(names, letter, member, argument, help)                                              \
    names, letter, ARGS_CHOICE, AT(member), 0, 0, argument, help
#define ACTION(names, letter, value, help)                                                         \
    names, letter, ARGS_ACTION, AT(action), value, 0, NULL, help

static const struct args_row options_rows[] = {
    {GROUP("Data")},
    {TEXT("data", 0, data, "DIR",
          "directory of the data set: MNIST's IDX files, plain or .gz, or the binary version of "
          "CIFAR-10 (default: synthetic images)")},
    {FLAG("dummy", 0, dummy, "use synthetic images, as without --data")},
    {INT("train-samples", 0, train_samples, 1, UINT_MAX, "N",
         "number of synthetic training images")},
    {INT("test-samples", 0, test_samples, 1, UINT_MAX, "N", "number of synthetic test images")},
    {SWITCH(
        "augment", 0, augment,
        "augment the training images at random: rotate, scale and shift digits; pad pictures by 4 "
        "pixels, crop and mirror them")},

    {GROUP("Training")},
    {CHOICE("arch", 'a', arch, ARCH_NAMES, "the model")},
    {INT("epochs", 0, epochs, 0, 1000000, "N", "passes over the training set")},
    {INT("start-epoch", 0, start_epoch, 0, 1000000, "N",
         "epochs to treat as done (default: the checkpoint's, or 0)")},
    {INT("batch-size", 'b', batch_size, 1, 1 << 24, "N", "global batch, divided among the ranks")},
    {INT("test-batch-size", 0, test_batch_size, 1, 1 << 24, "N",
         "global batch of the test (default: 1000)")},
    {CHOICE("optimizer", 0, optimizer, "adadelta|sgd", "the optimizer")},
    {REAL("lr,learning-rate", 0, lr, 0, 1e6, "learning rate (default: depends on the optimizer)")},
    {CHOICE("schedule", 0, schedule, "step|cosine|constant",
            "learning rate: multiply by gamma after each epoch, half a cosine to 0, or constant")},
    {REAL("gamma", 0, gamma, 0, 1e6, "factor on the learning rate after each epoch")},
    {INT("warmup", 0, warmup, 0, 1000000000, "N",
         "steps in which the learning rate rises linearly to its value (default: 0)")},
    {REAL("momentum", 0, momentum, 0, 1, "momentum of sgd (default: 0.9)")},
    {REAL("weight-decay,wd", 0, weight_decay, 0, 1e6, "add X times each weight to its gradient")},
    {INT("seed", 0, seed, 0, 9007199254740992, "N", "seed of all random numbers (default: 1)")},
    {INT("accumulate", 0, accumulate, 1, 1 << 20, "N",
         "batches per update, whose gradients are added up (default: 1)")},
    {REAL("clip", 0, clip, 0, 1e30, "limit the norm of all gradients to X (default: 0, no limit)")},
    {INT("patience", 0, patience, 0, 1000000, "N",
         "stop after N epochs without a smaller test loss (default: 0, never)")},
    {FLAG("reproducible", 0, reproducible, "the same bits with 1, 2, 4 and 8 processes; slower")},
    {INT("max-steps", 0, max_steps, 0, 9007199254740992, "N", "stop training after N steps")},
    {FLAG("dry-run", 0, dry_run, "run one step and a test, to check the setup")},
    {FLAG("evaluate", 'e', evaluate, "test only, no training")},

    {GROUP("Files")},
    {TEXT("resume", 0, resume, "PATH",
          "resume from this safetensors file, or from the newest one in this directory")},
    {TEXT("checkpoint", 0, checkpoint, "PATH",
          "save the training state in this file or directory; resume from it if it exists")},
    {INT("keep", 0, keep, 1, 1000000, "N",
         "keep the N newest checkpoints of a directory (default: 3)")},
    {INT("checkpoint-interval", 0, checkpoint_interval, 0, 1000000000, "N",
         "save also every N steps, not only after each epoch (default: 0, off)")},
    {FLAG("save-model", 0, save_model,
          "write mnist_ARCH.safetensors (cifar10_ARCH.safetensors) at the end")},
    {FLAG(
        "save-best", 0, save_best,
        "write mnist_ARCH_best.safetensors (cifar10_) after each epoch with the smallest test loss "
        "so far")},
    {INT("log-interval,print-freq", 'p', log_interval, 1, 1 << 30, "N",
         "steps between lines of output (default: ten lines per epoch)")},
    {TEXT("loss-log", 0, loss_log, "FILE", "write one line per step: step and loss")},

    {GROUP("Records")},
    {TEXT("metrics", 0, metrics, "FILE",
          "write losses, rates, times and tests, one line of JSON per step")},
    {TEXT("tensorboard", 0, tensorboard, "DIR", "write an event file for TensorBoard in DIR")},
    {INT("record-interval", 0, record_interval, 1, 1 << 30, "N",
         "average N steps per record of --metrics and --tensorboard (default: 1)")},
    {TEXT("report", 0, report, "FILE", "write an HTML page with curves, times and settings")},
    {TEXT("trace", 0, trace, "FILE",
          "write a timeline of all ranks at the end, for ui.perfetto.dev")},

    {GROUP("Processes (world size and rank count processes, not nodes)")},
    {TEXT("dist-backend", 0, dist_backend, "NAME",
          "gloo, mpi, ... (default: $DIST_BACKEND, or gloo; self with one process)")},
    {TEXT("dist-url", 0, dist_url, "URL",
          "env://, tcp://HOST:PORT, file:///PATH or mpi:// (default: from the launcher)")},
    {INT("world-size", 0, world_size, 1, INT_MAX, "N",
         "number of processes (default: from the launcher)")},
    {INT("rank", 0, rank, 0, INT_MAX, "N",
         "number of this process, from 0 (default: from the launcher)")},
    {INT("local-rank", 0, local_rank, 0, INT_MAX, "N",
         "number of this process on this machine (default: from the launcher)")},
    {TEXT("addr", 0, addr, "HOST", "with --port: same as --dist-url tcp://HOST:PORT")},
    {INT("port", 0, port, 1, 65535, "N", "port of --addr (default: 29500)")},
    {FLAG("multiprocessing-distributed", 0, spawn,
          "start --world-size processes here, without a launcher (default: one per usable CPU)")},
    {INT("timeout", 0, timeout, 1, INT_MAX, "SECONDS",
         "maximum wait for the other processes (default: $DIST_TIMEOUT, or 300)")},

    {GROUP("Gradients between processes")},
    {CHOICE("wire", 0, compression, "same|fp16|bf16|int8",
            "compression for the transfer (default: same, none)")},
    {REAL("bucket-mb", 0, bucket_mb, 0, 4096,
          "MiB of gradients per bucket (default: 0, chosen by the library)")},
    {FLAG("zero", 0, zero,
          "shard the optimizer's state: each process stores and updates its share")},

    {GROUP("Machine")},
    {TEXT("device", 0, device, "NAME",
          "where to compute: cpu (the default), cuda, or cuda:N for GPU number N")},
    {INT("threads", 0, threads, 1, 4096, "N",
         "threads per rank for matrix products (default: $OMP_NUM_THREADS, or 1)")},
    {FLAG("no-accel", 0, no_accel, "accepted for compatibility; no effect")},
    {INT("workers", 'j', workers, 0, 1024, "N",
         "threads per rank that load samples ahead (default: 0, load on demand)")},
    {ACTION("help", 'h', OPTIONS_HELP, "print this and exit")},
    {ACTION("version", 0, OPTIONS_VERSION, "print the version and exit")},
};

const struct args options_args = {.rows = options_rows,
                                  .count = sizeof(options_rows) / sizeof(options_rows[0]),
                                  .usage = "[OPTION]...\n--help | --version"};

/* ---- options and their values, as text ---- */

/*
 * Formats the value as on the command line; "" if the option was not given: a number below its
 * minimum, or no text.
 */
static void facts_value(const struct args_row *row, const void *options, char *text, size_t size)
{
    const void *at = (const char *)options + row->offset;

    text[0] = '\0';
    switch (row->kind) {
    case ARGS_FLAG:
    case ARGS_SWITCH:
        snprintf(text, size, "%s", *(const bool *)at ? "yes" : "no");
        break;
    case ARGS_INT:
        if ((double)*(const int64_t *)at >= row->least)
            snprintf(text, size, "%" PRId64, *(const int64_t *)at);
        break;
    case ARGS_REAL:
        if (*(const double *)at >= row->least)
            snprintf(text, size, "%.9g", *(const double *)at);
        break;
    case ARGS_TEXT:
    case ARGS_CHOICE:
        if (*(const char *const *)at)
            snprintf(text, size, "%.*s", (int)size - 1, *(const char *const *)at);
        break;
    default:
        break;
    }
}

int options_facts(const struct options *options, struct record_fact *facts, int capacity)
{
    char value[sizeof(facts->value)];
    int count = 0;

    for (int i = 0; i < options_args.count; i++) {
        const struct args_row *row = &options_args.rows[i];
        struct record_fact fact = {.changed = false};

        facts_value(row, options, fact.value, sizeof(fact.value));
        if (fact.value[0] == '\0')
            continue;
        snprintf(fact.name, sizeof(fact.name), "%.*s", (int)strcspn(row->names, ","), row->names);
        /* An option whose default depends on other options has no default here: unchanged. */
        facts_value(row, &options->task->defaults, value, sizeof(value));
        fact.changed =
            strcmp(value, fact.value) != 0 && !(row->kind == ARGS_REAL && value[0] == '\0');
        if (count < capacity)
            facts[count] = fact;
        count++;
    }
    return count;
}

/* ---- the command line: checks across options ---- */

/* Checks combinations of options. */
static int options_check(const struct options *options)
{
    const bool compressed = strcmp(options->compression, "same") != 0;

    if (options->data && options->dummy)
        return failure("--data and --dummy exclude each other");
    if (options->dist_url && (options->addr || options->port >= 0))
        return failure(
            "--dist-url and --addr/--port exclude each other: both set the rendezvous address");
    if (options->rank >= 0 && options->spawn)
        return failure("--rank has no meaning with --multiprocessing-distributed, which starts all "
                       "ranks (--rank and --world-size count processes, not nodes)");
    if (options->rank >= 0 && options->world_size >= 0 && options->rank >= options->world_size)
        return failure("--rank: %" PRId64 " is out of range: with --world-size %" PRId64
                       " the ranks are 0 to %" PRId64,
                       options->rank, options->world_size, options->world_size - 1);
    if (!options->checkpoint && (options->keep > 0 || options->checkpoint_interval > 0))
        return failure("%s has no effect without --checkpoint",
                       options->keep > 0 ? "--keep" : "--checkpoint-interval");
    if (options->evaluate && options->dry_run)
        return failure("--evaluate and --dry-run exclude each other");
    if (options->reproducible && compressed)
        return failure(
            "--reproducible and --wire %s exclude each other: the rounding of compressed "
            "gradients depends on the number of ranks",
            options->compression);
    if (options->zero && (options->reproducible || compressed))
        return failure("--zero and %s exclude each other",
                       options->reproducible ? "--reproducible" : "--wire");
    if (strcmp(options->device, "cpu") != 0 && (compressed || options->clip > 0.0 || options->zero))
        return failure("%s requires --device cpu", compressed      ? "--wire"
                                                   : options->zero ? "--zero"
                                                                   : "--clip");
    return 0;
}

int options_parse(const struct task *task, int argc, char *const argv[], struct options *options)
{
    struct options read = task->defaults;
    char text[ARGS_FAILURE];
    int rest;

    if (args_read(&options_args, argc, argv, &read, &rest, text) < 0)
        return failure("%s", text);
    if (read.action == OPTIONS_RUN && rest < argc)
        return failure("'%s': unexpected argument; use --data for the data directory", argv[rest]);
    if (read.action == OPTIONS_RUN && options_check(&read) < 0)
        return -1;
    if (read.lr < 0.0)
        read.lr = strcmp(read.optimizer, "sgd") == 0 ? task->lr_sgd : task_lr_adadelta;
    *options = read;
    return 0;
}

void options_help(const struct task *task, FILE *to)
{
    const struct options *defaults = &task->defaults;
    const bool sgd = strcmp(defaults->optimizer, "sgd") == 0;
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
             defaults->arch, defaults->epochs, defaults->batch_size, defaults->optimizer,
             sgd ? task->lr_sgd : task_lr_adadelta, sgd ? task_lr_adadelta : task->lr_sgd,
             sgd ? "adadelta" : "sgd", defaults->schedule, defaults->gamma, defaults->weight_decay,
             defaults->augment, defaults->train_samples, defaults->test_samples, task->program,
             task->program, task->program);
    args_text(text, to);
}
