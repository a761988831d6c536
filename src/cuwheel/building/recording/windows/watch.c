/* Runs the recorded command, keeps the end of what it prints, and watches every process of it as a debugger does.
 *
 *   watch.exe --cuwheel-keep COMMAND WORDS…         the command, recorded
 *   watch.exe --cuwheel-keep-quiet COMMAND WORDS…   the same, with its stdout on our stderr
 *   watch.exe --cuwheel-try                         whether watching works here: ends with 7
 *
 * At each process's creation, before it has run an instruction, its command line and folder are read from its memory. A
 * compiler's streams are replaced by pipes of ours, whatever its caller gave it, and its end waits until all that it
 * wrote has been passed on. Nothing is put into any process but these handles, and none of them sees a debugger. */
#include "watched.h"

#define KEEP_WORD L"--cuwheel-keep"
#define QUIET_WORD L"--cuwheel-keep-quiet"
#define TRY_WORD L"--cuwheel-try"
#define ANSWER_WORD L"--cuwheel-answer"
#define IT_WORKS 7
#define LOOK_MS 2 /* how often we look whether output has been passed on, while some process waits for that */

static struct stream kept[2]; /* of the command itself */

static void attend(DWORD root) {
    DEBUG_EVENT event;
    for (bool waiting = false;;) {
        if (!WaitForDebugEvent(&event, waiting ? LOOK_MS : INFINITE)) {
            if (release_ended(root, &waiting) || !all) /* nobody is left who could tell anything */
                return;
            continue;
        }
        struct watched *one = find(event.dwProcessId);
        DWORD answer = DBG_CONTINUE;
        switch (event.dwDebugEventCode) {
        case CREATE_PROCESS_DEBUG_EVENT:
            see_created(&event);
            break;
        case EXIT_PROCESS_DEBUG_EVENT:
            if (one) {
                see_ended(one, &event);
                if (release_ended(root, &waiting))
                    return;
                continue;
            }
            break;
        case EXCEPTION_DEBUG_EVENT:
            answer = see_exception(one, &event);
            break;
        case LOAD_DLL_DEBUG_EVENT:
            if (event.u.LoadDll.hFile)
                CloseHandle(event.u.LoadDll.hFile);
            break;
        default:
            break;
        }
        ContinueDebugEvent(event.dwProcessId, event.dwThreadId, answer);
        if (waiting && release_ended(root, &waiting))
            return;
    }
}

/* What goes on when the command has ended goes on by itself. */
static void let_go(void) {
    DebugSetProcessKillOnExit(FALSE);
    for (struct watched *one = all; one; one = one->next) {
        DebugActiveProcessStop(one->id);
        if (one->call) {
            finish_stream(&one->call->out, session.record);
            finish_stream(&one->call->err, session.record);
        }
    }
    finish_calls(true);
}

static void open_kept(HANDLE out, HANDLE err) {
    static const char name[] = "output/command.txt";
    DWORD mode;
    bool merged = same_place(out, err);
    if (!recording)
        return;
    /* On a console the command keeps it: it would look otherwise through a pipe. */
    if (!GetConsoleMode(out, &mode))
        open_stream(&kept[0], out, session.record, name, true);
    if (merged && kept[0].given)
        kept[1].given = kept[0].given;
    else if (!GetConsoleMode(err, &mode))
        open_stream(&kept[1], err, session.record, name, true);
}

static int run(const wchar_t *words, bool quiet) {
    struct spawned command;
    DWORD status = 0;
    HANDLE err = GetStdHandle(STD_ERROR_HANDLE), out = quiet ? err : GetStdHandle(STD_OUTPUT_HANDLE);
    bool watching = recording && configured(&session, "watch", NULL);
    wchar_t *line = _wcsdup(words);
    SetConsoleCtrlHandler(stay, TRUE);
    if (watching)
        SetEnvironmentVariableW(L"CUWHEEL_RECORD", NULL);
    open_kept(out, err);
    if (!spawn(&command, NULL, line, NULL, kept[0].given ? kept[0].given : quiet ? inheritable(out) : NULL,
               kept[1].given, watching ? DEBUG_PROCESS : 0)) {
        DWORD problem = GetLastError();
        char *program = narrow(words, wcslen(words));
        return complain(program ? program : "command", problem);
    }
    if (kept[1].given != kept[0].given)
        close_one(&kept[1].given);
    close_one(&kept[0].given);
    if (watching)
        attend(command.id);
    WaitForSingleObject(command.process, INFINITE);
    GetExitCodeProcess(command.process, &status);
    for (int index = 0; index < 2; index++)
        settle(&kept[index]);
    if (watching)
        let_go();
    for (int index = 0; index < 2; index++)
        finish_stream(&kept[index], session.record);
    return (int)status;
}

/* A process that is watched must give its line, and print into our pipe though its streams are none. */
static int try_watching(void) {
    wchar_t self[PATH_ROOM], line[PATH_ROOM + 32];
    STARTUPINFOW start = {.cb = sizeof start, .dwFlags = STARTF_USESTDHANDLES};
    PROCESS_INFORMATION info;
    DEBUG_EVENT event;
    struct stream answer = {0};
    char piece[16] = "";
    DWORD count = 0, status = 0;
    GetModuleFileNameW(NULL, self, PATH_ROOM);
    swprintf(line, PATH_ROOM + 32, L"\"%ls\" " ANSWER_WORD, self);
    if (!open_pipe(&answer) ||
        !CreateProcessW(self, line, NULL, NULL, TRUE, DEBUG_PROCESS, NULL, NULL, &start, &info))
        return 1;
    for (bool ended = false; !ended;) {
        if (!WaitForDebugEvent(&event, 10000)) {
            TerminateProcess(info.hProcess, 1);
            return 1;
        }
        if (event.dwDebugEventCode == CREATE_PROCESS_DEBUG_EVENT) {
            see_created(&event);
            struct watched *one = find(event.dwProcessId);
            if (one && one->argv && one->argv[0] && one->argv[1] &&
                DuplicateHandle(GetCurrentProcess(), answer.given, one->process, &one->given[0], 0, TRUE,
                                DUPLICATE_SAME_ACCESS))
                swap_streams(one);
        }
        ended = event.dwDebugEventCode == EXIT_PROCESS_DEBUG_EVENT;
        ContinueDebugEvent(event.dwProcessId, event.dwThreadId,
                           event.dwDebugEventCode == EXCEPTION_DEBUG_EVENT ? DBG_EXCEPTION_NOT_HANDLED : DBG_CONTINUE);
    }
    GetExitCodeProcess(info.hProcess, &status);
    close_one(&answer.given);
    OVERLAPPED state = {.hEvent = CreateEventW(NULL, TRUE, FALSE, NULL)};
    if (ReadFile(answer.source, piece, sizeof piece - 1, NULL, &state) || GetLastError() == ERROR_IO_PENDING)
        GetOverlappedResult(answer.source, &state, &count, TRUE);
    return count >= 2 && memcmp(piece, "ok", 2) == 0 ? IT_WORKS : 1;
}

int main(void) {
    const wchar_t *rest = behind_blanks(behind_program(GetCommandLineW())), *words = behind_blanks(behind_program(rest));
    size_t length = (size_t)(behind_program(rest) - rest);
    InitializeCriticalSection(&tail_lock);
    if (wcsncmp(rest, ANSWER_WORD, length) == 0 && length == wcslen(ANSWER_WORD))
        return write_all(GetStdHandle(STD_OUTPUT_HANDLE), "ok", 2) ? 0 : 1;
    if (wcsncmp(rest, RELAY_WORD, length) == 0 && length == wcslen(RELAY_WORD))
        return read_on(words);
    if (wcsncmp(rest, TRY_WORD, length) == 0 && length == wcslen(TRY_WORD))
        return try_watching();
    bool quiet = length == wcslen(QUIET_WORD) && wcsncmp(rest, QUIET_WORD, length) == 0;
    if (!quiet && !(length == wcslen(KEEP_WORD) && wcsncmp(rest, KEEP_WORD, length) == 0))
        return 2;
    recording = own_session(&session);
    ExitProcess((UINT)run(words, quiet));
}
