/* SPDX-License-Identifier: BSD-3-Clause */
/* The architectures by name. */
#include "arch.h"

#include <string.h>

#include "train/failure.h"

static const struct arch *const arch_all[] = {&arch_cnn, &arch_mlp, &arch_resnet20};

int arch_find(const char *name, const struct arch **arch_p)
{
    for (int i = 0; i < ARCH_COUNT(arch_all); i++) {
        if (strcmp(name, arch_all[i]->name) == 0) {
            *arch_p = arch_all[i];
            return 0;
        }
    }
    return failure("unknown architecture '%s': there are cnn, mlp and resnet20", name);
}
