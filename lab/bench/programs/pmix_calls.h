// The few PMIx calls that are timed, declared by hand after pmix.h of 4.2 (the layout is the same from 3 to 5), from
// the libpmix that is loaded at run time: PMIx need not be installed where this is compiled.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"

enum { PMIX_OK = 0, PMIX_BOOL = 1, PMIX_STRING = 3, PMIX_UINT32 = 14, PMIX_GLOBAL = 3 };
static const uint32_t WILDCARD = UINT32_MAX - 1;

typedef struct { char nspace[256]; uint32_t rank; } proc_t;
typedef struct { uint16_t type; union { bool flag; char *string; uint32_t uint32; uint64_t room[3]; } data; } value_t;
typedef struct { char key[512]; uint32_t flags; value_t value; } info_t;

static int (*pmix_init)(proc_t *, info_t *, size_t);
static int (*pmix_finalize)(info_t *, size_t);
static int (*pmix_put)(uint8_t, const char *, value_t *);
static int (*pmix_commit)(void);
static int (*pmix_fence)(const proc_t *, size_t, const info_t *, size_t);
static int (*pmix_get)(const proc_t *, const char *, const info_t *, size_t, value_t **);

static proc_t me, everybody;
static uint32_t job_size;

static void must(const char *what, int code) {
    if (code == PMIX_OK) return;
    fprintf(stderr, "rank %u: %s: %d\n", me.rank, what, code);
    exit(9);
}

static void *symbol(void *library, const char *name) {
    void *found = library ? dlsym(library, name) : NULL;
    if (!found) {
        fprintf(stderr, "%s: %s\n", name, dlerror());
        exit(8);
    }
    return found;
}

static void open_pmix(void) {
    const char *path = getenv("WIREUP_BENCH_LIBPMIX");
    void *library = dlopen(path ? path : "libpmix.so.2", RTLD_NOW | RTLD_GLOBAL);
    *(void **)&pmix_init = symbol(library, "PMIx_Init");
    *(void **)&pmix_finalize = symbol(library, "PMIx_Finalize");
    *(void **)&pmix_put = symbol(library, "PMIx_Put");
    *(void **)&pmix_commit = symbol(library, "PMIx_Commit");
    *(void **)&pmix_fence = symbol(library, "PMIx_Fence");
    *(void **)&pmix_get = symbol(library, "PMIx_Get");
}

static void join_pmix(void) {
    value_t *value;
    must("PMIx_Init", pmix_init(&me, NULL, 0));
    everybody = me;
    everybody.rank = WILDCARD;
    must("PMIx_Get(job size)", pmix_get(&everybody, "pmix.job.size", NULL, 0, &value));
    job_size = value->data.uint32;
}

static void fence(bool collect) {
    info_t info = {.key = "pmix.collect", .value = {.type = PMIX_BOOL, .data.flag = collect}};
    must("PMIx_Fence", pmix_fence(&everybody, 1, &info, 1));
}
