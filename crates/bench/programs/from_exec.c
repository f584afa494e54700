// from_exec PROGRAM [ARGUMENTS..]
//
// Notes the time and becomes the program, which finds the time in its environment.
#include "first_stamps.h"

int main(int argc, char **argv) {
    char text[32];
    if (argc < 2) return 2;
    snprintf(text, sizeof text, "%llu", (unsigned long long)now_ns());
    if (setenv(EXEC_NS, text, 1)) return 1;
    execv(argv[1], argv + 1);
    perror(argv[1]);
    return 1;
}
