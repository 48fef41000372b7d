/* SPDX-License-Identifier: BSD-3-Clause */
/* The file of a module, as it is checked before the dynamic linker loads it. */
#include "tests/fuzz/fuzz.h"

#include "backends/module.h"

void fuzz_module(struct fuzz_input *input)
{
    char reason[1024] = "";

    FUZZ_MUST(disti_module_loadable(fuzz_file(input), reason, sizeof(reason)) || reason[0]);
}
