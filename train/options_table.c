/* SPDX-License-Identifier: BSD-3-Clause */
/* The one table of options. */
#include "options.h"

#include <limits.h>
#include <stddef.h>

const struct options options_defaults = {
    .start_epoch = -1,
    .test_batch_size = 1000,
    .lr = -1.0,
    .momentum = 0.9,
    .seed = 1,
    .max_steps = -1,
    .accumulate = 1,
    .wire = "same",
    .record_interval = 1,
    .world_size = -1,
    .rank = -1,
    .local_rank = -1,
    .port = -1,
    .timeout = -1,
    .device = "cpu",
};

#define AT(member) offsetof(struct options, member)
#define GROUP(name)                                                                                \
    {                                                                                              \
        name, 0, ARGS_GROUP, 0, 0, 0, NULL, NULL                                                   \
    }
#define FLAG(names, letter, member, help)                                                          \
    {                                                                                              \
        names, letter, ARGS_FLAG, AT(member), 0, 0, NULL, help                                     \
    }
#define SWITCH(names, letter, member, help)                                                        \
    {                                                                                              \
        names, letter, ARGS_SWITCH, AT(member), 0, 0, NULL, help                                   \
    }
#define INT(names, letter, member, least, most, argument, help)                                    \
    {                                                                                              \
        names, letter, ARGS_INT, AT(member), least, most, argument, help                           \
    }
#define REAL(names, letter, member, least, most, help)                                             \
    {                                                                                              \
        names, letter, ARGS_REAL, AT(member), least, most, "X", help                               \
    }
#define TEXT(names, letter, member, argument, help)                                                \
    {                                                                                              \
        names, letter, ARGS_TEXT, AT(member), 0, 0, argument, help                                 \
    }
#define CHOICE(names, letter, member, argument, help)                                              \
    {                                                                                              \
        names, letter, ARGS_CHOICE, AT(member), 0, 0, argument, help                               \
    }
#define ACTION(names, letter, value, help)                                                         \
    {                                                                                              \
        names, letter, ARGS_ACTION, AT(action), value, 0, NULL, help                               \
    }

static const struct args_row options_rows[] = {
    GROUP("Data"),
    TEXT("data", 0, data, "DIR",
         "folder with the files of the data set: MNIST's IDX files, plain or .gz, or the binary "
         "version of CIFAR-10; without it the images are drawn"),
    FLAG("dummy", 0, dummy, "draw the images (what happens without --data)"),
    INT("train-samples", 0, train_samples, 1, UINT_MAX, "N", "images drawn for training"),
    INT("test-samples", 0, test_samples, 1, UINT_MAX, "N", "images drawn for the test"),
    SWITCH("augment", 0, augment,
           "change the training images at random: digits are turned, scaled and shifted; pictures "
           "are cropped, after padding with 4 pixels, and mirrored"),

    GROUP("Training"),
    CHOICE("arch", 'a', arch, "cnn|mlp|resnet20", "the model"),
    INT("epochs", 0, epochs, 0, 1000000, "N", "passes over the training set"),
    INT("start-epoch", 0, start_epoch, 0, 1000000, "N",
        "epochs taken as done already (default: the checkpoint's, else 0)"),
    INT("batch-size", 'b', batch_size, 1, 1 << 24, "N", "global batch, divided among the ranks"),
    INT("test-batch-size", 0, test_batch_size, 1, 1 << 24, "N",
        "global batch of the test (default: 1000)"),
    CHOICE("optimizer", 0, optimizer, "adadelta|sgd", "how gradients move the weights"),
    REAL("lr,learning-rate", 0, lr, 0, 1e6, "learning rate (default: the optimizer's own)"),
    CHOICE("schedule", 0, schedule, "step|cosine|constant",
           "the learning rate falls by gamma after each epoch, in half a cosine to 0, or not"),
    REAL("gamma", 0, gamma, 0, 1e6, "factor on the learning rate after each epoch"),
    INT("warmup", 0, warmup, 0, 1000000000, "N",
        "steps in which the learning rate rises to its value (default: 0)"),
    REAL("momentum", 0, momentum, 0, 1, "of sgd (default: 0.9)"),
    REAL("weight-decay,wd", 0, weight_decay, 0, 1e6, "times each weight, added to its gradient"),
    INT("seed", 0, seed, 0, 9007199254740992, "N", "all random numbers come from it (default: 1)"),
    INT("accumulate", 0, accumulate, 1, 1 << 20, "N",
        "batches whose gradients are added up for an update (default: 1)"),
    REAL("clip", 0, clip, 0, 1e30,
         "make the norm of all gradients at most this (default: 0, leave them)"),
    INT("patience", 0, patience, 0, 1000000, "N",
        "stop after N epochs without a smaller loss in the test (default: 0, never)"),
    FLAG("reproducible", 0, reproducible, "the same bits with 1, 2, 4 and 8 processes; slower"),
    INT("max-steps", 0, max_steps, 0, 9007199254740992, "N", "stop training after N steps"),
    FLAG("dry-run", 0, dry_run, "one step and a test, to see that all is well"),
    FLAG("evaluate", 'e', evaluate, "test only, no training"),

    GROUP("Files"),
    TEXT("resume", 0, resume, "PATH",
         "go on from this safetensors file, or the newest one of this folder"),
    TEXT("checkpoint", 0, checkpoint, "PATH",
         "keep all of the training in this file, or folder, and go on from it if it is there"),
    INT("keep", 0, keep, 1, 1000000, "N",
        "of a folder of checkpoints keep the N newest (default: 3)"),
    INT("checkpoint-interval", 0, checkpoint_interval, 0, 1000000000, "N",
        "steps between writing it, besides the end of each epoch (default: 0, none)"),
    FLAG("save-model", 0, save_model,
         "write mnist_ARCH.safetensors (cifar10_ARCH.safetensors) at the end"),
    FLAG("save-best", 0, save_best,
         "write mnist_ARCH_best.safetensors (cifar10_) after each epoch with the smallest loss in "
         "the test"),
    INT("log-interval,print-freq", 'p', log_interval, 1, 1 << 30, "N",
        "steps between lines of output (default: ten lines an epoch)"),
    TEXT("loss-log", 0, loss_log, "FILE", "write step and loss, a line a step"),

    GROUP("Records"),
    TEXT("metrics", 0, metrics, "FILE",
         "write losses, rates, times and tests, a line of JSON a step"),
    TEXT("tensorboard", 0, tensorboard, "DIR", "write an event file for TensorBoard there"),
    INT("record-interval", 0, record_interval, 1, 1 << 30, "N",
        "steps that become one line of these two, their mean (default: 1)"),
    TEXT("report", 0, report, "FILE", "write a page in HTML with curves, times and settings"),
    TEXT("trace", 0, trace, "FILE",
         "write a timeline of all ranks at the end, for ui.perfetto.dev"),

    GROUP("Processes (world size and rank count processes, not nodes)"),
    TEXT("dist-backend", 0, dist_backend, "NAME",
         "gloo, mpi, ... (default: $DIST_BACKEND, else the best there is)"),
    TEXT("dist-url", 0, dist_url, "URL",
         "env://, tcp://HOST:PORT, file:///PATH or mpi:// (default: ask the launcher)"),
    INT("world-size", 0, world_size, 1, INT_MAX, "N",
        "number of processes (default: ask the launcher)"),
    INT("rank", 0, rank, 0, INT_MAX, "N",
        "number of this process, from 0 (default: ask the launcher)"),
    INT("local-rank", 0, local_rank, 0, INT_MAX, "N",
        "its number on this machine (default: ask the launcher)"),
    TEXT("addr", 0, addr, "HOST", "with --port: short for --dist-url tcp://HOST:PORT"),
    INT("port", 0, port, 1, 65535, "N", "(default with --addr: 29500)"),
    FLAG("multiprocessing-distributed", 0, spawn,
         "start --world-size processes here, without a launcher (default: one a usable CPU)"),
    INT("timeout", 0, timeout, 1, INT_MAX, "SECONDS",
        "longest wait for the other processes (default: $DIST_TIMEOUT, else 300)"),

    GROUP("Gradients between processes"),
    CHOICE("wire", 0, wire, "same|fp16|bf16|int8",
           "form in which they travel (default: same, as they are)"),
    REAL("bucket-mb", 0, bucket_mb, 0, 4096,
         "MiB of gradients that travel together (default: 0, what the library chooses)"),
    FLAG("zero", 0, zero,
         "each process has an N-th of the optimizer's state, and updates that part for all"),

    GROUP("Machine"),
    TEXT("device", 0, device, "NAME",
         "where to compute: cpu (the default), cuda, or cuda:N for GPU number N"),
    INT("threads", 0, threads, 1, 4096, "N",
        "threads of a rank's matrix products (default: $OMP_NUM_THREADS, else 1)"),
    FLAG("no-accel", 0, no_accel, "accepted; there is nothing to turn off"),
    INT("workers", 'j', workers, 0, 1024, "N",
        "threads of a rank that load samples ahead (default: 0, load when they are wanted)"),
    ACTION("help", 'h', OPTIONS_HELP, "print this and exit"),
    ACTION("version", 0, OPTIONS_VERSION, "print the version and exit"),
};

const struct args options_args = {.rows = options_rows,
                                  .count = sizeof(options_rows) / sizeof(options_rows[0]),
                                  .usage = "[OPTION]...\n--help | --version"};
