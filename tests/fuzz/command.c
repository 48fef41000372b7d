/* SPDX-License-Identifier: BSD-3-Clause */
/* Command lines, one word per line, and environments of launchers. */
#include "tests/fuzz/fuzz.h"

#include "launch/options.h"
#include "rendezvous/rendezvous.h"
#include "train/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMAND_WORDS 16

#define COMMAND_PET "PET_"

/* "PET_NAME=VALUE" is a variable, not a word; it is unset when the words are freed. */
static bool command_variable(const char *word)
{
    char name[64];
    const char *equals = strchr(word, '=');

    if (strncmp(word, COMMAND_PET, strlen(COMMAND_PET)) || !equals ||
        (size_t)(equals - word) >= sizeof(name))
        return false;
    snprintf(name, sizeof(name), "%.*s", (int)(equals - word), word);
    setenv(name, equals + 1, 1);
    return true;
}

static void command_forget_variables(void)
{
    char name[64];

    for (int i = 0; environ[i];) {
        const char *item = environ[i];

        if (strncmp(item, COMMAND_PET, strlen(COMMAND_PET)) == 0) {
            snprintf(name, sizeof(name), "%.*s", (int)strcspn(item, "="), item);
            unsetenv(name);
        } else {
            i++;
        }
    }
}

/* Reads the words. Omits the word for shell completion, which would exit the program. */
static int command_words(struct fuzz_input *input, const char *program, char *words[])
{
    int count = 0;

    words[count++] = strdup(program);
    while (input->left && count < COMMAND_WORDS) {
        char *word = fuzz_line(input);

        if (strstr(word, "complete-for-shell") || command_variable(word))
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

/*
 * Parses the words as distrun does. The options that distrun formats for other hosts must be valid
 * there.
 */
static void command_run(int count, char *words[])
{
    struct disti_run_options options = {0};
    struct disti_run_list again = {0};

    if (disti_run_options_read(count, words, &options)) {
        disti_run_options_arguments(&options, &again);
        FUZZ_MUST(again.words && !again.failed);
        disti_run_list_free(&again);
    }
    disti_hosts_free(&options.hosts);
}

static void command_train(int count, char *words[])
{
    struct options options;

    if (options_parse(&task_mnist, count, words, &options) == 0 && options.action == OPTIONS_HELP)
        options_help(&task_mnist, stdout);
}

void fuzz_command(struct fuzz_input *input)
{
    char *words[COMMAND_WORDS + 1], *all[COMMAND_WORDS + 1];
    bool run = fuzz_byte(input) & 1;
    int count = command_words(input, run ? "distrun" : "train_mnist", words);

    memcpy(all, words, sizeof(all)); /* parsing reorders them */
    if (run)
        command_run(count, words);
    else
        command_train(count, words);
    command_free(all, count);
    command_forget_variables();
}

/* Variables of launchers, selected by the first byte of a line. */
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
                                                "MS_CLUSTER_TIMEOUT",
                                                "DIST_AGENT_FILES"};
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
