// pmi-bare SIZE: pmi-init without a C library: init, barrier, finalize by bare system calls.
//
// A static glibc program spends several hundred microseconds on page faults before main, this one almost nothing; so the launcher accounts
// for more of a job's time.
#if defined(__x86_64__)
enum { SYS_READ = 0, SYS_WRITE = 1, SYS_EXIT = 231 };
static long syscall3(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}
__asm__(".globl _start\n_start: mov %rsp, %rdi\n and $-16, %rsp\n call start\n");
#elif defined(__aarch64__)
enum { SYS_READ = 63, SYS_WRITE = 64, SYS_EXIT = 94 };
static long syscall3(long number, long a, long b, long c) {
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
}
__asm__(".globl _start\n_start: mov x0, sp\n bl start\n");
#else
#error "pmi_bare.c knows the system calls of x86_64 and aarch64"
#endif

enum { EXIT_NO_PMI = 3, EXIT_PMI_ERROR = 4, EINTR_NEGATIVE = -4 };

static void leave(int status) {
    for (;;) syscall3(SYS_EXIT, status, 0, 0);
}

static int number(const char *text) {
    int value = 0;
    while (*text >= '0' && *text <= '9') value = value * 10 + (*text++ - '0');
    return value;
}

// What follows `prefix` in `text`, or null.
static const char *after(const char *text, const char *prefix) {
    while (*prefix)
        if (*text++ != *prefix++) return 0;
    return text;
}

// Sends one request and reads one reply line, of which only the command word is checked.
static void ask(int fd, const char *request, const char *expect) {
    static char reply[1024];
    long len = 0, sent = 0, n;
    while (request[len]) len++;
    for (; sent < len; sent += n > 0 ? n : 0)
        if ((n = syscall3(SYS_WRITE, fd, (long)request + sent, len - sent)) <= 0 && n != EINTR_NEGATIVE)
            leave(EXIT_PMI_ERROR);
    for (len = 0; len == 0 || reply[len - 1] != '\n'; len += n > 0 ? n : 0)
        if ((n = syscall3(SYS_READ, fd, (long)reply + len, sizeof reply - 1 - len)) <= 0 && n != EINTR_NEGATIVE)
            leave(EXIT_PMI_ERROR);
    reply[len] = 0;
    if (!after(reply, expect)) leave(EXIT_PMI_ERROR);
}

// The stack at entry: argc, argv, 0, envp, 0.
__attribute__((used, noreturn)) void start(long *stack) {
    long argc = stack[0];
    char **argv = (char **)(stack + 1), **env = argv + argc + 1;
    int fd = -1, size = -1;
    for (; *env; env++) {
        const char *value;
        if ((value = after(*env, "PMI_FD="))) fd = number(value);
        if ((value = after(*env, "PMI_SIZE="))) size = number(value);
    }
    if (argc != 2 || fd < 0 || size != number(argv[1])) leave(EXIT_NO_PMI);
    ask(fd, "cmd=init pmi_version=1 pmi_subversion=1\n", "cmd=response_to_init ");
    ask(fd, "cmd=barrier_in\n", "cmd=barrier_out");
    ask(fd, "cmd=finalize\n", "cmd=finalize_ack");
    leave(0);
    __builtin_unreachable();
}
