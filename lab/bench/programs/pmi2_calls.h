// The functions of libpmi2 that the benchmark calls, looked up in the library that is named on the command line.
#include <dlfcn.h>

#include "pmi2.h"
#include "pmix_ext.h"

#define CALLS(CALL)                                                                                         \
    CALL(PMI2_Init) CALL(PMI2_Finalize) CALL(PMI2_KVS_Put) CALL(PMI2_KVS_Get) CALL(PMI2_KVS_Fence)          \
    CALL(PMIX_KVS_Ifence) CALL(PMIX_Wait) CALL(PMIX_Allgather_len) CALL(PMIX_Iallgather_len)                \
    CALL(PMIX_Allgather_shared) CALL(PMIX_Iallgather_shared) CALL(PMIX_Release_shared) CALL(PMIX_Ring)

static struct {
#define CALL(name) __typeof__(name) *name;
    CALLS(CALL)
#undef CALL
} lib;

static void calls_load(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        fail("cannot load the library", 0);
    }
#define CALL(name) \
    if (!(lib.name = (__typeof__(lib.name))dlsym(library, #name))) fail("the library lacks " #name, 0);
    CALLS(CALL)
#undef CALL
}

static void must(int code, const char *what) {
    if (code != PMI2_SUCCESS) fail(what, code);
}
