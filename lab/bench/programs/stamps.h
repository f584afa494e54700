// What ranks have in common: the clocks, lines of clock readings that they append to a file, numbers that the launcher
// gives them, and their end if something is wrong.
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "stamp_names.h"

typedef unsigned long long ull;

enum { EXIT_FAILED = 4 };

static const char *complaint_about = "rank";

__attribute__((noreturn)) static inline void fail(const char *what, long code) {
    fprintf(stderr, "%s: %s (%ld)\n", complaint_about, what, code);
    _exit(EXIT_FAILED);
}

// A number in the environment, as the launcher has set it.
static inline int number(const char *name) {
    const char *text = getenv(name);
    if (!text) complaint_about = name, fail("not in the environment", 0);
    return atoi(text);
}

static inline uint64_t clock_ns(clockid_t clock) {
    struct timespec ts;
    clock_gettime(clock, &ts);
    return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

static inline uint64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

// Whether the line was appended to the file.
__attribute__((format(printf, 2, 3))) static inline int append(const char *path, const char *format, ...) {
    char line[256];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    int file = open(path, O_WRONLY | O_APPEND | O_CLOEXEC), is_whole = file >= 0 && write(file, line, len) == len;
    if (file >= 0) close(file);
    return is_whole;
}

// A rank's line for its first use of the job: the clock when it was executed (by from_exec.c), in main, and after that
// use. Whether it was appended to the file.
static inline int stamp(const char *path, int rank, uint64_t main_ns, uint64_t done_ns) {
    const char *exec_ns = getenv(EXEC_NS);
    return append(path, "%d %s %llu %llu\n", rank, exec_ns ? exec_ns : "-", (ull)main_ns, (ull)done_ns);
}

// What from_exec.c has noted.
static inline uint64_t noted(const char *name) {
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : 0;
}

// Compares numbers for qsort.
static inline int by_number(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}
