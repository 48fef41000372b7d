/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_bench: measures collective communication, libdist's and others', in turns. */
#include "bench/options.h"
#include "bench/rounds.h"
#include "tools/common/output.h"

#include <signal.h>

int main(int argc, char **argv)
{
    struct options options;
    const char *failure;

    signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit on files fails, and is reported */
    if (options_parse(argc, argv, &options, &failure) != 0) {
        return args_wrong(&options_args, "%s", failure);
    }
    if (options.action == OPTIONS_HELP)
        args_help(&options_args, stdout);
    else if (options.action == OPTIONS_VERSION)
        args_version(&options_args);
    else if (options.worker)
        return worker_main(&options);
    else if (options_compares(&options))
        return compare_main(&options, argc, argv);
    else
        return single_main(&options, argc, argv);
    return output_exit("dist_bench", RUN_OK);
}
