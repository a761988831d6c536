/* Starts a program in the way that its first argument names: the tests of recording see that none is missed. */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int ended(int problem, pid_t child) {
    int status = 0;
    if (problem) {
        printf("%s\n", strerror(problem));
        return 9;
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 8;
}

int main(int argc, char **argv) {
    const char *way = argv[1], *path = argv[2], *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    char **words = argv + 2, command[4096];
    pid_t child;
    if (argc != 4)
        return 2;
    snprintf(command, sizeof command, "%s %s", path, argv[3]);
    if (!strcmp(way, "execve")) execve(path, words, environ);
    if (!strcmp(way, "execv")) execv(path, words);
    if (!strcmp(way, "execvp")) execvp(name, words);
    if (!strcmp(way, "execvpe")) execvpe(name, words, environ);
    if (!strcmp(way, "execl")) execl(path, path, argv[3], (char *)NULL);
    if (!strcmp(way, "execlp")) execlp(name, path, argv[3], (char *)NULL);
    if (!strcmp(way, "execle")) execle(path, path, argv[3], (char *)NULL, environ);
    if (!strcmp(way, "posix_spawn")) return ended(posix_spawn(&child, path, NULL, NULL, words, environ), child);
    if (!strcmp(way, "posix_spawnp")) return ended(posix_spawnp(&child, name, NULL, NULL, words, environ), child);
    if (!strcmp(way, "system")) return WEXITSTATUS(system(command));
    if (!strcmp(way, "popen")) return WEXITSTATUS(pclose(popen(command, "w")));
    if (!strcmp(way, "vfork")) {
        if ((child = vfork()) == 0) {
            execv(path, words);
            _exit(7);
        }
        return ended(0, child);
    }
    perror(way);
    return 9;
}
