// A rank's line for its first use of the job: the clock when it was executed (by from_exec.c), in main, and after that
// use.
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "stamp_names.h"

static inline uint64_t now_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

// Whether the line was appended to the file.
static inline int stamp(const char *path, int rank, uint64_t main_ns, uint64_t done_ns) {
    const char *exec_ns = getenv(EXEC_NS);
    char line[128];
    int len = snprintf(line, sizeof line, "%d %s %llu %llu\n", rank, exec_ns ? exec_ns : "-", (unsigned long long)main_ns,
                       (unsigned long long)done_ns);
    int file = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    int is_whole = file >= 0 && write(file, line, len) == len;
    if (file >= 0) close(file);
    return is_whole;
}
