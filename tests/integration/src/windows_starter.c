/* Starts the rest of its line as a build tool does, in each way that streams are given to a program on Windows.
 *
 *   starter HOW PROGRAM WORDS…
 *
 * It prints `status=N`, and what it caught behind `out=` and `err=` (long texts as their length). */
#include <windows.h>

#include <io.h>
#include <fcntl.h>
#include <process.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

struct caught {
    HANDLE source;
    char *text;
    DWORD size;
};

static DWORD WINAPI catch_all(void *given) {
    struct caught *one = given;
    char piece[65536];
    OVERLAPPED state = {.hEvent = CreateEventW(NULL, TRUE, FALSE, NULL)};
    for (DWORD count = 0;; one->size += count) {
        if (!ReadFile(one->source, piece, sizeof piece, NULL, &state) && GetLastError() != ERROR_IO_PENDING)
            break;
        if (!GetOverlappedResult(one->source, &state, &count, TRUE))
            break;
        one->text = realloc(one->text, one->size + count + 1);
        memcpy(one->text + one->size, piece, count);
    }
    if (one->text)
        one->text[one->size] = 0;
    return 0;
}

/* As Rust's standard library makes them: its own end overlapped, the other an ordinary one that is inherited. */
static HANDLE pipe_to(struct caught *one) {
    static int count;
    wchar_t name[64];
    SECURITY_ATTRIBUTES inherited = {sizeof inherited, NULL, TRUE};
    swprintf(name, 64, L"\\\\.\\pipe\\starter.%lu.%d", GetCurrentProcessId(), count++);
    one->source = CreateNamedPipeW(name, PIPE_ACCESS_INBOUND | FILE_FLAG_FIRST_PIPE_INSTANCE | FILE_FLAG_OVERLAPPED,
                                   PIPE_TYPE_BYTE, 1, 65536, 65536, 0, NULL);
    return CreateFileW(name, GENERIC_WRITE, 0, &inherited, OPEN_EXISTING, 0, NULL);
}

static void say(const char *text) {
    DWORD done;
    WriteFile(GetStdHandle(STD_OUTPUT_HANDLE), text, (DWORD)strlen(text), &done, NULL);
}

static void tell_caught(const char *name, const struct caught *one) {
    char line[64];
    if (!one->source)
        return;
    say(name);
    if (one->size > 2000) {
        snprintf(line, sizeof line, "%lu bytes", one->size);
        say(line);
    } else if (one->text)
        say(one->text);
    say("\n");
}

static int is(const wchar_t *how, const wchar_t *name) { return wcscmp(how, name) == 0; }

static HANDLE copied(DWORD stream) {
    HANDLE copy = NULL, self = GetCurrentProcess();
    DuplicateHandle(self, GetStdHandle(stream), self, &copy, 0, TRUE, DUPLICATE_SAME_ACCESS);
    return copy;
}

static BOOL WINAPI survive(DWORD event) {
    (void)event;
    return TRUE;
}

/* A crate that compiles kernels in a build script: nvcc has the script's own streams, so there is no output to quote. */
static int build_script(wchar_t *line) {
    STARTUPINFOW start = {.cb = sizeof start, .dwFlags = STARTF_USESTDHANDLES};
    PROCESS_INFORMATION info;
    DWORD status = 0, done;
    char text[300];
    start.hStdInput = copied(STD_INPUT_HANDLE);
    start.hStdOutput = copied(STD_OUTPUT_HANDLE);
    start.hStdError = copied(STD_ERROR_HANDLE);
    say("cargo:rerun-if-changed=kernel.cu\n");
    if (!CreateProcessW(NULL, line, NULL, NULL, TRUE, 0, NULL, NULL, &start, &info))
        return 2;
    WaitForSingleObject(info.hProcess, INFINITE);
    GetExitCodeProcess(info.hProcess, &status);
    if (!status)
        return 0;
    snprintf(text, sizeof text,
             "thread 'main' panicked at build.rs:40:13:\nnvcc error while executing compiling: \"nvcc\"\n\n# stdout\n\n\n"
             "# stderr\n\n\nnote: run with `RUST_BACKTRACE=1`\n");
    WriteFile(GetStdHandle(STD_ERROR_HANDLE), text, (DWORD)strlen(text), &done, NULL);
    return 101;
}

static void indent(const char *head, const struct caught *one) {
    say(head);
    for (char *line = one->text ? strtok(one->text, "\n") : NULL; line; line = strtok(NULL, "\n")) {
        say("  ");
        say(line);
        say("\n");
    }
}

/* Descriptors of a C runtime go down in a block of their own. */
static int spawn_by_runtime(wchar_t *line) {
    typedef wchar_t **WINAPI split(const wchar_t *, int *);
    split *take_apart = (split *)(void *)GetProcAddress(LoadLibraryW(L"shell32"), "CommandLineToArgvW");
    int ends[2], saved = _dup(1), argc, size = 0, code = 0;
    char text[2000], head[64];
    _pipe(ends, 65536, _O_BINARY);
    _dup2(ends[1], 1);
    _dup2(ends[1], 2);
    _close(ends[1]);
    wchar_t **argv = take_apart(line, &argc);
    intptr_t child = _wspawnvp(_P_NOWAIT, argv[0], (const wchar_t *const *)argv);
    _dup2(saved, 1);
    _close(2);
    for (int more; size < 1900 && (more = _read(ends[0], text + size, (unsigned)(1900 - size))) > 0;)
        size += more;
    _cwait(&code, child, 0);
    snprintf(head, sizeof head, "status=%d\nout=", code);
    _write(1, head, (unsigned)strlen(head));
    _write(1, text, (unsigned)size);
    return code;
}

/* What the program gets; the flags to start it with. */
static DWORD give_streams(const wchar_t *how, STARTUPINFOW *start, struct caught *out, struct caught *err, wchar_t *line) {
    SECURITY_ATTRIBUTES inherited = {sizeof inherited, NULL, TRUE};
    start->dwFlags = is(how, L"inherit") || is(how, L"detached") || is(how, L"window") ? 0 : STARTF_USESTDHANDLES;
    start->hStdInput = copied(STD_INPUT_HANDLE);
    start->hStdOutput = copied(STD_OUTPUT_HANDLE);
    start->hStdError = copied(STD_ERROR_HANDLE);
    if (is(how, L"null") || is(how, L"invalid"))
        start->hStdInput = start->hStdOutput = start->hStdError = is(how, L"null") ? NULL : INVALID_HANDLE_VALUE;
    if (is(how, L"nul"))
        start->hStdOutput = start->hStdError = CreateFileW(L"NUL", GENERIC_WRITE, 3, &inherited, OPEN_EXISTING, 0, NULL);
    if (is(how, L"pipes") || is(how, L"cargo") || is(how, L"closed")) {
        start->hStdOutput = pipe_to(out);
        start->hStdError = pipe_to(err);
    }
    if (is(how, L"merged") || is(how, L"twice"))
        start->hStdOutput = start->hStdError = pipe_to(out);
    if (is(how, L"twice")) /* one pipe by two handles, as `2>&1` gives it */
        DuplicateHandle(GetCurrentProcess(), start->hStdOutput, GetCurrentProcess(), &start->hStdError, 0, TRUE,
                        DUPLICATE_SAME_ACCESS);
    if (is(how, L"extra"))
        swprintf(line + wcslen(line), 64, L" handle:%llu:extra", (unsigned long long)(ULONG_PTR)pipe_to(err));
    return is(how, L"detached") ? DETACHED_PROCESS : is(how, L"window") ? CREATE_NO_WINDOW : 0;
}

static void use_own_console(void) {
    HANDLE told = copied(STD_OUTPUT_HANDLE);
    FreeConsole();
    AllocConsole();
    SetStdHandle(STD_OUTPUT_HANDLE, told);
    SetConsoleCtrlHandler(survive, TRUE);
}

/* Until the program has ended, and what it wrote has been caught. */
static DWORD await(const wchar_t *how, HANDLE process, struct caught *out, struct caught *err) {
    HANDLE threads[2] = {NULL, NULL};
    DWORD status = 0;
    for (int index = 0; index < 2; index++) {
        struct caught *one = index ? err : out;
        if (one->source)
            threads[index] = CreateThread(NULL, 0, catch_all, one, 0, NULL);
    }
    if (is(how, L"ctrl-c") || is(how, L"kill"))
        Sleep(1500);
    if (is(how, L"ctrl-c")) /* as somebody types it: to all of the console's processes */
        GenerateConsoleCtrlEvent(CTRL_C_EVENT, 0);
    if (is(how, L"kill"))
        TerminateProcess(process, 77);
    WaitForSingleObject(process, INFINITE);
    GetExitCodeProcess(process, &status);
    for (int index = 0; index < 2; index++)
        if (threads[index])
            WaitForSingleObject(threads[index], is(how, L"extra") ? 300 : 20000);
    return status;
}

static int end_as_cargo(DWORD status, struct caught *out, struct caught *err) {
    if (status) {
        say("error: failed to run custom build command for `kernels v0.1.0`\n\nCaused by:\n"
            "  process didn't exit successfully: `target\\debug\\build\\kernels\\build-script-build` (exit code: 101)\n");
        indent("  --- stdout\n", out);
        indent("\n  --- stderr\n", err);
    }
    return (int)status;
}

static int start_program(const wchar_t *how, wchar_t *line) {
    STARTUPINFOW start = {.cb = sizeof start};
    PROCESS_INFORMATION info;
    struct caught out = {0}, err = {0};
    char text[64];
    DWORD flags = give_streams(how, &start, &out, &err, line);
    if (!CreateProcessW(NULL, line, NULL, NULL, TRUE, flags, NULL, NULL, &start, &info)) {
        snprintf(text, sizeof text, "problem=%lu\n", GetLastError());
        say(text);
        return 3;
    }
    if (is(how, L"leave"))
        return 0;
    if (out.source) { /* its own ends are the only ones now */
        CloseHandle(start.hStdOutput);
        if (start.hStdError != start.hStdOutput)
            CloseHandle(start.hStdError);
    }
    if (is(how, L"closed")) {
        CloseHandle(out.source);
        out.source = NULL;
    }
    DWORD status = await(how, info.hProcess, &out, &err);
    if (is(how, L"cargo"))
        return end_as_cargo(status, &out, &err);
    snprintf(text, sizeof text, "status=%lu\n", status);
    say(text);
    tell_caught("out=", &out);
    tell_caught("err=", &err);
    return (int)(status > 255 ? 255 : status);
}

int main(void) {
    static wchar_t line[40000], copy[40000], how[32], self[MAX_PATH];
    wchar_t *rest = GetCommandLineW();
    for (int quoted = 0; *rest && (quoted || *rest != ' '); rest++)
        quoted ^= *rest == '"';
    rest += wcsspn(rest, L" ");
    wcsncpy(how, rest, wcscspn(rest, L" "));
    rest += wcscspn(rest, L" ");
    wcscpy(line, rest + wcsspn(rest, L" "));
    if (is(how, L"script"))
        return build_script(line);
    if (is(how, L"crt"))
        return spawn_by_runtime(line);
    if (is(how, L"semaphore")) {
        CreateSemaphoreW(NULL, 1, 4, line);
        say("ready\n");
        Sleep(60000);
        return 0;
    }
    if (is(how, L"ctrl-c"))
        use_own_console();
    if (!is(how, L"cargo"))
        return start_program(how, line);
    GetModuleFileNameW(NULL, self, MAX_PATH);
    swprintf(copy, 40000, L"\"%ls\" script %ls", self, line);
    return start_program(how, copy);
}
