/* SPDX-License-Identifier: BSD-3-Clause */
/* The tasks: as PyTorch's MNIST example, and as He et al. trained on CIFAR-10, but for less long.
 */
#include "task.h"

const struct task task_mnist = {
    .program = "train_mnist",
    .about = "Trains a digit classifier on MNIST with as many processes as were started.",
    .model = "mnist",
    .data = &dataset_mnist,
    .arch = "cnn",
    .optimizer = "adadelta",
    .schedule = "step",
    .epochs = 2,
    .batch_size = 64,
    .train_samples = 60000,
    .test_samples = 10000,
    .lr_adadelta = 1.0,
    .lr_sgd = 0.01,
    .gamma = 0.7,
};

const struct task task_cifar10 = {
    .program = "train_cifar10",
    .about = "Trains a classifier of small pictures on CIFAR-10 with as many processes as were "
             "started.",
    .model = "cifar10",
    .data = &dataset_cifar10,
    .arch = "resnet20",
    .optimizer = "sgd",
    .schedule = "cosine",
    .epochs = 30,
    .batch_size = 128,
    .train_samples = 50000,
    .test_samples = 10000,
    .lr_adadelta = 1.0,
    .lr_sgd = 0.1,
    .gamma = 0.9,
    .weight_decay = 1e-4,
    .augment = true,
};
