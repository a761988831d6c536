/* Stands in for a compiler: writes down that it was called, runs it, keeps what it prints, and ends as it did.
 *
 * Called by our library in place of the compiler (`shim --cuwheel-run PROGRAM ARGV0 WORDS…`), or found under the
 * compiler's own name in a folder of shims on PATH, or in a shadow of a toolkit. Without a session it only steps aside. */
#define _GNU_SOURCE
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "archs.h"
#include "event.h"
#include "relay.h"

#define SHIMS_MARK ".cuwheel-shims"     /* in a folder of shims */
#define TOOLKIT_LINK ".cuwheel-toolkit" /* in a shadow of a toolkit: leads to the real one */
#define PROGRAM_LINK ".cuwheel-program" /* beside a shim of one program: leads to it */

extern char **environ;

static volatile sig_atomic_t child_ended;
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

/* The folder (with its slash) that a path lies in. */
static size_t folder_length(const char *path) { return (size_t)(last_part(path) - path); }

static bool is_shim_folder(const char *folder, size_t length) {
    char path[PATH_ROOM + 32];
    if (length == 0 || length >= PATH_ROOM)
        return false;
    snprintf(path, sizeof path, "%.*s/" SHIMS_MARK, (int)length, folder);
    return access(path, F_OK) == 0;
}

/* The program that a shim of this name stands for; false where there is none. */
static bool find_real(const char *self, char *found) {
    size_t head = folder_length(self);
    char toolkit[PATH_ROOM + 64];
    snprintf(toolkit, sizeof toolkit, "%.*s../" TOOLKIT_LINK, (int)head, self);
    ssize_t length = readlink(toolkit, found, PATH_ROOM - 64);
    if (length > 0) {
        snprintf(found + length, 64, "/bin/%.50s", last_part(self));
        return access(found, X_OK) == 0;
    }
    char program[PATH_ROOM + 64];
    snprintf(program, sizeof program, "%.*s" PROGRAM_LINK, (int)head, self);
    length = readlink(program, found, PATH_ROOM - 1);
    if (length > 0) {
        found[length] = 0;
        return access(found, X_OK) == 0;
    }
    const char *folders = getenv("PATH");
    for (const char *at = folders; at;) {
        size_t size = strcspn(at, ":");
        struct stat info;
        if (size + strlen(last_part(self)) + 2 < PATH_ROOM && !is_shim_folder(at, size)) {
            snprintf(found, PATH_ROOM, "%.*s%s%s", (int)size, at, size ? "/" : "", last_part(self));
            if (stat(found, &info) == 0 && S_ISREG(info.st_mode) && access(found, X_OK) == 0)
                return true;
        }
        at = strchr(at, ':');
        at = at ? at + 1 : NULL;
    }
    return false;
}

/* A list like LD_PRELOAD or PATH without what is ours; NULL where nothing is left. */
static char *without_ours(const char *variable, const char *separators, const char *library) {
    const char *equals = strchr(variable, '=') + 1;
    char *list = malloc(strlen(variable) + 1);
    bool first = true;
    if (!list)
        return (char *)variable;
    memcpy(list, variable, (size_t)(equals - variable));
    char *to = list + (equals - variable);
    for (const char *at = equals; at;) {
        size_t size = strcspn(at, separators);
        bool ours = library ? size == strlen(library) && memcmp(at, library, size) == 0 : is_shim_folder(at, size);
        if (!ours) {
            if (!first)
                *to++ = separators[0];
            memcpy(to, at, size);
            to += size;
            first = false;
        }
        at = at[size] ? at + size + 1 : NULL;
    }
    *to = 0;
    return first ? NULL : list;
}

/* A variable that leads to shims, as it was before it did; NULL for any other. */
static char *led_back(const struct session *session, const char *variable) {
    for (const char *led = NULL; (led = configured(session, "led", led));) {
        if (strcmp(led, variable) != 0)
            continue;
        size_t name = (size_t)(strchr(led, '=') - led) + 1;
        const char *end = session->environ.at + session->environ.size;
        for (const char *at = session->environ.at; at < end; at += strlen(at) + 1)
            if (strncmp(at, led, name) == 0)
                return (char *)at;
    }
    return NULL;
}

/* The caller's environment as it would be without us. */
static char **own_environment(const struct session *session) {
    size_t count = 0, room = 0;
    while (environ[room])
        room++;
    char **list = malloc((room + 3) * sizeof *list);
    for (char **each = environ; list && *each; each++) {
        char *before = led_back(session, *each), *kept = before ? before : *each;
        if (starts(*each, VARIABLE "="))
            continue;
        if (session->library && starts(*each, "LD_PRELOAD=") && strstr(*each, session->library))
            kept = without_ours(*each, ": ", session->library);
        else if (!before && starts(*each, "PATH="))
            kept = without_ours(*each, ":", NULL);
        if (kept)
            list[count++] = kept;
    }
    if (list)
        list[count] = NULL;
    return list ? list : environ;
}

static char *formatted(const char *head, const char *middle, const char *tail, const char *end) {
    size_t room = strlen(head) + strlen(middle) + strlen(tail) + strlen(end) + 1;
    char *text = malloc(room);
    if (text)
        snprintf(text, room, "%s%s%s%s", head, middle, tail, end);
    return text;
}

/* nvcc's own variables without the caller's architectures. */
static void filter_variables(char **variables) {
    for (; *variables; variables++) {
        if (!starts(*variables, "NVCC_APPEND_FLAGS=") && !starts(*variables, "NVCC_PREPEND_FLAGS="))
            continue;
        const char *value = strchr(*variables, '=') + 1;
        struct text kept = {0};
        if (filter_text(value, strlen(value), &kept, NULL)) {
            put(&kept, "", 1);
            char *name = strndup(*variables, (size_t)(value - *variables));
            char *changed = name ? formatted(name, kept.at ? kept.at : "", "", "") : NULL;
            if (changed)
                *variables = changed;
        }
        forget(&kept);
    }
}

/* Whether this nvcc can time its phases, asked once in a session: the file's first byte keeps the answer. */
static bool knows_time(const struct session *session, const char *program, char **variables) {
    uint64_t hash = 1469598103934665603u;
    char path[PATH_ROOM + 64], answer = 0;
    for (const char *at = program; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 1099511628211u;
    snprintf(path, sizeof path, "%s/nvcc-%llx", session->folder, (unsigned long long)hash);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        bool known = read(file, &answer, 1) == 1;
        close(file);
        if (known)
            return answer == '1';
    }
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    pid_t asked = fork();
    if (asked == 0) {
        char *words[] = {(char *)program, "--help", NULL};
        int nowhere = open("/dev/null", O_RDWR);
        dup2(nowhere, 0);
        dup2(ends[1], 1);
        dup2(nowhere, 2);
        syscall(SYS_execve, program, words, variables);
        _exit(127);
    }
    close(ends[1]);
    struct text help = {0};
    char piece[4096];
    for (ssize_t count; (count = read(ends[0], piece, sizeof piece)) > 0 || (count < 0 && errno == EINTR);)
        if (count > 0 && help.size < (1u << 20))
            put(&help, piece, (size_t)count);
    close(ends[0]);
    if (asked > 0)
        while (waitpid(asked, NULL, 0) < 0 && errno == EINTR)
            ;
    answer = !help.lost && help.size && memmem(help.at, help.size, "--time <", 8) ? '1' : '0';
    forget(&help);
    file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file >= 0) {
        if (write(file, &answer, 1) != 1)
            unlink(path);
        close(file);
    }
    return answer == '1';
}

struct call {
    char id[64];
    const struct tool *tool;
    char *program;       /* what was called */
    char **argv;         /* as the caller gave it */
    char **ran;          /* its words where we changed them, else NULL */
    char **command;      /* what is really run, with a program to run it by */
    char *start;         /* that program */
    char **variables;    /* its environment */
    char **told;         /* the same without what we added */
    char *phases;        /* nvcc's own timing, below the record; else NULL */
    struct stream out, err;
    bool merged;         /* both go to one place, and their order counts */
};

/* nvcc fails where it cannot write its times: a build may clean up the folder that its record is in. */
static bool can_be_written(const char *record, const char *folder) {
    char path[PATH_ROOM + 32];
    int length = snprintf(path, sizeof path, "%s%s", record, folder);
    return length > 0 && (size_t)length < sizeof path && access(path, W_OK) == 0;
}

static void prepare_nvcc(struct call *call, const struct session *session) {
    struct nvcc_call wish = asked(call->argv + 1, call->variables);
    size_t count = 0, room = 8;
    if (configured(session, "arch", NULL) && wish.inputs && !wish.telling && !wish.single) {
        call->ran = with_archs(session, call->id, call->argv + 1);
        filter_variables(call->variables);
    }
    const char *first = configured(session, "launcher", NULL);
    if (session->phases && !first && wish.inputs && !wish.telling && !wish.untimed &&
        can_be_written(session->record, "/phases") && knows_time(session, call->program, call->variables))
        call->phases = formatted("phases/", call->id, ".csv", "");
    if (!call->ran && !call->phases && !first)
        return;
    char **words = call->ran ? call->ran : call->argv + 1;
    while (words[room - 8])
        room++;
    for (const char *each = first; each; each = configured(session, "launcher", each))
        room++;
    char **list = malloc(room * sizeof *list);
    if (!list)
        return;
    for (const char *each = first; each && !wish.telling; each = configured(session, "launcher", each))
        list[count++] = (char *)each;
    bool launched = count > 0;
    if (launched)
        call->start = list[0];
    list[count++] = launched ? call->program : call->argv[0];
    while (*words)
        list[count++] = *words++;
    if (call->phases)
        list[count++] = formatted("--time=", session->record, "/", call->phases);
    list[count] = NULL;
    call->command = list;
}

static void add_variable(struct call *call, char *variable) {
    size_t count = 0;
    if (!variable)
        return;
    while (call->variables[count])
        count++;
    char **list = malloc((count + 2) * sizeof *list);
    if (!list)
        return;
    memcpy(list, call->variables, count * sizeof *list);
    list[count] = variable;
    list[count + 1] = NULL;
    call->variables = list;
}

/* Caches tell what they did in a file, if they are named one: ccache for each call, sccache in the log of a server
 * that it may have to start. What it says of its server's own doings it does not say to the caller. */
static void prepare_cache(struct call *call, const struct session *session) {
    const char *name = last_part(call->start);
    if (strcmp(name, "ccache") == 0 && !variable_in(call->variables, "CCACHE_STATSLOG"))
        add_variable(call, formatted("CCACHE_STATSLOG=", session->record, "/cache/", formatted(call->id, ".txt", "", "")));
    if (strcmp(name, "sccache") == 0 && !variable_in(call->variables, "SCCACHE_ERROR_LOG") &&
        !variable_in(call->variables, "SCCACHE_LOG")) {
        add_variable(call, formatted("SCCACHE_ERROR_LOG=", session->folder, "/sccache.log", ""));
        add_variable(call, formatted("SCCACHE_LOG=sccache::server=debug", "", "", ""));
    }
}

static void tell_start(const struct call *call, const struct session *session) {
    struct text line = {0};
    put_call(&line, session, "start", call->id, call->tool, call->program, call->argv, call->told);
    if (call->ran) {
        put_key(&line, "ran");
        put_words(&line, session, call->ran);
    }
    put_key(&line, "stdout");
    put_json(&line, call->out.name, strlen(call->out.name));
    put_key(&line, "stderr");
    put_json(&line, call->err.name, strlen(call->err.name));
    put_key(&line, "merged");
    put_text(&line, call->merged ? "true" : "false");
    if (call->phases) {
        put_key(&line, "phases");
        put_json(&line, call->phases, strlen(call->phases));
    }
    put_text(&line, "}\n");
    /* A busy disk may take longer than a small C file: only for what takes seconds, and has brought machines down. */
    append(session, &line, strcmp(call->tool->kind, "nvcc") == 0);
    forget(&line);
}

static void tell_end(const struct call *call, const struct session *session, int status, const struct rusage *used,
                     int problem) {
    struct text line = {0};
    put_text(&line, "{\"event\":\"end\",\"id\":\"");
    put_text(&line, call->id);
    put_text(&line, "\",\"ended\":");
    put_number(&line, now() - session->began);
    put_key(&line, problem ? "errno" : WIFSIGNALED(status) ? "signal" : "status");
    put_number(&line, problem ? problem : WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    put_key(&line, "memory");
    put_number(&line, (int64_t)used->ru_maxrss * 1024);
    if (call->out.cut || call->err.cut) {
        put_key(&line, "cut");
        put_text(&line, "true");
    }
    put_text(&line, "}\n");
    append(session, &line, false);
    forget(&line);
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
        execvp(call->start, call->command);
    }
    int error = errno;
    if (write(report, &error, sizeof error) < 0)
        _exit(126);
    _exit(127);
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
        if (ppoll(ready, count, NULL, waiting) < 0)
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
    char out[80], err[80];
    snprintf(out, sizeof out, "output/%s.out", call->id);
    snprintf(err, sizeof err, "output/%s.err", call->id);
    call->merged = !goes_nowhere(STDOUT_FILENO) && same_target(STDOUT_FILENO, STDERR_FILENO);
    open_stream(&call->out, STDOUT_FILENO, session->record, out);
    if (call->merged)
        call->err = (struct stream){.target = -1, .given = -1, .source = -1, .kept = -1};
    else
        open_stream(&call->err, STDERR_FILENO, session->record, err);
}

static void take_over(struct sigaction *before, sigset_t *mask) {
    /* All of them until there is a child to pass them on to. */
    sigset_t block;
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigemptyset(&block);
    sigaddset(&block, SIGCHLD);
    for (size_t index = 0; index < FORWARDED_COUNT; index++)
        sigaddset(&block, FORWARDED[index]);
    sigprocmask(SIG_BLOCK, &block, mask);
    for (size_t index = 0; index < FORWARDED_COUNT; index++) {
        sigaction(FORWARDED[index], NULL, &before[index]);
        if (before[index].sa_handler != SIG_IGN)
            sigaction(FORWARDED[index], &action, NULL);
    }
    struct sigaction ended = {.sa_handler = on_end, .sa_flags = SA_NOCLDSTOP}, ignored = {.sa_handler = SIG_IGN};
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
    sigprocmask(SIG_SETMASK, &block, NULL);
}

static int run_recorded(struct call *call, const struct session *session) {
    struct sigaction before[FORWARDED_COUNT + 2];
    sigset_t mask, waiting;
    int report[2] = {-1, -1}, problem = 0, status = 0;
    struct rusage used = {0};
    open_streams(call, session);
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
    tell_end(call, session, status, &used, problem);
    if (problem) {
        fprintf(stderr, "%s: %s\n", call->start, strerror(problem));
        _exit(problem == ENOENT ? 127 : 126);
    }
    end_like(status);
    return 0;
}

int main(int argc, char **argv) {
    static char found[PATH_ROOM];
    struct session session;
    struct call call = {.argv = argv};
    bool recording = load_session(&session, getenv(VARIABLE));
    call.variables = own_environment(&session);
    if (argc >= 4 && strcmp(argv[1], RUN_WORD) == 0) {
        call.program = argv[2];
        call.argv = argv + 3;
    } else {
        const char *self = (const char *)getauxval(AT_EXECFN);
        bool real = self && find_real(strchr(self, '/') ? self : argv[0], found);
        call.program = real ? found : argv[0];
        if (!real) {
            fprintf(stderr, "%s: command not found\n", last_part(argv[0]));
            return 127;
        }
        if (strchr(argv[0], '/'))
            call.argv[0] = found;
    }
    call.tool = tool_of(call.program);
    call.start = call.program;
    call.command = call.argv;
    if (!recording || !worth_recording(call.tool, call.argv)) {
        syscall(SYS_execve, call.program, call.command, call.variables);
        fprintf(stderr, "%s: %s\n", call.program, strerror(errno));
        return errno == ENOENT ? 127 : 126;
    }
    make_id(call.id, sizeof call.id);
    if (strcmp(call.tool->kind, "nvcc") == 0)
        prepare_nvcc(&call, &session);
    call.told = call.variables;
    prepare_cache(&call, &session);
    return run_recorded(&call, &session);
}
