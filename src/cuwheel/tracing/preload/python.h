/* The Python stack of this thread, as faulthandler writes it: without the interpreter's lock, which torch gives up
 * before it launches. Where Python keeps that function to itself (3.10, 3.13 and later) frames are walked through its
 * public functions, which may be done only while this thread has the lock. */
#define STACK_ROOM 8192

typedef void *py_object;

static bool dumped(char *text, void *state, void (*dump)(int, void *)) {
    int memory = (int)syscall(SYS_memfd_create, "cuwheel", 1u);
    if (memory < 0)
        return false;
    dump(memory, state);
    ssize_t count = pread(memory, text, STACK_ROOM - 1, 0);
    close(memory);
    text[count < 0 ? 0 : count] = 0;
    return count > 0;
}

struct python {
    int (*has_lock)(void);
    py_object (*frame_of)(void *);
    py_object (*code_of)(py_object);
    py_object (*back)(py_object);
    int (*line_of)(py_object);
    py_object (*attribute)(py_object, const char *);
    const char *(*utf8)(py_object);
    void (*release)(py_object);
    void (*forget_error)(void);
};

static void *real_symbol(const char *name);

static bool find_python(struct python *python) {
    python->has_lock = real_symbol("PyGILState_Check");
    python->frame_of = real_symbol("PyThreadState_GetFrame");
    python->code_of = real_symbol("PyFrame_GetCode");
    python->back = real_symbol("PyFrame_GetBack");
    python->line_of = real_symbol("PyFrame_GetLineNumber");
    python->attribute = real_symbol("PyObject_GetAttrString");
    python->utf8 = real_symbol("PyUnicode_AsUTF8");
    python->release = real_symbol("Py_DecRef");
    python->forget_error = real_symbol("PyErr_Clear");
    return python->has_lock && python->frame_of && python->code_of && python->back && python->line_of &&
           python->attribute && python->utf8 && python->release && python->forget_error;
}

static size_t described_frame(char *text, size_t room, const struct python *python, py_object frame) {
    py_object code = python->code_of(frame);
    py_object path = python->attribute(code, "co_filename"), name = python->attribute(code, "co_name");
    const char *path_text = path ? python->utf8(path) : NULL, *name_text = name ? python->utf8(name) : NULL;
    int count = snprintf(text, room, "  File \"%s\", line %d in %s\n", path_text ? path_text : "?",
                         python->line_of(frame), name_text ? name_text : "?");
    if (!path_text || !name_text)
        python->forget_error();
    python->release(path);
    python->release(name);
    python->release(code);
    return count < 0 || (size_t)count >= room ? 0 : (size_t)count;
}

static bool walked(char *text, void *state) {
    struct python python;
    size_t size = 0;
    if (!find_python(&python) || !python.has_lock())
        return false;
    py_object frame = python.frame_of(state);
    for (int depth = 0; frame && depth < 100; depth++) {
        size += described_frame(text + size, STACK_ROOM - size, &python, frame);
        py_object next = python.back(frame);
        python.release(frame);
        frame = next;
    }
    python.release(frame);
    return size > 0;
}

static bool python_stack(char *text) {
    void *(*thread_state)(void) = real_symbol("PyGILState_GetThisThreadState");
    void *state = thread_state ? thread_state() : NULL;
    text[0] = 0;
    if (!state)
        return false;
    void (*dump)(int, void *) = real_symbol("_Py_DumpTraceback");
    return dump ? dumped(text, state, dump) : walked(text, state);
}
