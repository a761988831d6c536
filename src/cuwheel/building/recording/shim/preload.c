/* Loaded into every program of a build: where one of them starts a compiler, it starts our shim with it instead.
 *
 * So the build finds its compilers where they are, and nothing of ours gets into its caches, paths or products. All
 * of this may run in a child of vfork: it takes no locks, allocates nothing, and leaves nothing changed. */
#define _GNU_SOURCE
#include <alloca.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>

#include "event.h"
#include "kernel.h"

#define PUBLIC __attribute__((visibility("default")))
#ifdef __GLIBC__
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
static bool active, inside;
static pthread_key_t desk_key;
static bool desk_key_made;
#pragma weak pthread_key_create
#pragma weak pthread_setspecific
static void clear_desk(void *desk);

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
    desk_key_made = pthread_key_create && pthread_setspecific && pthread_key_create(&desk_key, clear_desk) == 0;
    active = access(shim, X_OK) == 0;
    inside = getenv(INSIDE) != NULL;
}

static void *mapped(size_t size) {
    void *room = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return room == MAP_FAILED ? NULL : room;
}

static size_t length_of(char *const *list) {
    size_t count = 0;
    while (list && list[count])
        count++;
    return count;
}

/* What a call needs to be started. It is not on the stack: a thread's may be small, and a call may have thousands of
 * variables and a hundred thousand words. One for each thread, kept and used again, because a child of vfork, which is
 * the thread itself in all but its number, never comes back to give anything up. */
struct desk {
    size_t size;
    char **list;  /* the environment */
    char *joined; /* LD_PRELOAD, with our library before what the caller wants loaded */
    char **words; /* the shim's own */
    char path[PATH_ROOM];
};

static __thread struct desk *own_desk __attribute__((tls_model("initial-exec")));

static void clear_desk(void *desk) {
    own_desk = NULL;
    munmap(desk, ((struct desk *)desk)->size);
}

/* NULL where there is no memory: then a call goes without us. */
static struct desk *desk_for(char *const argv[], char *const variables[]) {
    const char *wanted = variable_in(variables, "LD_PRELOAD");
    size_t list = (length_of(variables) + 3) * sizeof(char *), words = (length_of(argv) + 5) * sizeof(char *);
    size_t joined = wanted ? strlen(wanted) + strlen(preload_variable) + 2 : 1;
    size_t size = (sizeof(struct desk) + list + words + joined + 65535) & ~(size_t)65535;
    if (!own_desk || own_desk->size < size) {
        struct desk *made = mapped(size);
        if (!made)
            return NULL;
        made->size = size;
        if (own_desk)
            munmap(own_desk, own_desk->size);
        own_desk = made;
        if (desk_key_made)
            pthread_setspecific(desk_key, made);
    }
    char *at = (char *)(own_desk + 1);
    own_desk->list = (char **)at;
    own_desk->words = (char **)(at + list);
    own_desk->joined = at + list + words;
    return own_desk;
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

static int run_really(const char *path, char *const argv[], char *const variables[]) {
    return (int)syscall(SYS_execve, path, argv, variables);
}

/* A line into the record. A limit on the size of files must not end a program that knows nothing of ours. */
static void append_quietly(const struct session *session, const struct text *line) {
    sigset_t limit, before, pending;
    struct timespec none = {0, 0};
    sigemptyset(&limit);
    sigaddset(&limit, SIGXFSZ);
    sigpending(&pending);
    sigprocmask(SIG_BLOCK, &limit, &before);
    append(session, line, false);
    if (!sigismember(&pending, SIGXFSZ))
        while (sigtimedwait(&limit, NULL, &none) < 0 && errno == EINTR)
            ;
    sigprocmask(SIG_SETMASK, &before, NULL);
}

/* A call that could not start: its caller has been told, and may keep it to itself. */
static void tell_not_started(const char *path, char *const argv[], char *const variables[], int error, bool whole) {
    static const char *const none[] = {"", NULL};
    struct text line = {0};
    char id[64];
    const struct tool *tool = inside ? NULL : tool_of(path);
    char *const *words = argv && argv[0] ? argv : (char *const *)none;
    if (error == ENOEXEC && !is_elf(path))
        return; /* a text without a first line: shells run it themselves */
    struct session *session = worth_recording(tool, words) ? mapped(sizeof *session) : NULL;
    if (session) {
        if (load_session(session, session_variable + sizeof VARIABLE)) {
            make_id(id, sizeof id);
            put_call(&line, session, "not-started", id, tool, path, words, variables);
            put_key(&line, "errno");
            put_number(&line, error);
            put_key(&line, "searched");
            put_text(&line, whole ? "true}\n" : "false}\n");
            append_quietly(session, &line);
            forget(&line);
        }
        end_session(session); /* also half of one: after vfork this is the caller's memory */
        munmap(session, sizeof *session);
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

/* Which tool is called, if that is of interest: of nvcc's own calls that of cudafe++ alone. */
static const struct tool *tool_called(const char *path, char *const argv[]) {
    const struct tool *tool = argv && argv[0] ? tool_of(path) : NULL;
    return tool && inside && strcmp(tool->name, "cudafe++") != 0 ? NULL : tool;
}

/* Start a program that the kernel would run, or let the kernel say why it would not. */
static int run(const char *path, char *const argv[], char *const variables[], struct desk *desk) {
    const struct tool *tool = tool_called(path, argv);
    if (!desk)
        return run_really(path, argv, variables);
    if (!tool)
        return run_really(path, argv, carried(variables, desk->list, desk->joined));
    if (!worth_recording(tool, argv))
        return run_really(path, argv, released(variables, desk->list));
    if (can_run(path)) {
        shim_words(desk->words, path, argv);
        run_really(shim, desk->words, carried(variables, desk->list, desk->joined));
    }
    /* Also where there was no room for our words: then it goes without us. */
    int status = run_really(path, argv, released(variables, desk->list));
    tell_not_started(path, argv, variables, errno, false);
    return status;
}

/* As execvp. Texts that are no programs it gives to a shell, and that is not ours to repeat. */
static int run_found(const char *name, char *const argv[], char *const variables[]) {
    struct desk *desk = active ? desk_for(argv, variables) : NULL;
    const char *found = strchr(name, '/') || !desk ? name : searched(name, desk->path);
    if (desk && found && can_run(found))
        return run(found, argv, variables, desk);
    if (!real_execvpe)
        begin();
    if (!real_execvpe) {
        errno = ENOSYS;
        return -1;
    }
    if (!desk)
        return real_execvpe(name, argv, variables);
    int status = real_execvpe(name, argv, carried(variables, desk->list, desk->joined));
    tell_not_started(name, argv, variables, errno, true);
    return status;
}

PUBLIC int execve(const char *path, char *const argv[], char *const variables[]) {
    return active ? run(path, argv, variables, desk_for(argv, variables)) : run_really(path, argv, variables);
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
                 const posix_spawnattr_t *attributes, char *const argv[], char *const variables[], struct desk *desk) {
    const struct tool *tool = tool_called(path, argv);
    if (!tool)
        return real_spawn(pid, path, actions, attributes, argv, carried(variables, desk->list, desk->joined));
    if (!worth_recording(tool, argv))
        return real_spawn(pid, path, actions, attributes, argv, released(variables, desk->list));
    /* A relative path is meant from the folder that the actions may lead to. */
    if (path[0] != '/' || can_run(path)) {
        shim_words(desk->words, path, argv);
        char **carrying = carried(variables, desk->list, desk->joined);
        if (real_spawn(pid, shim, actions, attributes, desk->words, carrying) == 0)
            return 0;
    }
    int status = real_spawn(pid, path, actions, attributes, argv, released(variables, desk->list));
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
    struct desk *desk = active ? desk_for(argv, variables) : NULL;
    return desk ? spawn(pid, path, actions, attributes, argv, variables, desk)
                : real_spawn(pid, path, actions, attributes, argv, variables);
}

PUBLIC int posix_spawnp(pid_t *pid, const char *name, const posix_spawn_file_actions_t *actions,
                        const posix_spawnattr_t *attributes, char *const argv[], char *const variables[]) {
    if (!real_spawnp)
        begin();
    struct desk *desk = active ? desk_for(argv, variables) : NULL;
    const char *found = strchr(name, '/') || !desk ? name : searched(name, desk->path);
    if (desk && found && can_run(found))
        return spawn(pid, found, actions, attributes, argv, variables, desk);
    if (!real_spawnp)
        return ENOSYS;
    if (!desk)
        return real_spawnp(pid, name, actions, attributes, argv, variables);
    int status = real_spawnp(pid, name, actions, attributes, argv, carried(variables, desk->list, desk->joined));
    if (status != 0)
        tell_not_started(name, argv, variables, status, true);
    return status;
}
