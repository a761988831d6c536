/* Stands in for a compiler: writes down that it was called, runs it, keeps what it prints, and ends as it did.
 *
 * Called by our library in place of the compiler (`shim --cuwheel-run PROGRAM ARGV0 WORDS…`), or found under the
 * compiler's own name in a folder of shims on PATH, or in a shadow of a toolkit. Without a session it only steps aside.
 * The recorded command itself runs below it too (`shim --cuwheel-keep COMMAND WORDS…`), and the end of what it prints is
 * kept: what a build system says when it gives up is no compiler's output. */
#define _GNU_SOURCE
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "module_id.h"
#include "prepare.h"
#include "call_lines.h"
#include "surroundings.h"

#define KEEP_WORD "--cuwheel-keep"

static volatile sig_atomic_t child_ended, resized;
static volatile pid_t child;
static const int FORWARDED[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
#define FORWARDED_COUNT (sizeof FORWARDED / sizeof *FORWARDED)

static void on_end(int number) {
    (void)number;
    child_ended = 1;
}

static void on_signal(int number, siginfo_t *from, void *context) {
    (void)context;
    /* A terminal sends its own to the whole group: the program has had it. */
    if (child > 0 && from->si_code != SI_KERNEL)
        kill(child, number);
}

static void on_resize(int number) {
    (void)number;
    resized = 1;
}

/* A text that is no program goes to the shell, as glibc's execvp does it and musl's does not. */
static void run_as_shells_do(const char *name, char **command) {
    static char found[PATH_ROOM];
    execvp(name, command);
    const char *script = errno != ENOEXEC ? NULL : strchr(name, '/') ? name : searched(name, found);
    size_t count = 0;
    while (command[count])
        count++;
    char **words = script ? malloc((count + 2) * sizeof *words) : NULL;
    if (!words)
        return;
    words[0] = "/bin/sh";
    words[1] = (char *)script;
    memcpy(words + 2, command + 1, count * sizeof *words); /* with the NULL at its end */
    execv(words[0], words);
    errno = ENOEXEC;
}

static void start_child(const struct call *call, int report, const sigset_t *mask, const struct sigaction *before,
                        pid_t parent) {
    /* Whoever kills us means it. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        raise(SIGKILL);
    for (size_t index = 0; index < FORWARDED_COUNT; index++)
        sigaction(FORWARDED[index], &before[index], NULL);
    sigaction(SIGCHLD, &before[FORWARDED_COUNT], NULL);
    sigaction(SIGPIPE, &before[FORWARDED_COUNT + 1], NULL);
    sigaction(SIGXFSZ, &before[FORWARDED_COUNT + 2], NULL);
    sigaction(SIGWINCH, &before[FORWARDED_COUNT + 3], NULL);
    if (call->out.given >= 0)
        dup2(call->out.given, STDOUT_FILENO);
    if (call->merged && call->out.given >= 0)
        dup2(call->out.given, STDERR_FILENO);
    else if (call->err.given >= 0)
        dup2(call->err.given, STDERR_FILENO);
    sigprocmask(SIG_SETMASK, mask, NULL);
    if (call->start == call->program) { /* a name without a folder is in this one: it was found already */
        syscall(SYS_execve, call->start, call->command, call->variables);
    } else {
        environ = call->variables;
        run_as_shells_do(call->start, call->command);
    }
    int error = errno;
    if (write(report, &error, sizeof error) < 0)
        _exit(126);
    _exit(127);
}

/* As shells say it. */
static void complain(const char *name, const char *problem) {
    struct text line = {0};
    put_printable(&line, name);
    fprintf(stderr, "%.*s: %s\n", (int)line.size, line.at ? line.at : "", problem);
    forget(&line);
}

/* Pass on what it prints until it has ended. */
static void attend(struct call *call, const sigset_t *waiting) {
    while (!child_ended) {
        struct pollfd ready[2];
        struct stream *streams[2];
        nfds_t count = 0;
        struct stream *both[2] = {&call->out, &call->err};
        for (size_t index = 0; index < 2; index++)
            if (both[index]->source >= 0) {
                streams[count] = both[index];
                ready[count++] = (struct pollfd){.fd = both[index]->source, .events = POLLIN};
            }
        int woken = ppoll(ready, count, NULL, waiting);
        if (resized) {
            resized = 0;
            pass_on_size(&call->out);
            pass_on_size(&call->err);
            kill(child, SIGWINCH); /* the terminal's own came before there was anything to see */
        }
        if (woken < 0)
            continue;
        for (nfds_t index = 0; index < count; index++)
            if (ready[index].revents)
                take(streams[index]);
    }
    drain(&call->out);
    drain(&call->err);
}

/* Die as the program did, without leaving a second core file. */
static void end_like(int status) {
    if (WIFSIGNALED(status)) {
        struct rlimit none = {0, 0};
        sigset_t only;
        setrlimit(RLIMIT_CORE, &none);
        signal(WTERMSIG(status), SIG_DFL);
        sigemptyset(&only);
        sigaddset(&only, WTERMSIG(status));
        sigprocmask(SIG_UNBLOCK, &only, NULL);
        raise(WTERMSIG(status));
        _exit(128 + WTERMSIG(status));
    }
    _exit(WEXITSTATUS(status));
}

static void open_streams(struct call *call, const struct session *session) {
    char out[80] = "output/command.txt", err[80] = "output/command.txt";
    if (call->tool) {
        snprintf(out, sizeof out, "output/%s.out", call->id);
        snprintf(err, sizeof err, "output/%s.err", call->id);
    }
    call->merged = !goes_nowhere(STDOUT_FILENO) && same_target(STDOUT_FILENO, STDERR_FILENO);
    open_stream(&call->out, STDOUT_FILENO, session->record, out, !call->tool);
    if (call->merged)
        call->err = (struct stream){.target = -1, .given = -1, .source = -1, .kept = -1};
    else
        open_stream(&call->err, STDERR_FILENO, session->record, err, !call->tool);
}

static void take_over(struct sigaction *before, sigset_t *mask) {
    /* All of them until there is a child to pass them on to. */
    sigset_t block;
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigemptyset(&block);
    sigaddset(&block, SIGCHLD);
    sigaddset(&block, SIGWINCH);
    for (size_t index = 0; index < FORWARDED_COUNT; index++)
        sigaddset(&block, FORWARDED[index]);
    sigprocmask(SIG_BLOCK, &block, mask);
    for (size_t index = 0; index < FORWARDED_COUNT; index++) {
        sigaction(FORWARDED[index], NULL, &before[index]);
        if (before[index].sa_handler != SIG_IGN)
            sigaction(FORWARDED[index], &action, NULL);
    }
    struct sigaction ended = {.sa_handler = on_end, .sa_flags = SA_NOCLDSTOP}, ignored = {.sa_handler = SIG_IGN};
    struct sigaction larger = {.sa_handler = on_resize};
    sigaction(SIGWINCH, &larger, &before[FORWARDED_COUNT + 3]);
    sigaction(SIGCHLD, &ended, &before[FORWARDED_COUNT]);
    sigaction(SIGPIPE, &ignored, &before[FORWARDED_COUNT + 1]);
}

/* What came before there was a child it has not had, whoever sent it; from now on the handlers see to it. */
static void pass_on_early(const sigset_t *mask) {
    sigset_t pending, block = *mask;
    sigemptyset(&pending);
    sigpending(&pending);
    for (size_t index = 0; index < FORWARDED_COUNT; index++)
        if (sigismember(&pending, FORWARDED[index]) == 1 && sigismember(mask, FORWARDED[index]) == 0)
            kill(child, FORWARDED[index]);
    sigaddset(&block, SIGCHLD);
    sigaddset(&block, SIGWINCH);
    sigprocmask(SIG_SETMASK, &block, NULL);
}

static int run_recorded(struct call *call, const struct session *session) {
    struct sigaction before[FORWARDED_COUNT + 4], ignored = {.sa_handler = SIG_IGN};
    sigset_t mask, waiting;
    int report[2] = {-1, -1}, problem = 0, status = 0;
    struct rusage used = {0};
    sigaction(SIGXFSZ, &ignored, &before[FORWARDED_COUNT + 2]); /* a limit on files is no reason to die of the record */
    open_streams(call, session);
    if (call->tool)
        tell_start(call, session);
    take_over(before, &mask);
    waiting = mask;
    sigdelset(&waiting, SIGCHLD);
    if (pipe2(report, O_CLOEXEC) == 0)
        for (int end = 0; end < 2; end++)
            report[end] = moved_high(report[end]);
    pid_t parent = getpid();
    child = fork();
    if (child == 0)
        start_child(call, report[1], &mask, before, parent);
    if (child < 0)
        problem = errno;
    close(report[1]);
    if (call->out.source >= 0)
        close(call->out.given);
    if (call->err.source >= 0)
        close(call->err.given);
    if (child > 0) {
        pass_on_early(&mask);
        while (read(report[0], &problem, sizeof problem) < 0 && errno == EINTR)
            ;
        attend(call, &waiting);
        while (wait4(child, &status, 0, &used) < 0 && errno == EINTR)
            ;
    }
    finish_stream(&call->out, session->record);
    finish_stream(&call->err, session->record);
    if (call->tool) {
        bool killed = WIFSIGNALED(status);
        tell_end(call, session, problem ? "errno" : killed ? "signal" : "status",
                 problem ? problem : killed ? WTERMSIG(status) : WEXITSTATUS(status), (int64_t)used.ru_maxrss * 1024);
    }
    if (problem) {
        complain(call->start, strerror(problem));
        _exit(problem == ENOENT ? 127 : 126);
    }
    end_like(status);
    return 0;
}

/* It is no call, and has the environment in which calls are seen. */
static int run_command(struct call *call, const struct session *session) {
    call->argv += 2;
    call->start = *call->argv;
    call->command = call->argv;
    call->variables = environ;
    if (session)
        return run_recorded(call, session);
    run_as_shells_do(call->start, call->command);
    int problem = errno;
    complain(call->start, strerror(problem));
    return problem == ENOENT ? 127 : 126;
}

int main(int argc, char **argv) {
    static char found[PATH_ROOM];
    struct session session;
    struct call call = {.argv = argv};
    bool recording = load_session(&session, getenv(VARIABLE));
    if (argc >= 3 && strcmp(argv[1], KEEP_WORD) == 0)
        return run_command(&call, recording ? &session : NULL);
    call.variables = own_environment(&session);
    if (argc >= 4 && strcmp(argv[1], RUN_WORD) == 0) {
        call.program = argv[2];
        call.argv = argv + 3;
    } else {
        const char *self = (const char *)getauxval(AT_EXECFN);
        bool real = self && find_real(strchr(self, '/') ? self : argv[0], found);
        call.program = real ? found : argv[0];
        if (!real) {
            complain(last_part(argv[0]), "command not found");
            return 127;
        }
        if (strchr(argv[0], '/'))
            call.argv[0] = found;
    }
    call.tool = tool_of(call.program);
    call.start = call.program;
    call.command = call.argv;
    bool inside = recording && getenv(INSIDE);
    if (inside)
        give_module_id(&call, &session);
    if (inside || !recording || !worth_recording(call.tool, call.argv)) {
        syscall(SYS_execve, call.program, call.command, call.variables);
        int problem = errno;
        complain(call.program, strerror(problem));
        return problem == ENOENT ? 127 : 126;
    }
    make_id(call.id, sizeof call.id);
    bool nvcc = strcmp(call.tool->kind, "nvcc") == 0;
    if (nvcc)
        prepare_nvcc(&call, &session);
    call.told = call.variables;
    if (nvcc && configured(&session, "module-id", NULL))
        look_inside(&call, &session);
    prepare_cache(&call, &session);
    return run_recorded(&call, &session);
}
