/* SPDX-License-Identifier: BSD-3-Clause */
/* distrun: runs a program once for each rank. */
#include "launch/options/options.h"
#include "launch/run/agent.h"
#include "launch/run/guard.h"
#include "launch/run/starter.h"
#include "tools/common/output.h"

#include <dist/dist.h>

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

enum { MAIN_WRONG = 2 }; /* the command line is, as with torchrun */

/* Where standard streams are closed: else what is opened next would be taken for them. */
static void main_fill_streams(void)
{
    int fd = open("/dev/null", O_RDWR);

    while (fd >= 0 && fd <= STDERR_FILENO)
        fd = dup(fd);
    if (fd >= 0)
        close(fd);
}

static int main_act(struct disti_run_options *options)
{
    if (options->action == DISTI_RUN_HELP) {
        disti_run_options_help();
        return output_exit("distrun", 0);
    }
    if (options->action == DISTI_RUN_VERSION) {
        disti_run_options_version();
        return output_exit("distrun", 0);
    }
    return disti_run_guard(options->hosts.count > 0 ? disti_run_starter : disti_run_agent, options);
}

int main(int argc, char *argv[])
{
    struct disti_run_options options;
    int code = MAIN_WRONG;

    main_fill_streams();
    if (disti_run_options_read(argc, argv, &options))
        code = main_act(&options);
    disti_hosts_free(&options.hosts);
    return code;
}
