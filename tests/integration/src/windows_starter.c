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

int main(void) {
    wchar_t *line = GetCommandLineW(), how[32], self[MAX_PATH];
    for (int quoted = 0; *line && (quoted || *line != ' '); line++)
        quoted ^= *line == '"';
    while (*line == ' ')
        line++;
    size_t length = wcscspn(line, L" ");
    wcsncpy(how, line, length);
    how[length] = 0;
    line += length;
    while (*line == ' ')
        line++;
    if (is(how, L"script"))
        return build_script(line);
    if (is(how, L"semaphore")) {
        CreateSemaphoreW(NULL, 1, 4, line);
        say("ready\n");
        Sleep(60000);
        return 0;
    }
    if (is(how, L"ctrl-c")) {
        HANDLE told = copied(STD_OUTPUT_HANDLE);
        FreeConsole();
        AllocConsole();
        SetStdHandle(STD_OUTPUT_HANDLE, told);
        SetConsoleCtrlHandler(survive, TRUE);
    }
    STARTUPINFOW start = {.cb = sizeof start};
    PROCESS_INFORMATION info;
    struct caught out = {0}, err = {0};
    DWORD flags = 0, status = 0;
    static wchar_t copy[40000];
    wcscpy(copy, line);
    if (is(how, L"cargo")) {
        GetModuleFileNameW(NULL, self, MAX_PATH);
        swprintf(copy, 40000, L"\"%ls\" script %ls", self, line);
    }
    start.dwFlags = is(how, L"inherit") || is(how, L"crt") ? 0 : STARTF_USESTDHANDLES;
    start.hStdInput = copied(STD_INPUT_HANDLE);
    start.hStdOutput = copied(STD_OUTPUT_HANDLE);
    start.hStdError = copied(STD_ERROR_HANDLE);
    if (is(how, L"null"))
        start.hStdInput = start.hStdOutput = start.hStdError = NULL;
    if (is(how, L"invalid"))
        start.hStdInput = start.hStdOutput = start.hStdError = INVALID_HANDLE_VALUE;
    if (is(how, L"nul")) {
        SECURITY_ATTRIBUTES inherited = {sizeof inherited, NULL, TRUE};
        start.hStdOutput = start.hStdError = CreateFileW(L"NUL", GENERIC_WRITE, 3, &inherited, OPEN_EXISTING, 0, NULL);
    }
    if (is(how, L"detached") || is(how, L"window")) {
        flags = is(how, L"detached") ? DETACHED_PROCESS : CREATE_NO_WINDOW;
        start.dwFlags = 0;
    }
    if (is(how, L"pipes") || is(how, L"cargo") || is(how, L"closed")) {
        start.hStdOutput = pipe_to(&out);
        start.hStdError = pipe_to(&err);
    }
    if (is(how, L"merged"))
        start.hStdOutput = start.hStdError = pipe_to(&out);
    if (is(how, L"twice")) { /* one pipe by two handles, as `2>&1` gives it */
        start.hStdOutput = pipe_to(&out);
        DuplicateHandle(GetCurrentProcess(), start.hStdOutput, GetCurrentProcess(), &start.hStdError, 0, TRUE,
                        DUPLICATE_SAME_ACCESS);
    }
    if (is(how, L"extra")) {
        HANDLE extra = pipe_to(&err);
        wchar_t word[64];
        swprintf(word, 64, L" handle:%llu:extra", (unsigned long long)(ULONG_PTR)extra);
        wcscat(copy, word);
    }
    if (is(how, L"crt")) { /* descriptors of a C runtime go down in a block of their own */
        int ends[2], saved = _dup(1);
        _pipe(ends, 65536, _O_BINARY);
        _dup2(ends[1], 1);
        _dup2(ends[1], 2);
        _close(ends[1]);
        int argc;
        wchar_t **argv;
        typedef wchar_t **WINAPI split(const wchar_t *, int *);
        split *take_apart = (split *)(void *)GetProcAddress(LoadLibraryW(L"shell32"), "CommandLineToArgvW");
        argv = take_apart(copy, &argc);
        intptr_t child = _wspawnvp(_P_NOWAIT, argv[0], (const wchar_t *const *)argv);
        _dup2(saved, 1);
        _close(2);
        char text[2000], head[64];
        int size = 0;
        for (int more; size < 1900 && (more = _read(ends[0], text + size, (unsigned)(1900 - size))) > 0;)
            size += more;
        text[size] = 0;
        int code = 0;
        _cwait(&code, child, 0);
        snprintf(head, sizeof head, "status=%d\nout=", code);
        _write(1, head, (unsigned)strlen(head));
        _write(1, text, (unsigned)size);
        return code;
    }
    if (!CreateProcessW(NULL, copy, NULL, NULL, TRUE, flags, NULL, NULL, &start, &info)) {
        char text[64];
        snprintf(text, sizeof text, "problem=%lu\n", GetLastError());
        say(text);
        return 3;
    }
    HANDLE threads[2] = {NULL, NULL};
    if (is(how, L"closed"))
        CloseHandle(out.source), out.source = NULL;
    for (int index = 0; index < 2; index++) {
        struct caught *one = index ? &err : &out;
        if (one->source)
            threads[index] = CreateThread(NULL, 0, catch_all, one, 0, NULL);
    }
    if (out.source || err.source || is(how, L"closed")) {
        if (!is(how, L"extra"))
            CloseHandle(start.hStdOutput);
        if (start.hStdError != start.hStdOutput && !is(how, L"extra"))
            CloseHandle(start.hStdError);
    }
    if (is(how, L"leave"))
        return 0;
    if (is(how, L"ctrl-c")) { /* as somebody types it: to all of the console's processes */
        Sleep(1500);
        GenerateConsoleCtrlEvent(CTRL_C_EVENT, 0);
    }
    if (is(how, L"kill")) {
        Sleep(1500);
        TerminateProcess(info.hProcess, 77);
    }
    WaitForSingleObject(info.hProcess, INFINITE);
    GetExitCodeProcess(info.hProcess, &status);
    for (int index = 0; index < 2; index++)
        if (threads[index] && !is(how, L"extra"))
            WaitForSingleObject(threads[index], 20000);
    if (is(how, L"cargo")) {
        if (status) {
            say("error: failed to run custom build command for `kernels v0.1.0`\n\nCaused by:\n"
                "  process didn't exit successfully: `target\\debug\\build\\kernels\\build-script-build` (exit code: 101)\n");
            indent("  --- stdout\n", &out);
            indent("\n  --- stderr\n", &err);
        }
        return (int)status;
    }
    if (is(how, L"extra"))
        Sleep(200);
    char text[64];
    snprintf(text, sizeof text, "status=%lu\n", status);
    say(text);
    tell_caught("out=", &out);
    tell_caught("err=", &err);
    return (int)(status > 255 ? 255 : status);
}
