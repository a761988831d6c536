/* The processes of the recorded command, as their debugger sees them: who started whom, which are calls of compilers. */
#ifndef CUWHEEL_WATCHED_H
#define CUWHEEL_WATCHED_H

#include "call.h"
#include "spawn.h"

#define WX86_BREAKPOINT ((DWORD)0x4000001F)

struct watched {
    struct watched *next;
    DWORD id;
    HANDLE process;
    struct started started;
    struct watched *owner; /* the call that it is part of; NULL where it is none's, or that has ended */
    bool inner;            /* it is, or was, part of one */
    bool swaps;            /* its streams are to be replaced once more at its first breakpoint */
    bool ending;           /* it has ended, and waits for us to pass on what it wrote */
    DEBUG_EVENT last;      /* its end */
    char **argv;
    int64_t began;
    uint64_t memory; /* of the largest of its programs */
    struct call *call;
    HANDLE given[2]; /* our pipes, as that process knows them */
};

static struct session session;
static struct watched *all;
static bool recording;
static struct call *ended_calls;

static struct watched *find(DWORD id) {
    for (struct watched *each = all; each; each = each->next)
        if (each->id == id)
            return each;
    return NULL;
}

static bool is_null_handle(HANDLE handle) { return !handle || handle == INVALID_HANDLE_VALUE; }

/* A handle of that process's, for us. */
static HANDLE fetched(const struct watched *one, HANDLE theirs) {
    HANDLE copy = NULL;
    if (is_null_handle(theirs) ||
        !DuplicateHandle(one->process, theirs, GetCurrentProcess(), &copy, 0, FALSE, DUPLICATE_SAME_ACCESS))
        return NULL;
    return copy;
}

/* Our pipes in place of what it has, and the flag that says that its caller chose them. Without it a console that is set
 * up for it brings its own: that comes after its creation, hence once more at its first breakpoint. */
static void swap_streams(struct watched *one) {
    HANDLE now_there[3] = {0};
    const struct started *started = &one->started;
    DWORD flags = started->window_flags | STARTF_USESTDHANDLES;
    poke(started, started->parameters + PARAMETERS_WINDOW_FLAGS, &flags, sizeof flags);
    peek(started, started->parameters + PARAMETERS_STREAMS, now_there, sizeof now_there);
    for (int index = 0; index < 2; index++)
        if (one->given[index] && now_there[index + 1] != one->given[index])
            poke(started, started->parameters + PARAMETERS_STREAMS + 8 * ((uint64_t)index + 1), &one->given[index], 8);
    unsigned char *block = started->runtime.length ? malloc(started->runtime.length) : NULL;
    if (block && peek(started, started->runtime.at, block, started->runtime.length) &&
        patch_descriptors(block, started->runtime.length, one->given[0], one->given[1]))
        poke(started, started->runtime.at, block, started->runtime.length);
    free(block);
}

static void give_streams(struct watched *one) {
    struct call *call = one->call;
    HANDLE *theirs = one->started.streams;
    bool own_console = one->started.console == NEW_CONSOLE || one->started.console == NO_WINDOW;
    if (own_console && !(one->started.window_flags & STARTF_USESTDHANDLES))
        theirs[1] = theirs[2] = NULL; /* these are its caller's, and it would not have had them */
    call->merged = !is_null_handle(theirs[1]) && theirs[1] == theirs[2];
    call->out.fetched = call->err.fetched = true;
    HANDLE out = fetched(one, theirs[1]), err = fetched(one, theirs[2]);
    open_streams(call, &session, out, err);
    if (call->merged) /* one of them serves both */
        close_one(&err);
    struct stream *streams[2] = {&call->out, call->merged ? &call->out : &call->err};
    for (int index = 0; index < 2; index++) {
        if (index && call->merged) {
            one->given[1] = one->given[0];
            break;
        }
        if (streams[index]->given && !DuplicateHandle(GetCurrentProcess(), streams[index]->given, one->process,
                                                      &one->given[index], 0, TRUE, DUPLICATE_SAME_ACCESS))
            one->given[index] = NULL;
    }
    close_one(&call->out.given); /* theirs is the only one now: its end is the program's */
    close_one(&call->err.given);
    swap_streams(one);
}

/* So that it runs as it would by itself: debugged heaps are slow, and some programs ask. */
static void hide_debugger(const struct watched *one) {
    unsigned char no = 0;
    poke(&one->started, one->started.peb + PEB_BEING_DEBUGGED, &no, 1);
}

static void begin_call(struct watched *one, const struct tool *tool, const struct watched *parent) {
    static struct text parent_command;
    struct call *call = one->call = calloc(1, sizeof *call);
    if (!call)
        return;
    parent_command.size = 0;
    if (parent)
        put_text(&parent_command, parent->started.command);
    subject.id = one->id;
    subject.folder = one->started.folder;
    subject.parent_command = &parent_command;
    call->tool = tool;
    call->program = one->started.image;
    call->argv = one->argv;
    call->told = one->started.variables = read_variables(&one->started);
    make_id(call->id, sizeof call->id);
    give_streams(one);
    tell_start(call, &session);
    subject.folder = NULL;
}

static void see_created(const DEBUG_EVENT *event) {
    const CREATE_PROCESS_DEBUG_INFO *info = &event->u.CreateProcessInfo;
    struct watched *one = calloc(1, sizeof *one);
    if (info->hFile)
        CloseHandle(info->hFile);
    if (!one)
        return;
    one->id = event->dwProcessId;
    one->process = info->hProcess;
    one->began = now() - session.began;
    one->next = all;
    all = one;
    if (!read_started(&one->started, one->process))
        return;
    struct watched *parent = find(one->started.parent);
    one->owner = parent ? parent->call ? parent : parent->owner : NULL;
    one->inner = one->owner || (parent && parent->inner);
    one->argv = words_of(one->started.wide_command);
    const struct tool *tool = tool_of(one->started.image);
    if (recording && !one->inner && one->argv && worth_recording(tool, one->argv))
        begin_call(one, tool, parent);
    one->swaps = one->call && !(one->started.window_flags & STARTF_USESTDHANDLES);
    if (!one->swaps)
        hide_debugger(one);
}

/* A program that nvcc runs: for what was it called, how did it end? */
static void tell_inner(const struct watched *one, DWORD status) {
    struct text line = {0};
    put_text(&line, "{\"event\":\"inner\",\"id\":\"");
    put_text(&line, one->owner->call->id);
    put_text(&line, "\",\"began\":");
    put_number(&line, one->began);
    put_key(&line, "ended");
    put_number(&line, now() - session.began);
    put_key(&line, "name");
    put_json(&line, last_part(one->started.image), strlen(last_part(one->started.image)));
    put_key(&line, "program");
    put_told(&line, &session, one->started.image, strlen(one->started.image));
    put_key(&line, "words");
    put_words(&line, &session, one->argv + 1);
    put_key(&line, "status");
    put_number(&line, (int64_t)status);
    put_text(&line, "}\n");
    append(&session, &line, false);
    forget(&line);
}

static void drop(struct watched *one) {
    for (struct watched **each = &all; *each; each = &(*each)->next)
        if (*each == one) {
            *each = one->next;
            break;
        }
    for (struct watched *each = all; each; each = each->next)
        if (each->owner == one)
            each->owner = NULL;
    forget_started(&one->started);
    forget_list(one->argv);
    free(one); /* its call stays: grandchildren may still write, and a thread reads that */
}

/* Calls whose streams nobody holds any more; `all_of_them`: also the others, for which somebody else reads on. */
static void finish_calls(bool all_of_them) {
    for (struct call **each = &ended_calls; *each;) {
        struct call *call = *each;
        if (!all_of_them && !(has_ended(&call->out) && has_ended(&call->err))) {
            each = &call->next;
            continue;
        }
        *each = call->next;
        finish_stream(&call->out, session.record);
        finish_stream(&call->err, session.record);
        free(call);
    }
}

static void end_call(struct watched *one) {
    struct call *call = one->call;
    tell_end(call, &session, "status", one->last.u.ExitProcess.dwExitCode, (int64_t)one->memory);
    finish_calls(false);
    call->next = ended_calls;
    ended_calls = call;
}

static void see_ended(struct watched *one, const DEBUG_EVENT *event) {
    uint64_t memory = peak_memory(one->process);
    if (memory > one->memory)
        one->memory = memory;
    if (one->owner && one->memory > one->owner->memory)
        one->owner->memory = one->memory;
    if (recording && one->owner && one->owner->call && one->argv &&
        (tool_of(one->started.image) || event->u.ExitProcess.dwExitCode))
        tell_inner(one, event->u.ExitProcess.dwExitCode);
    one->last = *event;
    one->ending = true;
    if (one->call) {
        ask_to_settle(&one->call->out);
        ask_to_settle(&one->call->err);
    }
}

/* Lets those go of whom nothing more is to be passed on. */
static bool release_ended(DWORD root, bool *waiting) {
    *waiting = false;
    for (struct watched *one = all, *next; one; one = next) {
        next = one->next;
        if (!one->ending)
            continue;
        bool last = one->id == root;
        /* Wine lets callers go on before we do: the command may end before the calls that it made are told. */
        if ((last && *waiting) || (one->call && (!has_settled(&one->call->out) || !has_settled(&one->call->err)))) {
            *waiting = true;
            continue;
        }
        if (one->call)
            end_call(one);
        ContinueDebugEvent(one->last.dwProcessId, one->last.dwThreadId, DBG_CONTINUE);
        drop(one);
        if (last)
            return true;
    }
    return false;
}

static DWORD see_exception(struct watched *one, const DEBUG_EVENT *event) {
    DWORD code = event->u.Exception.ExceptionRecord.ExceptionCode;
    if (!one || !one->swaps || (code != EXCEPTION_BREAKPOINT && code != WX86_BREAKPOINT))
        return DBG_EXCEPTION_NOT_HANDLED;
    one->swaps = false;
    swap_streams(one);
    hide_debugger(one);
    return DBG_CONTINUE;
}

#endif
