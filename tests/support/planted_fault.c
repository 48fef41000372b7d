/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program with the faults that make check-tsan and make check-valgrind must detect (watched.sh):
 * two threads that write one variable, a byte read after the end of its block, and a leaked block.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int counter;

static void *count(void *unused)
{
    (void)unused;
    counter++;
    return NULL;
}

static void race(void)
{
    pthread_t other;
    if (pthread_create(&other, NULL, count, NULL) != 0)
        return;
    counter++;
    pthread_join(other, NULL);
}

/* Volatile, so that the compiler detects neither fault. */
static void lose_memory(void)
{
    char *volatile block = malloc(16);
    if (block == NULL)
        return;
    volatile size_t behind = 16;
    printf("counter %d, byte %d\n", counter, block[behind]);
    block = NULL;
}

int main(void)
{
    const char *watched = getenv("CHECK_WATCHED");
    if (watched == NULL) {
        fputs("set CHECK_WATCHED to tsan or valgrind, and run it there\n", stderr);
        return 77;
    }
    if (strcmp(watched, "tsan") == 0)
        race();
    else
        lose_memory();
    return 0;
}
