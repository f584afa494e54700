// The functions of libwireup that the benchmark calls, looked up in the library that is named on the command line.
#include <dlfcn.h>

#include "wireup.h"

#define CALLS(CALL)                                                                                              \
    CALL(wu_open) CALL(wu_close) CALL(wu_error) CALL(wu_counts) CALL(wu_group_world) CALL(wu_group_node)         \
    CALL(wu_group_split) CALL(wu_group_dup) CALL(wu_group_info) CALL(wu_group_free) CALL(wu_barrier)             \
    CALL(wu_bcast) CALL(wu_allgather) CALL(wu_alltoall) CALL(wu_allreduce) CALL(wu_shift) CALL(wu_send)          \
    CALL(wu_recv) CALL(wu_wait) CALL(wu_free)

static struct {
#define CALL(name) __typeof__(name) *name;
    CALLS(CALL)
#undef CALL
} wu;

static wu_ctx *ctx;

static void wu_load(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        fail("cannot load the library", 0);
    }
#define CALL(name) \
    if (!(wu.name = (__typeof__(wu.name))dlsym(library, #name))) fail("the library lacks " #name, 0);
    CALLS(CALL)
#undef CALL
}

static void well(int code, const char *what) {
    if (code == WU_OK) return;
    if (ctx) fprintf(stderr, "%s\n", wu.wu_error(ctx));
    fail(what, code);
}
