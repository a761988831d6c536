/* A compiler that does as its words say, for the tests of recording on Windows. Text is UTF-8.
 *
 * out:TEXT err:TEXT   print             exit:N crash:      end                  line:FILE   tell the command line, folder
 * bytes:N             print so many, on both streams      stdin:   print what comes in
 * sleep:MS            wait              hold:MS            leave a program behind that writes so much later
 * fd:N:TEXT           write by a descriptor of the C runtime    handle:N:TEXT   by a handle of that number
 * wait:NAME           take and give back a semaphore       debugged:   tell whether a debugger is seen
 * run:WORDS           run the rest of the word as a program, and go on with its status; run-on:WORDS does not wait
 * wish:NAME           print a variable                     started:FILE   make a file
 */
#include <windows.h>

#include <io.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

static char *narrow(const wchar_t *text) {
    int size = WideCharToMultiByte(CP_UTF8, 0, text, -1, NULL, 0, NULL, NULL);
    char *made = malloc((size_t)size);
    WideCharToMultiByte(CP_UTF8, 0, text, -1, made, size, NULL, NULL);
    return made;
}

static int put(DWORD stream, const char *text, size_t count) {
    DWORD done;
    return WriteFile(GetStdHandle(stream), text, (DWORD)count, &done, NULL) ? 0 : (int)GetLastError();
}

static void print(DWORD stream, const wchar_t *text) {
    char *made = narrow(text);
    int problem = put(stream, made, strlen(made));
    if (!problem)
        problem = put(stream, "\n", 1);
    if (problem)
        ExitProcess(1000 + (UINT)problem);
}

static void save(const wchar_t *path, const char *text) {
    HANDLE file = CreateFileW(path, GENERIC_WRITE, 7, NULL, CREATE_ALWAYS, 0, NULL);
    DWORD done;
    WriteFile(file, text, (DWORD)strlen(text), &done, NULL);
    CloseHandle(file);
}

static void tell_line(const wchar_t *path) {
    static wchar_t folder[32768], all[70000];
    GetCurrentDirectoryW(32768, folder);
    swprintf(all, 70000, L"%ls\n%ls\n", GetCommandLineW(), folder);
    save(path, narrow(all));
}

static DWORD run(const wchar_t *line, BOOL wait) {
    STARTUPINFOW start = {.cb = sizeof start};
    PROCESS_INFORMATION info;
    DWORD status = 0;
    wchar_t *copy = _wcsdup(line);
    if (!CreateProcessW(NULL, copy, NULL, NULL, TRUE, 0, NULL, NULL, &start, &info))
        return 200 + GetLastError();
    if (wait) {
        WaitForSingleObject(info.hProcess, INFINITE);
        GetExitCodeProcess(info.hProcess, &status);
    }
    return status;
}

static void many(long count) {
    static char line[1000];
    memset(line, 'x', sizeof line);
    line[999] = '\n';
    for (; count > 0; count -= 1000) {
        int one = put(STD_OUTPUT_HANDLE, line, sizeof line), two = put(STD_ERROR_HANDLE, line, sizeof line);
        if (one || two)
            ExitProcess(1000 + (UINT)(one ? one : two));
    }
}

static void copy_input(void) {
    char piece[4096];
    DWORD count, done;
    while (ReadFile(GetStdHandle(STD_INPUT_HANDLE), piece, sizeof piece, &count, NULL) && count)
        WriteFile(GetStdHandle(STD_OUTPUT_HANDLE), piece, count, &done, NULL);
}

static void leave_behind(const wchar_t *ms) {
    wchar_t self[32768], line[33000];
    GetModuleFileNameW(NULL, self, 32768);
    swprintf(line, 33000, L"\"%ls\" sleep:%ls out:late", self, ms);
    run(line, FALSE);
}

static void use_semaphore(const wchar_t *name) {
    HANDLE token = OpenSemaphoreW(SYNCHRONIZE | SEMAPHORE_MODIFY_STATE, FALSE, name);
    int got = token && WaitForSingleObject(token, 5000) == WAIT_OBJECT_0 && ReleaseSemaphore(token, 1, NULL);
    print(STD_OUTPUT_HANDLE, got ? L"token" : L"no token");
}

static void write_to(const wchar_t *rest, int descriptor) {
    wchar_t *text;
    unsigned long number = wcstoul(rest, &text, 10);
    char *made = narrow(text + 1);
    DWORD done;
    if (descriptor ? _write((int)number, made, (unsigned)strlen(made)) < 0
                   : !WriteFile((HANDLE)(ULONG_PTR)number, made, (DWORD)strlen(made), &done, NULL))
        ExitProcess(9);
}

static const wchar_t *behind(const wchar_t *word, const wchar_t *verb) {
    return wcsncmp(word, verb, wcslen(verb)) == 0 ? word + wcslen(verb) : NULL;
}

int wmain(int argc, wchar_t **argv) {
    wchar_t value[1024];
    const wchar_t *rest;
    for (int index = 1; index < argc; index++) {
        const wchar_t *word = argv[index];
        if ((rest = behind(word, L"out:")))
            print(STD_OUTPUT_HANDLE, rest);
        else if ((rest = behind(word, L"err:")))
            print(STD_ERROR_HANDLE, rest);
        else if ((rest = behind(word, L"exit:")))
            ExitProcess(wcstoul(rest, NULL, 0));
        else if (behind(word, L"crash:"))
            *(volatile int *)NULL = 1;
        else if ((rest = behind(word, L"line:")))
            tell_line(rest);
        else if ((rest = behind(word, L"bytes:")))
            many(wcstol(rest, NULL, 10));
        else if (behind(word, L"stdin:"))
            copy_input();
        else if ((rest = behind(word, L"sleep:")))
            Sleep(wcstoul(rest, NULL, 10));
        else if ((rest = behind(word, L"hold:")))
            leave_behind(rest);
        else if ((rest = behind(word, L"fd:")))
            write_to(rest, 1);
        else if ((rest = behind(word, L"handle:")))
            write_to(rest, 0);
        else if ((rest = behind(word, L"wait:")))
            use_semaphore(rest);
        else if (behind(word, L"debugged:"))
            print(STD_OUTPUT_HANDLE, IsDebuggerPresent() ? L"debugged" : L"alone");
        else if ((rest = behind(word, L"run:"))) {
            DWORD status = run(rest, TRUE);
            if (status)
                ExitProcess(status);
        } else if ((rest = behind(word, L"run-on:")))
            run(rest, FALSE);
        else if ((rest = behind(word, L"wish:")))
            print(STD_OUTPUT_HANDLE, GetEnvironmentVariableW(rest, value, 1024) ? value : L"(not set)");
        else if ((rest = behind(word, L"started:")))
            save(rest, "");
    }
    return 0;
}
