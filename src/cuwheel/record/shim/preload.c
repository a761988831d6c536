/* Loaded into every program of a build: where one of them starts a compiler, it starts our shim with it instead.
 *
 * So the build finds its compilers where they are, and nothing of ours gets into its caches, paths or products. All
 * of this may run in a child of vfork: it takes no locks, allocates nothing, and leaves nothing changed. */
#define _GNU_SOURCE
#include <alloca.h>
#include <dlfcn.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>

#include "event.h"
#include "kernel.h"

#define PUBLIC __attribute__((visibility("default")))
#ifdef __GLIBC__
#define SEARCH "/bin:/usr/bin" /* of execvp, where PATH is not set */
#else
#define SEARCH "/usr/local/bin:/bin:/usr/bin"
#endif

extern char **environ;

typedef int spawn_function(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *,
                           char *const[], char *const[]);

static char session_variable[PATH_ROOM + sizeof VARIABLE + 1];
static char library[PATH_ROOM], preload_variable[PATH_ROOM + 16], shim[PATH_ROOM];
typedef int exec_function(const char *, char *const[], char *const[]);

static spawn_function *real_spawn, *real_spawnp;
static exec_function *real_execvpe;
static bool active;

__attribute__((constructor)) static void begin(void) {
    Dl_info found;
    const char *folder = getenv(VARIABLE);
    real_spawn = (spawn_function *)dlsym(RTLD_NEXT, "posix_spawn");
    real_spawnp = (spawn_function *)dlsym(RTLD_NEXT, "posix_spawnp");
    real_execvpe = (exec_function *)dlsym(RTLD_NEXT, "execvpe");
    if (!folder || strlen(folder) >= PATH_ROOM || !dladdr((void *)begin, &found) || !found.dli_fname)
        return;
    size_t length = strlen(found.dli_fname);
    const char *name = last_part(found.dli_fname);
    size_t head = (size_t)(name - found.dli_fname);
    if (found.dli_fname[0] != '/' || length >= sizeof library || head + sizeof "shim" > sizeof shim)
        return;
    memcpy(library, found.dli_fname, length + 1);
    memcpy(shim, found.dli_fname, head);
    memcpy(shim + head, "shim", sizeof "shim");
    snprintf(session_variable, sizeof session_variable, "%s=%s", VARIABLE, folder);
    snprintf(preload_variable, sizeof preload_variable, "LD_PRELOAD=%s", library);
    active = access(shim, X_OK) == 0;
}

/* Memory until the function returns. A thread's stack may be small, and a call may have a hundred thousand words. */
#define LARGE 32768
#define ROOM(size) ((size) > LARGE ? mapped(size) : alloca(size))

static void *mapped(size_t size) {
    void *room = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return room == MAP_FAILED ? NULL : room;
}

static void let_go(void *room, size_t size) {
    if (size > LARGE && room)
        munmap(room, size);
}

static size_t length_of(char *const *list) {
    size_t count = 0;
    while (list && list[count])
        count++;
    return count;
}

/* How many bytes a value needs in which our library stands before what the caller wants loaded. */
static size_t joined_room(char *const *variables) {
    const char *wanted = variable_in(variables, "LD_PRELOAD");
    return wanted ? strlen(wanted) + strlen(preload_variable) + 2 : 0;
}

/* The environment, with what carries us on: a caller that clears it does not mean us. */
static char **carried(char *const *variables, char **list, char *joined) {
    size_t count = 0;
    const char *wanted = variable_in(variables, "LD_PRELOAD");
    bool there = wanted && strstr(wanted, library);
    if (!variable_in(variables, VARIABLE)) /* a record inside of a record names its own */
        list[count++] = session_variable;
    for (; variables && *variables; variables++)
        if (there || !starts(*variables, "LD_PRELOAD="))
            list[count++] = *variables;
    if (!there && wanted && *wanted) {
        size_t ours = strlen(preload_variable), theirs = strlen(wanted);
        memcpy(joined, preload_variable, ours);
        joined[ours] = ':';
        memcpy(joined + ours + 1, wanted, theirs + 1);
        list[count++] = joined;
    } else if (!there) {
        list[count++] = preload_variable;
    }
    list[count] = NULL;
    return list;
}

/* The same without us: what a compiler cache starts goes on after the build. */
static char **released(char *const *variables, char **list) {
    size_t count = 0;
    for (; variables && *variables; variables++)
        if (!starts(*variables, VARIABLE "=") && !(starts(*variables, "LD_PRELOAD=") && strstr(*variables, library)))
            list[count++] = *variables;
    list[count] = NULL;
    return list;
}

/* Where a program without a folder is, as execvp finds it. */
static const char *searched(const char *name, char *path) {
    const char *folders = variable_in(environ, "PATH");
    size_t length = strlen(name);
    for (const char *at = folders ? folders : SEARCH; length > 0 && at;) {
        size_t size = strcspn(at, ":");
        if (size + length + 2 < PATH_ROOM) {
            memcpy(path, size ? at : ".", size ? size : 1); /* an empty one is the current folder */
            size += size == 0;
            path[size++] = '/';
            memcpy(path + size, name, length + 1);
            struct stat found;
            if (stat(path, &found) == 0 && S_ISREG(found.st_mode) && access(path, X_OK) == 0)
                return path;
        }
        at = strchr(at, ':');
        at = at ? at + 1 : NULL;
    }
    return NULL;
}

static int run_really(const char *path, char *const argv[], char *const variables[]) {
    return (int)syscall(SYS_execve, path, argv, variables);
}

/* A call that could not start: its caller has been told, and may keep it to itself. */
static void tell_not_started(const char *path, char *const argv[], char *const variables[], int error, bool whole) {
    static const char *const none[] = {"", NULL};
    struct session session;
    struct text line = {0};
    char id[64];
    const struct tool *tool = tool_of(path);
    char *const *words = argv && argv[0] ? argv : (char *const *)none;
    if (error == ENOEXEC && !is_elf(path))
        return; /* a text without a first line: shells run it themselves */
    if (worth_recording(tool, words)) {
        if (load_session(&session, session_variable + sizeof VARIABLE)) {
            make_id(id, sizeof id);
            put_call(&line, &session, "not-started", id, tool, path, words, variables);
            put_key(&line, "errno");
            put_number(&line, error);
            put_key(&line, "searched");
            put_text(&line, whole ? "true}\n" : "false}\n");
            append(&session, &line, false);
            forget(&line);
        }
        end_session(&session); /* also half of one: after vfork this is the caller's memory */
    }
    errno = error;
}

static void shim_words(char **list, const char *path, char *const argv[]) {
    static char run[] = RUN_WORD;
    size_t count = 0;
    list[count++] = shim;
    list[count++] = run;
    list[count++] = (char *)path;
    list[count++] = argv[0];
    for (size_t index = 1; argv[0] && argv[index]; index++)
        list[count++] = argv[index];
    list[count] = NULL;
}

/* Start a program that the kernel would run, or let the kernel say why it would not. */
static int run(const char *path, char *const argv[], char *const variables[]) {
    const struct tool *tool = argv && argv[0] ? tool_of(path) : NULL;
    char **list = alloca((length_of(variables) + 3) * sizeof *list);
    char *joined = alloca(joined_room(variables) + 1);
    if (!tool)
        return run_really(path, argv, carried(variables, list, joined));
    if (!worth_recording(tool, argv))
        return run_really(path, argv, released(variables, list));
    if (can_run(path)) {
        size_t size = (length_of(argv) + 5) * sizeof(char *);
        char **words = ROOM(size);
        if (words) {
            shim_words(words, path, argv);
            run_really(shim, words, carried(variables, list, joined));
            let_go(words, size);
        }
    }
    /* Also where there was no room for our words: then it goes without us. */
    int status = run_really(path, argv, released(variables, list));
    tell_not_started(path, argv, variables, errno, false);
    return status;
}

/* As execvp. Texts that are no programs it gives to a shell, and that is not ours to repeat. */
static int run_found(const char *name, char *const argv[], char *const variables[]) {
    char room[PATH_ROOM];
    const char *found = strchr(name, '/') ? name : searched(name, room);
    if (active && found && can_run(found))
        return run(found, argv, variables);
    if (!real_execvpe)
        begin();
    if (!real_execvpe) {
        errno = ENOSYS;
        return -1;
    }
    if (!active)
        return real_execvpe(name, argv, variables);
    char **list = alloca((length_of(variables) + 3) * sizeof *list);
    int status = real_execvpe(name, argv, carried(variables, list, alloca(joined_room(variables) + 1)));
    tell_not_started(name, argv, variables, errno, true);
    return status;
}

PUBLIC int execve(const char *path, char *const argv[], char *const variables[]) {
    return active ? run(path, argv, variables) : run_really(path, argv, variables);
}

PUBLIC int execv(const char *path, char *const argv[]) { return execve(path, argv, environ); }

PUBLIC int execvpe(const char *name, char *const argv[], char *const variables[]) {
    return run_found(name, argv, variables);
}

PUBLIC int execvp(const char *name, char *const argv[]) { return run_found(name, argv, environ); }

/* The arguments of execl and its kin as a list, and what stands behind them. */
#define GATHER(first)                                                                                                  \
    va_list given;                                                                                                     \
    size_t count = 1;                                                                                                  \
    va_start(given, first);                                                                                            \
    while (va_arg(given, char *))                                                                                      \
        count++;                                                                                                       \
    va_end(given);                                                                                                     \
    char **argv = alloca((count + 1) * sizeof *argv);                                                                  \
    va_start(given, first);                                                                                            \
    argv[0] = (char *)(first);                                                                                         \
    for (size_t index = 1; index <= count; index++)                                                                    \
        argv[index] = va_arg(given, char *)

PUBLIC int execl(const char *path, const char *first, ...) {
    GATHER(first);
    va_end(given);
    return execve(path, argv, environ);
}

PUBLIC int execlp(const char *name, const char *first, ...) {
    GATHER(first);
    va_end(given);
    return run_found(name, argv, environ);
}

PUBLIC int execle(const char *path, const char *first, ...) {
    GATHER(first);
    char **variables = va_arg(given, char **);
    va_end(given);
    return execve(path, argv, variables);
}

static int spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *attributes, char *const argv[], char *const variables[]) {
    const struct tool *tool = argv && argv[0] ? tool_of(path) : NULL;
    char **list = alloca((length_of(variables) + 3) * sizeof *list);
    char *joined = alloca(joined_room(variables) + 1);
    if (!tool)
        return real_spawn(pid, path, actions, attributes, argv, carried(variables, list, joined));
    if (!worth_recording(tool, argv))
        return real_spawn(pid, path, actions, attributes, argv, released(variables, list));
    /* A relative path is meant from the folder that the actions may lead to. */
    if (path[0] != '/' || can_run(path)) {
        size_t size = (length_of(argv) + 5) * sizeof(char *);
        char **words = ROOM(size);
        if (words) {
            shim_words(words, path, argv);
            int problem = real_spawn(pid, shim, actions, attributes, words, carried(variables, list, joined));
            let_go(words, size);
            if (problem == 0)
                return 0;
        }
    }
    int status = real_spawn(pid, path, actions, attributes, argv, released(variables, list));
    if (status != 0)
        tell_not_started(path, argv, variables, status, false);
    return status;
}

PUBLIC int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                       const posix_spawnattr_t *attributes, char *const argv[], char *const variables[]) {
    if (!real_spawn)
        begin(); /* another library begins before us, and starts programs */
    if (!real_spawn)
        return ENOSYS;
    return active ? spawn(pid, path, actions, attributes, argv, variables)
                  : real_spawn(pid, path, actions, attributes, argv, variables);
}

PUBLIC int posix_spawnp(pid_t *pid, const char *name, const posix_spawn_file_actions_t *actions,
                        const posix_spawnattr_t *attributes, char *const argv[], char *const variables[]) {
    char room[PATH_ROOM];
    if (!real_spawnp)
        begin();
    const char *found = strchr(name, '/') ? name : searched(name, room);
    if (active && found && can_run(found))
        return spawn(pid, found, actions, attributes, argv, variables);
    if (!real_spawnp)
        return ENOSYS;
    if (!active)
        return real_spawnp(pid, name, actions, attributes, argv, variables);
    char **list = alloca((length_of(variables) + 3) * sizeof *list);
    char *joined = alloca(joined_room(variables) + 1);
    int status = real_spawnp(pid, name, actions, attributes, argv, carried(variables, list, joined));
    if (status != 0)
        tell_not_started(name, argv, variables, status, true);
    return status;
}
