// pmix_exchange SIZE collect|rest|direct STAMPS [BYTES [spin]]
// pmix_exchange SIZE allgather STEPS
//
// Joins by PMIx, puts one value, commits, fences twice without data, then
//   collect  fences with data, gets the values of all ranks
//   rest     the same, but rests for a second after that fence, so that other work does not compete with its last steps
//   direct   gets the value of one rank of another node (or the next one), then of all
// and appends one line of clock readings to STAMPS (CLOCK_MONOTONIC, ns):
//
//   rank size pair_bytes fence_enter fence_leave gets_begin gets_end init_ns first_get_ns begin_ns dataless_enter
//
// begin_ns is the beginning of main, init_ns the duration of PMIx_Init, dataless_enter the clock before the fences
// without data. With `direct` the third fence carries no data either. With `spin` each rank keeps a second thread busy
// from before the gets until after them, so that the ranks compute while others ask for their values.
//
// allgather  for each BYTESxTIMES of STEPS: puts a value, commits, fences with data, TIMES times; rank 0 prints lines
//              "measured BYTES TIMES TOTAL MEDIAN LEAST", times of one such round in ns; at the end each rank to which
//              the last fence has not brought the last value of a rank of another node prints "undelivered: .."
//
// The few PMIx calls are declared by hand after pmix.h of 4.2 (the layout is the same from 3 to 5), from the libpmix
// that is loaded at run time: PMIx need not be installed where this is compiled.
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "stamps.h"

enum { PMIX_OK = 0, PMIX_BOOL = 1, PMIX_STRING = 3, PMIX_UINT32 = 14, PMIX_GLOBAL = 3 };
static const uint32_t WILDCARD = UINT32_MAX - 1;

typedef struct { char nspace[256]; uint32_t rank; } proc_t;
typedef struct { uint16_t type; union { bool flag; char *string; uint32_t uint32; uint64_t room[3]; } data; } value_t;
typedef struct { char key[512]; uint32_t flags; value_t value; } info_t;

static int (*init)(proc_t *, info_t *, size_t), (*finalize)(info_t *, size_t), (*put)(uint8_t, const char *, value_t *);
static int (*commit)(void), (*fence_of)(const proc_t *, size_t, const info_t *, size_t);
static int (*get)(const proc_t *, const char *, const info_t *, size_t, value_t **);

static const struct { const char *name; void *place; } CALLS[] = {
    {"PMIx_Init", &init},     {"PMIx_Finalize", &finalize}, {"PMIx_Put", &put},
    {"PMIx_Commit", &commit}, {"PMIx_Fence", &fence_of},    {"PMIx_Get", &get},
};

static proc_t me, everybody;
static volatile bool spinning = true;

static void must(const char *what, int code) {
    if (code == PMIX_OK) return;
    fprintf(stderr, "rank %u: %s: %d\n", me.rank, what, code);
    exit(9);
}

// Returns the job's size.
static uint32_t join(void) {
    value_t *value;
    must("PMIx_Init", init(&me, NULL, 0));
    everybody = me;
    everybody.rank = WILDCARD;
    must("PMIx_Get(job size)", get(&everybody, "pmix.job.size", NULL, 0, &value));
    return value->data.uint32;
}

static void fence(bool collect) {
    info_t info = {.key = "pmix.collect", .value = {.type = PMIX_BOOL, .data.flag = collect}};
    must("PMIx_Fence", fence_of(&everybody, 1, &info, 1));
}

static void *spin(void *none) {
    while (spinning) continue;
    return none;
}

static void value_of(uint32_t rank, char *out, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) out[i] = 'a' + (rank * 7 + i) % 26;
    out[bytes] = 0;
}

static void put_one(uint32_t number, char *text, size_t bytes) {
    value_of(number, text, bytes);
    value_t value = {.type = PMIX_STRING, .data.string = text};
    must("PMIx_Put", put(PMIX_GLOBAL, "bench", &value));
    must("PMIx_Commit", commit());
}

static void get_one(uint32_t rank, char *expected, size_t bytes) {
    proc_t proc = me;
    value_t *value = NULL;
    proc.rank = rank;
    must("PMIx_Get", get(&proc, "bench", NULL, 0, &value));
    value_of(rank, expected, bytes);
    if (value->type != PMIX_STRING || strcmp(value->data.string, expected) != 0) must("a wrong value", 1);
}

// What a get of this rank's value brings; NULL: the expected value. `local`: this node's server must not ask others.
static const char *missing(uint32_t rank, const char *expected, bool local) {
    info_t info = {.key = "pmix.immediate", .value = {.type = PMIX_BOOL, .data.flag = true}};
    proc_t proc = me;
    value_t *value = NULL;
    proc.rank = rank;
    if (get(&proc, "bench", &info, local, &value) != PMIX_OK || value->type != PMIX_STRING) return "no value";
    return strcmp(value->data.string, expected) == 0 ? NULL : "an older value";
}

// Whether the last fence has brought the last value of the rank with the greatest distance in number: first from the
// server of this node alone (full modex), then by a get for which servers may ask each other (direct modex). No value
// was got before, so none is in a cache.
static void check_delivery(uint32_t rank, const char *expected) {
    const char *by_fence = missing(rank, expected, true), *by_get = missing(rank, expected, false);
    if (by_fence || by_get)
        printf("undelivered: of rank %u, rank %u has %s by the fence (full modex), and gets %s (direct modex)\n", rank,
               me.rank, by_fence ? by_fence : "the value", by_get ? by_get : "the value");
}

static int allgathers(char *steps, uint32_t size) {
    uint32_t far = (me.rank + size / 2) % size;
    char *text = NULL;
    for (char *step = strtok(steps, ","); step; step = strtok(NULL, ",")) {
        unsigned bytes, times;
        if (sscanf(step, "%ux%u", &bytes, &times) != 2 || times == 0) return 2;
        text = realloc(text, bytes + 1);
        uint64_t *taken = malloc(times * sizeof *taken), total = 0;
        // A tenth of the rounds comes before those that count.
        unsigned before = times / 10 + 1;
        for (unsigned i = 0; i < before + times; i++) {
            uint64_t begin = now_ns();
            put_one(me.rank + i, text, bytes);
            fence(true);
            if (i >= before) total += taken[i - before] = now_ns() - begin;
        }
        qsort(taken, times, sizeof *taken, by_number);
        if (me.rank == 0)
            printf("measured %u %u %llu %llu %llu\n", bytes, times, (ull)total, (ull)taken[times / 2], (ull)taken[0]);
        free(taken);
        value_of(far + before + times - 1, text, bytes);
    }
    if (text) check_delivery(far, text);
    fflush(stdout);
    // No rank exits before all have got their values.
    fence(false);
    must("PMIx_Finalize", finalize(NULL, 0));
    return 0;
}

int main(int argc, char **argv) {
    uint64_t begin = now_ns();
    if (argc < 4) return 2;
    bool direct = strcmp(argv[2], "direct") == 0, spins = argc > 5 && strcmp(argv[5], "spin") == 0;
    size_t bytes = argc > 4 ? strtoul(argv[4], NULL, 10) : 32;
    char *text = malloc(bytes + 1);
    const char *path = getenv("WIREUP_BENCH_LIBPMIX");
    void *library = dlopen(path ? path : "libpmix.so.2", RTLD_NOW | RTLD_GLOBAL);
    for (size_t i = 0; i < sizeof CALLS / sizeof *CALLS; i++) {
        void *found = library ? dlsym(library, CALLS[i].name) : NULL;
        if (!found) return fprintf(stderr, "%s: %s\n", CALLS[i].name, dlerror()), 8;
        *(void **)CALLS[i].place = found;
    }
    uint64_t joined = now_ns();
    uint32_t size = join();
    joined = now_ns() - joined;
    if (size != (uint32_t)atoi(argv[1])) must("another size", (int)size);
    if (strcmp(argv[2], "allgather") == 0) return allgathers(argv[3], size);
    put_one(me.rank, text, bytes);
    uint64_t dataless = now_ns();
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
    get_one((me.rank + size / 2) % size, text, bytes);
    uint64_t gets = now_ns();
    first = gets - first;
    for (uint32_t i = 0; i < size; i++) get_one((me.rank + i) % size, text, bytes);
    uint64_t end = now_ns();
    spinning = false;
    if (spins) pthread_join(thread, NULL);
    fence(false);
    must("PMIx_Finalize", finalize(NULL, 0));
    return !append(argv[3], "%u %u %zu %llu %llu %llu %llu %llu %llu %llu %llu\n", me.rank, size, bytes + 5, (ull)enter,
                   (ull)leave, (ull)gets, (ull)end, (ull)joined, (ull)first, (ull)begin, (ull)dataless);
}
