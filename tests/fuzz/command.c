/* SPDX-License-Identifier: BSD-3-Clause */
/* Command lines, a word a line, and environments of launchers. */
#include "tests/fuzz/fuzz.h"

#include "launch/options/options.h"
#include "rendezvous/rendezvous.h"
#include "train/options.h"
#include "train/task.h"

#include <stdlib.h>
#include <string.h>

#define COMMAND_WORDS 16

/* Not the word at which the shell's completion ends the program. */
static int command_words(struct fuzz_input *input, const char *program, char *words[])
{
    int count = 0;

    words[count++] = strdup(program);
    while (input->left && count < COMMAND_WORDS) {
        char *word = fuzz_line(input);

        if (strstr(word, "complete-for-shell"))
            free(word);
        else
            words[count++] = word;
    }
    words[count] = NULL;
    return count;
}

static void command_free(char *words[], int count)
{
    for (int i = 0; i < count; i++)
        free(words[i]);
}

void fuzz_command(struct fuzz_input *input)
{
    char *words[COMMAND_WORDS + 1], *all[COMMAND_WORDS + 1];
    bool run = fuzz_byte(input) & 1;
    struct disti_run_options options = {0};
    struct options trained;
    int count = command_words(input, run ? "distrun" : "train_mnist", words);

    memcpy(all, words, sizeof(all)); /* they are put in order */
    if (run) {
        disti_run_options_read(count, words, &options);
        disti_hosts_free(&options.hosts);
    } else {
        options_parse(&task_mnist, count, words, &trained);
    }
    command_free(all, count);
}

/* Those that launchers set, by the first byte of a line. */
static const char *const command_variables[] = {"RANK",
                                                "WORLD_SIZE",
                                                "LOCAL_RANK",
                                                "LOCAL_WORLD_SIZE",
                                                "MASTER_ADDR",
                                                "MASTER_PORT",
                                                "TORCHELASTIC_RUN_ID",
                                                "TORCHELASTIC_USE_AGENT_STORE",
                                                "PMI_RANK",
                                                "PMI_SIZE",
                                                "MPI_LOCALRANKID",
                                                "MPI_LOCALNRANKS",
                                                "SLURM_PROCID",
                                                "SLURM_NTASKS",
                                                "SLURM_LOCALID",
                                                "SLURM_STEP_TASKS_PER_NODE",
                                                "SLURM_STEP_ID",
                                                "SLURM_JOB_ID",
                                                "SLURM_STEP_NODELIST",
                                                "SLURM_NODEID",
                                                "MS_ROLE",
                                                "MS_SCHED_HOST",
                                                "MS_SCHED_PORT",
                                                "MS_WORKER_NUM",
                                                "MS_NODE_ID",
                                                "DIST_AGENT_STORE",
                                                "OMPI_COMM_WORLD_RANK",
                                                "OMPI_COMM_WORLD_SIZE",
                                                "PMIX_NAMESPACE",
                                                "PMIX_RANK",
                                                "DIST_AGENT_STORE_SECRET",
                                                "MS_CLUSTER_TIMEOUT"};
#define COMMAND_VARIABLES (sizeof(command_variables) / sizeof(command_variables[0]))

void fuzz_launch(struct fuzz_input *input)
{
    struct disti_launch launch;

    for (size_t i = 0; i < COMMAND_VARIABLES; i++)
        unsetenv(command_variables[i]);
    while (input->left) {
        const char *name = command_variables[fuzz_byte(input) % COMMAND_VARIABLES];
        char *value = fuzz_line(input);

        setenv(name, value, 1);
        free(value);
    }
    if (disti_launch_detect(&launch) == DIST_OK)
        FUZZ_MUST(launch.rank >= -1 && launch.port <= 65535);
}
