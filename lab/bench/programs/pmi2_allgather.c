// pmi2-allgather LIBRARY STEPS
//
// Joins by LIBRARY, a libpmi2 with the startup extensions. For each BYTESxTIMES of STEPS all ranks do TIMES allgathers
// of BYTES bytes each, one after the other; rank 0 prints a line
//   measured BYTES TIMES TOTAL MEDIAN LEAST
// with the times of one allgather in ns. A tenth of the allgathers comes before those that count. Every value is
// compared with the one that its rank must have given.
#include <string.h>
#include <unistd.h>

#include "clock.h"

enum { EXIT_FAILED = 4 };

__attribute__((noreturn)) static void fail(const char *what, long code) {
    fprintf(stderr, "pmi2-allgather: %s (%ld)\n", what, code);
    _exit(EXIT_FAILED);
}

#include "pmi2_calls.h"

static int rank, size;

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
        uint64_t *taken = malloc(times * sizeof *taken);
        memset(value, 'v', bytes);
        for (unsigned i = 0; i < times / 10 + 1; i++) gather(value, bytes, i);
        for (unsigned i = 0; i < times; i++) taken[i] = gather(value, bytes, i);
        if (rank == 0) print_measured(bytes, times, taken);
        free(taken);
        free(value);
    }
    must(lib.PMI2_Finalize(), "PMI2_Finalize");
    return 0;
}
