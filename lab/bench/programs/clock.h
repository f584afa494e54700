// The clock, and how long each of many repetitions has taken.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline uint64_t now_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

static inline int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

// Prints a line "measured BYTES TIMES TOTAL MEDIAN LEAST", times in ns, as processes with agents' links print it.
static inline void print_measured(unsigned bytes, unsigned times, uint64_t *taken) {
    uint64_t total = 0;
    for (unsigned i = 0; i < times; i++) total += taken[i];
    qsort(taken, times, sizeof *taken, by_value);
    printf("measured %u %u %llu %llu %llu\n", bytes, times, (unsigned long long)total,
           (unsigned long long)taken[times / 2], (unsigned long long)taken[0]);
    fflush(stdout);
}
