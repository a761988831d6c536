/* Threads with the smallest stacks there are and thousands of variables start programs in every way. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char *tool;

static int ended(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static void *work(void *result) {
    char *words[] = {tool, "exit:7", NULL}, *missing[] = {"gcc", NULL};
    int *failed = result;
    pid_t child;
    for (int round = 0; round < 1; round++) {
        *failed |= posix_spawn(&child, tool, NULL, NULL, words, environ) != 0 || ended(child) != 7 ? 1 : 0;
        *failed |= posix_spawnp(&child, "gcc", NULL, NULL, words, environ) != 0 || ended(child) != 7 ? 2 : 0;
        *failed |= posix_spawn(&child, "/nowhere/gcc", NULL, NULL, missing, environ) != ENOENT ? 4 : 0;
        child = vfork();
        if (child == 0) {
            execve(tool, words, environ);
            _exit(99);
        }
        *failed |= ended(child) != 7 ? 8 : 0;
        child = vfork();
        if (child == 0) {
            execvp("gcc", words);
            _exit(99);
        }
        *failed |= ended(child) != 7 ? 16 : 0;
        child = vfork();
        if (child == 0) {
            execv("/nowhere/gcc", missing);
            _exit(98);
        }
        *failed |= ended(child) != 98 ? 32 : 0;
    }
    return NULL;
}

static long mappings(void) {
    long lines = 0;
    int letter;
    FILE *file = fopen("/proc/self/maps", "r");
    while ((letter = getc(file)) != EOF)
        lines += letter == '\n';
    fclose(file);
    return lines;
}

int main(int argc, char **argv) {
    pthread_t threads[4];
    pthread_attr_t small;
    int failed[4] = {0}, all = 0;
    char name[64];
    tool = argv[1];
    for (int count = 0; count < 3000; count++) { /* pointers to them fill more than such a stack */
        snprintf(name, sizeof name, "VARIABLE_%d", count);
        setenv(name, "x", 1);
    }
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, PTHREAD_STACK_MIN);
    long before = 0;
    for (int round = 0; round < 4; round++) {
        for (int index = 0; index < 4; index++)
            if (pthread_create(&threads[index], &small, work, &failed[index]))
                return 100;
        for (int index = 0; index < 4; index++)
            pthread_join(threads[index], NULL);
        if (round == 0)
            before = mappings();
    }
    for (int index = 0; index < 4; index++)
        all |= failed[index];
    if (mappings() > before + 8) /* what is not given back */
        all |= 64;
    printf("%d\n", all);
    return all;
}
