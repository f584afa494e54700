// from_exec [--waited] PROGRAM [ARGUMENTS..]
//
// Notes the time and becomes the program, which finds the time in its environment; with --waited also how long this process has waited for
// a cpu since it was created.
#include <string.h>

#include "first_stamps.h"

static int note(const char *name, unsigned long long ns) {
    char text[32];
    snprintf(text, sizeof text, "%llu", ns);
    return setenv(name, text, 1);
}

// The second number of the file; 0 if the kernel does not tell.
static unsigned long long waited_ns(void) {
    char text[64] = "";
    unsigned long long waited = 0;
    int file = open("/proc/self/schedstat", O_RDONLY | O_CLOEXEC);
    if (file >= 0 && read(file, text, sizeof text - 1) > 0) sscanf(text, "%*u %llu", &waited);
    if (file >= 0) close(file);
    return waited;
}

int main(int argc, char **argv) {
    unsigned long long main_ns = now_ns();
    if (argc > 1 && !strcmp(argv[1], "--waited")) {
        argc--, argv++;
        if (note(WAITED_NS, waited_ns())) return 1;
    }
    if (argc < 2) return 2;
    if (note(EXEC_NS, main_ns)) return 1;
    execv(argv[1], argv + 1);
    perror(argv[1]);
    return 1;
}
