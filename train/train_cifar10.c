/* SPDX-License-Identifier: BSD-3-Clause */
/* train_cifar10: a classifier of small coloured pictures. */
#include "options.h"

int main(int argc, char *argv[])
{
    return program_main(&task_cifar10, argc, argv);
}
