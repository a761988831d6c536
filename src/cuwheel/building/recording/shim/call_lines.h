/* The two lines of a call in the record: when it starts, and how it ended.
 *
 * Included behind `struct call`, which each system has its own of: with the same names for what is told here. */
#ifndef CUWHEEL_CALL_LINES_H
#define CUWHEEL_CALL_LINES_H

#include "event.h"

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

/* `how`: what `number` is, a status, a signal or an errno. `memory`: its peak, in bytes. */
static void tell_end(const struct call *call, const struct session *session, const char *how, int64_t number,
                     int64_t memory) {
    struct text line = {0};
    put_text(&line, "{\"event\":\"end\",\"id\":\"");
    put_text(&line, call->id);
    put_text(&line, "\",\"ended\":");
    put_number(&line, now() - session->began);
    put_key(&line, how);
    put_number(&line, number);
    put_key(&line, "memory");
    put_number(&line, memory);
    if (call->out.cut || call->err.cut) {
        put_key(&line, "cut");
        put_text(&line, "true");
    }
    put_text(&line, "}\n");
    append(session, &line, false);
    forget(&line);
}

#endif
