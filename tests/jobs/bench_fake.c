/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench_fake MODE RANKS: a contestant of dist_bench that measures nothing. Its ranks answer as MODE
 * says. MODE is a number (each call takes that many ns), or silent, few, negative, garbage, dies,
 * ranks (a hello of another job), mute (no hello), wrong, failed, unsupported.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static FILE *fake_connect(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = getenv("DIST_BENCH_SOCKET");
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    if (!path || strlen(path) >= sizeof(address.sun_path))
        exit(1);
    strcpy(address.sun_path, path);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
        exit(1);
    return fdopen(fd, "r+");
}

static void fake_answer(const char *mode, FILE *line, long samples)
{
    int negative = strcmp(mode, "negative") == 0;

    if (strcmp(mode, "silent") == 0)
        return;
    if (strcmp(mode, "dies") == 0)
        _exit(0);
    if (strcmp(mode, "garbage") == 0)
        fprintf(line, "took all day\n");
    else if (strcmp(mode, "wrong") == 0 || strcmp(mode, "failed") == 0 ||
             strcmp(mode, "unsupported") == 0)
        fprintf(line, "%s because of the fake\n", mode);
    else {
        fprintf(line, "took");
        for (long s = strcmp(mode, "few") == 0; s < samples; s++)
            fprintf(line, " %s", negative ? "-5" : atoi(mode) > 0 ? mode : "1000");
        fprintf(line, "\n");
    }
    fflush(line);
}

static int fake_rank(const char *mode, int rank, int ranks)
{
    char order[1024];
    FILE *line = fake_connect();
    long samples;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (strcmp(mode, "mute") != 0)
        fprintf(line, "hello fake %d %d Fake 1.0\n", rank, ranks + (strcmp(mode, "ranks") == 0));
    fflush(line);
    while (fgets(order, sizeof(order), line)) {
        if (sscanf(order, "run %*s %*s %*s %*s %*s %*s %*s %ld", &samples) != 1)
            return 0;
        fake_answer(mode, line, samples);
        fseek(line, 0, SEEK_CUR); /* switch the stream from writing to reading */
    }
    return 0;
}

int main(int argc, char **argv)
{
    int ranks = argc > 2 ? atoi(argv[2]) : 0;

    for (int r = 0; r < ranks; r++) {
        if (fork() == 0)
            return fake_rank(argv[1], r, ranks);
    }
    while (wait(NULL) > 0)
        ;
    return 0;
}
