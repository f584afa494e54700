// The functions of libpmi2 and of libwireup that the benchmark calls, looked up in the library that is named on the
// command line.
#include <dlfcn.h>

#include "pmi2.h"
#include "pmix_ext.h"
#include "stamps.h"
#include "wireup.h"

#define PMI2_CALLS(CALL)                                                                                    \
    CALL(PMI2_Init) CALL(PMI2_Finalize) CALL(PMI2_KVS_Put) CALL(PMI2_KVS_Get) CALL(PMI2_KVS_Fence)          \
    CALL(PMIX_KVS_Ifence) CALL(PMIX_Wait) CALL(PMIX_Allgather_len) CALL(PMIX_Iallgather_len)                \
    CALL(PMIX_Allgather_shared) CALL(PMIX_Iallgather_shared) CALL(PMIX_Release_shared) CALL(PMIX_Ring)

#define WU_CALLS(CALL)                                                                                           \
    CALL(wu_open) CALL(wu_close) CALL(wu_error) CALL(wu_counts) CALL(wu_group_world) CALL(wu_group_node)         \
    CALL(wu_group_split) CALL(wu_group_dup) CALL(wu_group_info) CALL(wu_group_free) CALL(wu_barrier)             \
    CALL(wu_bcast) CALL(wu_allgather) CALL(wu_alltoall) CALL(wu_allreduce) CALL(wu_shift) CALL(wu_send)          \
    CALL(wu_recv) CALL(wu_wait) CALL(wu_free)

#define FIELD(name) __typeof__(name) *name;
#define NAME(name) #name,
static struct { PMI2_CALLS(FIELD) } lib;
static struct { WU_CALLS(FIELD) } wu;
static const char *const LIB_NAMES[] = {PMI2_CALLS(NAME) NULL}, *const WU_NAMES[] = {WU_CALLS(NAME) NULL};

static wu_ctx *ctx;

static void load(const char *path, void *places, const char *const *names) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL), **place = places;
    if (!library) fprintf(stderr, "%s\n", dlerror()), fail("cannot load the library", 0);
    for (; *names; names++)
        if (!(*place++ = dlsym(library, *names))) fail(*names, 0);
}

static inline void load_pmi2(const char *path) { load(path, &lib, LIB_NAMES); }

static inline void load_wireup(const char *path) { load(path, &wu, WU_NAMES); }

static inline void must(int code, const char *what) {
    if (code != PMI2_SUCCESS) fail(what, code);
}

static inline void well(int code, const char *what) {
    if (code == WU_OK) return;
    if (ctx) fprintf(stderr, "%s\n", wu.wu_error(ctx));
    fail(what, code);
}
