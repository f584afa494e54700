// pmi-bare SIZE: pmi-init without a C library: init, barrier, finalize by bare system calls.
// It takes so little time itself that most of a job's time is the launcher's.
#include "bare.h"

enum { EXIT_NO_PMI = 3, EXIT_PMI_ERROR = 4, EINTR_NEGATIVE = -4 };

// Sends one request and reads one reply line, of which only the command word is checked.
static void ask(long fd, const char *request, const char *expect) {
    static char reply[1024];
    long len = length(request), sent = 0, n;
    for (; sent < len; sent += n > 0 ? n : 0)
        if ((n = syscall3(SYS_WRITE, fd, (long)request + sent, len - sent)) <= 0 && n != EINTR_NEGATIVE)
            leave(EXIT_PMI_ERROR);
    for (len = 0; len == 0 || reply[len - 1] != '\n'; len += n > 0 ? n : 0)
        if ((n = syscall3(SYS_READ, fd, (long)reply + len, sizeof reply - 1 - len)) <= 0 && n != EINTR_NEGATIVE)
            leave(EXIT_PMI_ERROR);
    reply[len] = 0;
    if (!after(reply, expect)) leave(EXIT_PMI_ERROR);
}

__attribute__((used, noreturn)) void start(long *stack) {
    long argc = stack[0];
    char **argv = (char **)(stack + 1), **env = argv + argc + 1;
    long fd = -1, size = -1;
    for (; *env; env++) {
        const char *value;
        if ((value = after(*env, "PMI_FD="))) fd = number(value);
        if ((value = after(*env, "PMI_SIZE="))) size = number(value);
    }
    if (argc != 2 || fd < 0 || size != (long)number(argv[1])) leave(EXIT_NO_PMI);
    ask(fd, "cmd=init pmi_version=1 pmi_subversion=1\n", "cmd=response_to_init ");
    ask(fd, "cmd=barrier_in\n", "cmd=barrier_out");
    ask(fd, "cmd=finalize\n", "cmd=finalize_ack");
    leave(0);
}
