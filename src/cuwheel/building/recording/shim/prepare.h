/* What a call is run with: nvcc with the plan's architectures, a launcher, timed; caches with a log. */
#ifndef CUWHEEL_PREPARE_H
#define CUWHEEL_PREPARE_H

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include "archs.h"
#include "event.h"
#include "relay.h"

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

/* nvcc fails where it cannot write its times: a build may clean up the folder that its record is in, or fill the disk. */
#define ROOM_FOR_TIMES (4 << 20)
static bool can_be_written(const char *record, const char *folder) {
    char path[PATH_ROOM + 32];
    int length = snprintf(path, sizeof path, "%s%s", record, folder);
    struct statvfs disk;
    struct rlimit most;
    return length > 0 && (size_t)length < sizeof path && access(path, W_OK) == 0 && statvfs(path, &disk) == 0 &&
           (uint64_t)disk.f_bavail * disk.f_frsize >= ROOM_FOR_TIMES &&
           getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur >= ROOM_FOR_TIMES;
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

#endif
