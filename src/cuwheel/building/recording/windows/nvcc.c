/* Stands in for nvcc, and for the other programs of a toolkit's folder: writes down that it was called, runs the real
 * one, keeps what it prints, and ends as it did. It is found where a build looks for nvcc: in a shadow of the toolkit that
 * variables and PATH lead to. Without a session, and under any name but a compiler's, it only runs the real one. */
#include "../shim/archs.h"
#include "call.h"
#include "spawn.h"

#define SHIMS_MARK ".cuwheel-shims"     /* these three as in ../shim/surroundings.h; here they are files that hold a path */
#define TOOLKIT_LINK ".cuwheel-toolkit"
#define PROGRAM_LINK ".cuwheel-program"
#define LONGEST_LINE 32767 /* that Windows takes */
#define ANSWER_MS 30000
#define MAX_HELP (1u << 20)

static struct session session;

static char *joined(const char *one, const char *two, const char *three) {
    size_t room = strlen(one) + strlen(two) + strlen(three) + 1;
    char *made = malloc(room);
    if (made)
        snprintf(made, room, "%s%s%s", one, two, three);
    return made;
}

/* The path that a file holds; NULL where there is none. */
static char *led_to(const char *folder, const char *name) {
    struct text found = {0};
    char *path = joined(folder, "\\", name);
    bool known = path && read_file(path, PATH_ROOM, &found) && found.size;
    free(path);
    return known ? found.at : NULL;
}

static bool is_program(const char *path) {
    wchar_t *name = wide_path(path);
    DWORD found = name ? GetFileAttributesW(name) : INVALID_FILE_ATTRIBUTES;
    free(name);
    return found != INVALID_FILE_ATTRIBUTES && !(found & FILE_ATTRIBUTE_DIRECTORY);
}

static bool is_shim_folder(const char *folder) {
    char *mark = joined(folder, "\\", SHIMS_MARK);
    bool found = mark && is_there(mark);
    free(mark);
    return found;
}

/* Folders of PATH one by one; the caller frees. */
static char *next_folder(const char **path) {
    size_t size = strcspn(*path, ";");
    char *folder = malloc(size + 1);
    if (folder) {
        memcpy(folder, *path, size);
        folder[size] = 0;
    }
    *path += size + ((*path)[size] == ';');
    return folder;
}

static char *on_path(const char *name) {
    char *path = own_variable(L"PATH"), *found = NULL;
    for (const char *at = path; at && *at && !found;) {
        char *folder = next_folder(&at);
        if (folder && *folder && !is_shim_folder(folder)) {
            found = joined(folder, "\\", name);
            if (found && !is_program(found)) {
                free(found);
                found = NULL;
            }
        }
        free(folder);
    }
    free(path);
    return found;
}

/* What this program stands for; NULL where there is none. */
static char *find_real(void) {
    wchar_t self[PATH_ROOM];
    DWORD length = GetModuleFileNameW(NULL, self, PATH_ROOM);
    char *own = length ? narrow(self, length) : NULL;
    if (!own)
        return NULL;
    const char *name = last_part(own);
    char *folder = joined(own, "", "");
    if (!folder)
        return NULL;
    folder[name > own ? (size_t)(name - own) - 1 : 0] = 0;
    char *above = joined(folder, "\\..", "");
    char *toolkit = above ? led_to(above, TOOLKIT_LINK) : NULL;
    char *real = toolkit ? joined(toolkit, "\\bin\\", name) : led_to(folder, PROGRAM_LINK);
    return real ? real : on_path(name);
}

/* PATH without folders of ours. */
static char *path_without_ours(const char *variable) {
    const char *at = strchr(variable, '=') + 1;
    struct text kept = {0};
    put(&kept, variable, (size_t)(at - variable));
    for (bool first = true; *at;) {
        char *folder = next_folder(&at);
        if (folder && !is_shim_folder(folder)) {
            put(&kept, ";", first ? 0 : 1);
            put_text(&kept, folder);
            first = false;
        }
        free(folder);
    }
    put(&kept, "", 1);
    return kept.lost ? (char *)variable : kept.at;
}

/* A variable that leads to stand-ins, as it was before; NULL for any other. */
static char *led_back(const char *variable) {
    size_t name = (size_t)(strchr(variable, '=') - variable) + 1;
    for (const char *led = NULL; (led = configured(&session, "led", led));) {
        if (!same_name(led, variable, name) || strcmp(led + name, variable + name) != 0)
            continue;
        const char *end = session.environ.at + session.environ.size;
        for (const char *at = session.environ.at; at < end; at += strlen(at) + 1)
            if (same_name(at, variable, name))
                return joined("", at, "");
    }
    return NULL;
}

/* The caller's variables as they would be without us. */
static void lead_back(char **variables) {
    char **to = variables;
    for (; *variables; variables++) {
        char *before = strchr(*variables, '=') ? led_back(*variables) : NULL;
        if (same_name(*variables, VARIABLE "=", sizeof VARIABLE))
            continue;
        if (!before && same_name(*variables, "PATH=", 5))
            before = path_without_ours(*variables);
        *to++ = before ? before : *variables;
    }
    *to = NULL;
}

static char **own_variables(bool capitals) {
    wchar_t *block = GetEnvironmentStringsW();
    size_t units = 0;
    while (block && block[units])
        units += wcslen(block + units) + 1;
    char **list = block ? variable_list(block, units + 1, capitals) : NULL;
    return list ? list : calloc(1, sizeof *list);
}

static wchar_t *block_of(char *const *variables) {
    struct text bytes = {0};
    for (; *variables; variables++) {
        wchar_t *each = wide(*variables);
        if (each)
            put(&bytes, each, (wcslen(each) + 1) * sizeof *each);
        free(each);
    }
    put(&bytes, L"\0", 2 * sizeof(wchar_t));
    return bytes.lost ? NULL : (wchar_t *)(void *)bytes.at;
}

/* Whether this nvcc can time its phases, asked once in a session: the file's first byte keeps the answer. */
static bool knows_time(const char *program, wchar_t *variables) {
    uint64_t hash = 1469598103934665603u;
    char path[PATH_ROOM + 64];
    struct text answer = {0}, help = {0};
    struct stream pipe = {0};
    struct spawned asked;
    for (const char *at = program; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 1099511628211u;
    snprintf(path, sizeof path, "%s/nvcc-%08lx%08lx", session.folder, (unsigned long)(hash >> 32), (unsigned long)hash);
    if (read_file(path, 1, &answer) && answer.size)
        return answer.at[0] == '1';
    char *words[] = {"--help", NULL};
    wchar_t *line = line_of(program, words, NULL), *name = wide(program);
    HANDLE nowhere = opened("NUL", GENERIC_WRITE, OPEN_EXISTING);
    SetHandleInformation(nowhere, HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT);
    if (!line || !name || !open_pipe(&pipe) || !spawn(&asked, name, line, variables, pipe.given, nowhere, 0))
        return false;
    close_one(&pipe.given);
    close_one(&nowhere);
    OVERLAPPED state = {.hEvent = CreateEventW(NULL, TRUE, FALSE, NULL)};
    for (DWORD count = 0; help.size < MAX_HELP && reserve(&help, PIECE); help.size += count) {
        bool begun = ReadFile(pipe.source, help.at + help.size, PIECE, NULL, &state) || GetLastError() == ERROR_IO_PENDING;
        if (!begun || WaitForSingleObject(state.hEvent, ANSWER_MS) != WAIT_OBJECT_0 ||
            !GetOverlappedResult(pipe.source, &state, &count, FALSE))
            break;
    }
    put(&help, "", 1);
    bool known = !help.lost && strstr(help.at, "--time <") != NULL;
    CloseHandle(asked.process);
    write_file(path, known ? "1" : "0", 1);
    return known;
}

static bool can_be_written(void) {
    char path[PATH_ROOM + 32];
    ULARGE_INTEGER free_bytes = {0};
    snprintf(path, sizeof path, "%s/phases", session.record);
    wchar_t *name = wide_path(path);
    bool fine = name && is_there(path) && GetDiskFreeSpaceExW(name, &free_bytes, NULL, NULL);
    free(name);
    return fine && free_bytes.QuadPart >= 4u << 20; /* nvcc fails where it cannot write its times */
}

/* The line to run: as the caller wrote it behind the program, or with the plan's architectures, a launcher, a timer. */
static wchar_t *prepared_line(struct call *call, char **variables, char **start) {
    const wchar_t *rest = behind_program(GetCommandLineW());
    *start = call->program;
    if (strcmp(call->tool->kind, "nvcc") != 0)
        return line_of(call->program, NULL, rest);
    struct nvcc_call wish = asked(call->argv + 1, variables);
    if (configured(&session, "arch", NULL) && wish.inputs && !wish.telling && !wish.single) {
        call->ran = with_archs(&session, call->id, call->argv + 1);
        filter_variables(variables);
    }
    const char *launcher = wish.telling ? NULL : configured(&session, "launcher", NULL);
    if (session.phases && !launcher && wish.inputs && !wish.telling && !wish.untimed && can_be_written() &&
        knows_time(call->program, block_of(variables)))
        call->phases = formatted("phases/", call->id, ".csv", "");
    if (!call->ran && !call->phases && !launcher)
        return line_of(call->program, NULL, rest);
    struct text line = {0};
    if (launcher)
        *start = (char *)launcher;
    for (const char *each = launcher; each; each = configured(&session, "launcher", each)) {
        put_quoted(&line, each);
        put(&line, " ", 1);
    }
    put_quoted(&line, call->program);
    for (char **word = call->ran ? call->ran : call->argv + 1; *word; word++) {
        put(&line, " ", 1);
        put_quoted(&line, *word);
    }
    if (call->phases) {
        char *timed = formatted("--time=", session.record, "/", call->phases);
        put(&line, " ", 1);
        put_quoted(&line, timed ? timed : "");
    }
    return wide_text(&line);
}

static int step_aside(const char *program, char **variables) {
    struct spawned made;
    DWORD status = 0;
    wchar_t *line = line_of(program, NULL, behind_program(GetCommandLineW())), *name = wide_path(program);
    if (!line || !name || !spawn(&made, name, line, block_of(variables), NULL, NULL, 0))
        return complain(program, GetLastError());
    WaitForSingleObject(made.process, INFINITE);
    GetExitCodeProcess(made.process, &status);
    return (int)status;
}

static int run_recorded(struct call *call, char **variables) {
    struct spawned made = {0};
    DWORD status = 0, problem = 0;
    char *start;
    make_id(call->id, sizeof call->id);
    wchar_t *line = prepared_line(call, variables, &start);
    open_streams(call, &session, GetStdHandle(STD_OUTPUT_HANDLE), GetStdHandle(STD_ERROR_HANDLE));
    tell_start(call, &session);
    if (line && wcslen(line) > LONGEST_LINE) /* the real path is longer than the name it was called by */
        line = _wcsdup(GetCommandLineW());
    wchar_t *name = start == call->program ? wide_path(call->program) : NULL;
    HANDLE out = call->out.given, err = call->merged ? out : call->err.given;
    if (!line || !spawn(&made, name, line, block_of(variables), out, err, 0))
        problem = GetLastError();
    close_one(&call->out.given);
    close_one(&call->err.given);
    if (made.process) {
        WaitForSingleObject(made.process, INFINITE);
        GetExitCodeProcess(made.process, &status);
    }
    settle(&call->out);
    settle(&call->err);
    tell_end(call, &session, problem ? "errno" : "status", problem ? errno_of(problem) : (int64_t)status,
             made.process ? (int64_t)peak_memory(made.process) : 0);
    finish_stream(&call->out, session.record);
    finish_stream(&call->err, session.record);
    return problem ? complain(start, problem) : (int)status;
}

int main(void) {
    const wchar_t *rest = behind_blanks(behind_program(GetCommandLineW()));
    if (wcsncmp(rest, RELAY_WORD L" ", wcslen(RELAY_WORD) + 1) == 0)
        return read_on(behind_program(rest));
    InitializeCriticalSection(&tail_lock);
    SetConsoleCtrlHandler(stay, TRUE);
    look_at_self();
    struct call call = {.argv = words_of(GetCommandLineW())};
    bool recording = own_session(&session);
    char **variables = own_variables(false);
    lead_back(variables);
    if (!(call.program = find_real()))
        return complain(call.argv && call.argv[0] ? call.argv[0] : "nvcc", ERROR_FILE_NOT_FOUND);
    call.tool = tool_of(call.program);
    if (!recording || !call.argv || !call.tool || strcmp(call.tool->kind, "nvcc") != 0)
        ExitProcess((UINT)step_aside(call.program, variables));
    call.told = own_variables(true);
    lead_back(call.told);
    ExitProcess((UINT)run_recorded(&call, variables));
}
