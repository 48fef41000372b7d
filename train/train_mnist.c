/* SPDX-License-Identifier: BSD-3-Clause */
/* train_mnist: a classifier of handwritten digits. */
#include "options.h"

int main(int argc, char *argv[])
{
    return program_main(&task_mnist, argc, argv);
}
