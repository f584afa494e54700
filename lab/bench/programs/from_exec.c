// from_exec [--waited] PROGRAM [ARGUMENTS..]
//
// Notes the time and becomes the program, which finds the time in its environment; with --waited also how long this
// process has waited for a cpu since it was created. Without a C library, because the time that it takes itself is
// measured with the rest.
#include "bare.h"
#include "stamp_names.h"

enum { AT_FDCWD = -100, CLOCK_MONOTONIC = 1, O_RDONLY = 0, TEXT = 64 };

static unsigned long long now_ns(void) {
    long now[2];
    syscall3(SYS_CLOCK_GETTIME, CLOCK_MONOTONIC, (long)now, 0);
    return now[0] * 1000000000ull + now[1];
}

// The second number of the file; 0 if the kernel does not tell.
static unsigned long long waited_ns(void) {
    char text[TEXT] = "", *second = text;
    long file = syscall4(SYS_OPENAT, AT_FDCWD, (long)"/proc/self/schedstat", O_RDONLY, 0);
    if (file < 0) return 0;
    syscall3(SYS_READ, file, (long)text, sizeof text - 1);
    syscall3(SYS_CLOSE, file, 0, 0);
    while (*second && *second++ != ' ') continue;
    return number(second);
}

// Writes NAME=VALUE.
static char *note(char *text, const char *name, unsigned long long value) {
    char digits[20], *next = text;
    int count = 0;
    while (*name) *next++ = *name++;
    *next++ = '=';
    do digits[count++] = '0' + value % 10;
    while (value /= 10);
    while (count) *next++ = digits[--count];
    *next = 0;
    return text;
}

__attribute__((used, noreturn)) void start(long *stack) {
    unsigned long long start_ns = now_ns();
    char **argv = (char **)(stack + 1), **env = argv + stack[0] + 1;
    char exec[TEXT], waited[TEXT];
    long kept = 0;
    while (env[kept]) kept++;
    char *with[kept + 3], **next = with;
    argv++;
    const char *behind = *argv ? after(*argv, "--waited") : 0;
    if (behind && !*behind) {
        argv++;
        *next++ = note(waited, WAITED_NS, waited_ns());
    }
    if (!*argv) leave(2);
    *next++ = note(exec, EXEC_NS, start_ns);
    // The first of two variables with the same name counts.
    for (; *env; env++) *next++ = *env;
    *next = 0;
    syscall3(SYS_EXECVE, (long)*argv, (long)argv, (long)with);
    static const char problem[] = "from_exec: cannot execute ";
    syscall3(SYS_WRITE, 2, (long)problem, sizeof problem - 1);
    syscall3(SYS_WRITE, 2, (long)*argv, length(*argv));
    syscall3(SYS_WRITE, 2, (long)"\n", 1);
    leave(1);
}
