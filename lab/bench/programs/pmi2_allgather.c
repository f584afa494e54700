// pmi2-allgather LIBRARY STEPS
//
// Joins by LIBRARY, a libpmi2 with the startup extensions. For each BYTESxTIMES of STEPS all ranks do TIMES allgathers
// of BYTES bytes each, one after the other; rank 0 prints a line
//   measured BYTES TIMES TOTAL MEDIAN LEAST
// with the times of one allgather in ns. A tenth of the allgathers comes before those that count. Every value is
// compared with the one that its rank must have given.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_FAILED = 4 };

__attribute__((noreturn)) static void fail(const char *what, long code) {
    fprintf(stderr, "pmi2-allgather: %s (%ld)\n", what, code);
    _exit(EXIT_FAILED);
}

#include "pmi2_calls.h"

static int rank, size;

static uint64_t now_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

static int by_length(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

// The value's first byte names the rank and the round; the others are the same for all.
static char mark(int of, unsigned round) { return 'a' + (of * 7 + round) % 26; }

static uint64_t gather(char *value, unsigned bytes, unsigned round) {
    const void *rows;
    value[0] = mark(rank, round);
    uint64_t begin = now_ns();
    must(lib.PMIX_Allgather_shared(value, bytes, &rows), "PMIX_Allgather_shared");
    uint64_t taken = now_ns() - begin;
    for (int of = 0; of < size; of++)
        if (((const char *)rows)[(size_t)of * bytes] != mark(of, round)) fail("a wrong value of rank", of);
    must(lib.PMIX_Release_shared(rows), "PMIX_Release_shared");
    return taken;
}

int main(int argc, char **argv) {
    if (argc != 3) fail("usage: pmi2-allgather LIBRARY STEPS", argc);
    int spawned, appnum;
    calls_load(argv[1]);
    must(lib.PMI2_Init(&spawned, &size, &rank, &appnum), "PMI2_Init");
    for (char *step = strtok(argv[2], ","); step; step = strtok(NULL, ",")) {
        unsigned bytes, times;
        if (sscanf(step, "%ux%u", &bytes, &times) != 2 || bytes == 0 || times == 0) fail("steps are BYTESxTIMES,..", 0);
        char *value = calloc(bytes + 1, 1);
        uint64_t *taken = malloc(times * sizeof *taken), total = 0;
        memset(value, 'v', bytes);
        for (unsigned i = 0; i < times / 10 + 1; i++) gather(value, bytes, i);
        for (unsigned i = 0; i < times; i++) total += taken[i] = gather(value, bytes, i);
        qsort(taken, times, sizeof *taken, by_length);
        if (rank == 0) {
            printf("measured %u %u %llu %llu %llu\n", bytes, times, (unsigned long long)total,
                   (unsigned long long)taken[times / 2], (unsigned long long)taken[0]);
        }
        free(taken);
        free(value);
    }
    must(lib.PMI2_Finalize(), "PMI2_Finalize");
    return 0;
}
