/* SPDX-License-Identifier: BSD-3-Clause */
/* The one table of options. */
#include "options.h"

#include <limits.h>
#include <stddef.h>

const struct options options_defaults = {
    .train_samples = 60000,
    .test_samples = 10000,
    .arch = "cnn",
    .epochs = 2,
    .start_epoch = -1,
    .batch_size = 64,
    .test_batch_size = 1000,
    .optimizer = "adadelta",
    .lr = -1.0,
    .gamma = 0.7,
    .momentum = 0.9,
    .seed = 1,
    .max_steps = -1,
    .log_interval = 10,
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
         "folder with the IDX files of MNIST, plain or .gz; without it the digits are drawn"),
    FLAG("dummy", 0, dummy, "draw the digits (what happens without --data)"),
    INT("train-samples", 0, train_samples, 1, UINT_MAX, "N",
        "digits drawn for training (default: 60000)"),
    INT("test-samples", 0, test_samples, 1, UINT_MAX, "N",
        "digits drawn for the test (default: 10000)"),
    FLAG("augment", 0, augment, "turn, scale and shift the training images at random"),

    GROUP("Training"),
    CHOICE("arch", 'a', arch, "cnn|mlp", "the model (default: cnn)"),
    INT("epochs", 0, epochs, 0, 1000000, "N", "passes over the training set (default: 2)"),
    INT("start-epoch", 0, start_epoch, 0, 1000000, "N",
        "epochs taken as done already (default: the checkpoint's, else 0)"),
    INT("batch-size", 'b', batch_size, 1, 1 << 24, "N",
        "global batch, divided among the ranks (default: 64)"),
    INT("test-batch-size", 0, test_batch_size, 1, 1 << 24, "N",
        "global batch of the test (default: 1000)"),
    CHOICE("optimizer", 0, optimizer, "adadelta|sgd", "(default: adadelta)"),
    REAL("lr,learning-rate", 0, lr, 0, 1e6,
         "learning rate (default: 1.0 for adadelta, 0.01 for sgd)"),
    REAL("gamma", 0, gamma, 0, 1e6, "factor on the learning rate after each epoch (default: 0.7)"),
    REAL("momentum", 0, momentum, 0, 1, "of sgd (default: 0.9)"),
    REAL("weight-decay,wd", 0, weight_decay, 0, 1e6, "(default: 0)"),
    INT("seed", 0, seed, 0, 9007199254740992, "N", "all random numbers come from it (default: 1)"),
    INT("max-steps", 0, max_steps, 0, 9007199254740992, "N", "stop training after N steps"),
    FLAG("dry-run", 0, dry_run, "one step and a test, to see that all is well"),
    FLAG("evaluate", 'e', evaluate, "test only, no training"),

    GROUP("Files"),
    TEXT("resume", 0, resume, "PATH",
         "start from the parameters in this safetensors file; the optimizer starts afresh"),
    TEXT("checkpoint", 0, checkpoint, "PATH",
         "keep all of the training in this file, and go on from it if it is there"),
    INT("checkpoint-interval", 0, checkpoint_interval, 0, 1000000000, "N",
        "steps between writing it, besides the end of each epoch (default: 0, none)"),
    FLAG("save-model", 0, save_model,
         "write mnist_cnn.safetensors (mnist_mlp.safetensors) at the end"),
    INT("log-interval,print-freq", 'p', log_interval, 1, 1 << 30, "N",
        "steps between lines of output (default: 10)"),
    TEXT("loss-log", 0, loss_log, "FILE", "write step and loss, a line a step"),

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
    INT("timeout", 0, timeout, 1, INT_MAX / 1000, "SECONDS",
        "longest wait for the other processes (default: $DIST_TIMEOUT, else 300)"),

    GROUP("Machine"),
    TEXT("device", 0, device, "NAME",
         "where to compute: cpu (the default), cuda, or cuda:N for GPU number N"),
    INT("threads", 0, threads, 1, 4096, "N",
        "threads of a rank's matrix products (default: $OMP_NUM_THREADS, else 1)"),
    FLAG("no-accel", 0, no_accel, "accepted; there is nothing to turn off"),
    INT("workers", 'j', workers, 0, 1 << 20, "N", "accepted; loading needs no workers"),
    ACTION("help", 'h', OPTIONS_HELP, "print this and exit"),
    ACTION("version", 0, OPTIONS_VERSION, "print the version and exit"),
};

const struct args options_args = {options_rows, sizeof(options_rows) / sizeof(options_rows[0])};
