// pmix-exchange SIZE collect|rest|direct STAMPS [BYTES [spin]]
// pmix-exchange SIZE allgather STEPS
//
// Joins by PMIx, puts one value, commits, fences twice without data, then
//   collect  fences with data, gets the values of all ranks
//   rest     the same, but rests for a second after that fence, so that other work does not compete with its last steps
//   direct   gets the value of one rank of another node (or the next one), then of all
// and appends one line of clock readings to STAMPS (CLOCK_MONOTONIC, ns):
//
//   rank size pair_bytes fence_enter fence_leave gets_begin gets_end init_ns first_get_ns begin_ns
//
// begin_ns is the beginning of main, init_ns the duration of PMIx_Init. With `direct` the third fence carries no data
// either. With `spin` each rank keeps a second thread busy from before the gets until after them, so that the ranks
// compute while others ask for their values.
//
// allgather  for each BYTESxTIMES of STEPS: puts a value, commits, fences with data, TIMES times; rank 0 prints lines
//              "measured BYTES TIMES TOTAL MEDIAN LEAST", times of one such round in ns, as agents print them
#include <pthread.h>

#include "pmix_calls.h"

static volatile bool spinning = true;

static void *spin(void *none) {
    while (spinning) {}
    return none;
}

static void value_of(uint32_t rank, char *out, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) out[i] = 'a' + (rank * 7 + i) % 26;
    out[bytes] = 0;
}

static void get_one(uint32_t rank, char *expected, size_t bytes) {
    proc_t proc = me;
    value_t *value = NULL;
    proc.rank = rank;
    must("PMIx_Get", pmix_get(&proc, "bench", NULL, 0, &value));
    value_of(rank, expected, bytes);
    if (value->type != PMIX_STRING || strcmp(value->data.string, expected) != 0) must("a wrong value", 1);
}

static void allgather_once(uint32_t round, char *text, size_t bytes) {
    value_of(me.rank + round, text, bytes);
    value_t value = {.type = PMIX_STRING, .data.string = text};
    must("PMIx_Put", pmix_put(PMIX_GLOBAL, "bench", &value));
    must("PMIx_Commit", pmix_commit());
    fence(true);
}

static int allgathers(char *steps) {
    for (char *step = strtok(steps, ","); step; step = strtok(NULL, ",")) {
        unsigned bytes, times;
        if (sscanf(step, "%ux%u", &bytes, &times) != 2 || times == 0) return 2;
        char *text = malloc(bytes + 1);
        uint64_t *taken = malloc(times * sizeof *taken);
        // A tenth of the rounds comes before those that count, as with agents.
        for (unsigned i = 0; i < times / 10 + 1; i++) allgather_once(i, text, bytes);
        for (unsigned i = 0; i < times; i++) {
            uint64_t begin = now_ns();
            allgather_once(i, text, bytes);
            taken[i] = now_ns() - begin;
        }
        if (me.rank == 0) print_measured(bytes, times, taken);
        free(taken);
        free(text);
    }
    must("PMIx_Finalize", pmix_finalize(NULL, 0));
    return 0;
}

int main(int argc, char **argv) {
    uint64_t begin = now_ns();
    if (argc < 4) return 2;
    bool direct = strcmp(argv[2], "direct") == 0;
    size_t bytes = argc > 4 ? strtoul(argv[4], NULL, 10) : 32;
    bool spins = argc > 5 && strcmp(argv[5], "spin") == 0;
    char *text = malloc(bytes + 1);
    open_pmix();
    uint64_t init = now_ns();
    join_pmix();
    init = now_ns() - init;
    if (job_size != (uint32_t)atoi(argv[1])) must("another size", (int)job_size);
    if (strcmp(argv[2], "allgather") == 0) return allgathers(argv[3]);
    value_of(me.rank, text, bytes);
    value_t value = {.type = PMIX_STRING, .data.string = text};
    must("PMIx_Put", pmix_put(PMIX_GLOBAL, "bench", &value));
    must("PMIx_Commit", pmix_commit());
    fence(false);
    fence(false);
    pthread_t thread;
    if (spins) pthread_create(&thread, NULL, spin, NULL);
    uint64_t enter = now_ns();
    fence(!direct);
    uint64_t leave = now_ns();
    if (strcmp(argv[2], "rest") == 0) sleep(1);
    // The rank with the greatest distance in number is on another node, if there is one.
    uint64_t first = now_ns();
    get_one((me.rank + job_size / 2) % job_size, text, bytes);
    uint64_t gets = now_ns();
    first = gets - first;
    for (uint32_t i = 0; i < job_size; i++) get_one((me.rank + i) % job_size, text, bytes);
    uint64_t end = now_ns();
    spinning = false;
    if (spins) pthread_join(thread, NULL);
    fence(false);
    must("PMIx_Finalize", pmix_finalize(NULL, 0));
    char line[256];
    int len = snprintf(line, sizeof line, "%u %u %zu %llu %llu %llu %llu %llu %llu %llu\n", me.rank, job_size, bytes + 5,
                       (unsigned long long)enter, (unsigned long long)leave, (unsigned long long)gets, (unsigned long long)end,
                       (unsigned long long)init, (unsigned long long)first, (unsigned long long)begin);
    int file = open(argv[3], O_WRONLY | O_APPEND | O_CLOEXEC);
    if (file < 0 || write(file, line, len) != len) must("append to the stamps", 1);
    return 0;
}
