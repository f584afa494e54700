// ucx_init: prints the times of opening libucp, of ucp_init and of a first worker (ns); nothing if there is no libucp.
//
// Declared by hand after ucp.h of 1.12 and later; only the fields that the masks select are accessed.
#include <dlfcn.h>

#include "stamps.h"

enum { FIELD_FEATURES = 1, FEATURE_TAG = 1, ROOM = 512 };

int main(void) {
    uint64_t begin = now_ns(), params[ROOM / 8] = {FIELD_FEATURES, FEATURE_TAG}, worker_params[ROOM / 8] = {0};
    void *library = dlopen("libucp.so.0", RTLD_NOW), *context = NULL, *worker = NULL;
    if (!library) return 0;
    int (*init)(unsigned, unsigned, const void *, const void *, void **);
    int (*create)(void *, const void *, void **);
    *(void **)&init = dlsym(library, "ucp_init_version");
    *(void **)&create = dlsym(library, "ucp_worker_create");
    uint64_t opened = now_ns();
    if (!init || !create || init(1, 12, params, NULL, &context) != 0) return 1;
    uint64_t initialised = now_ns();
    if (create(context, worker_params, &worker) != 0) return 1;
    printf("%llu %llu %llu\n", (ull)(opened - begin), (ull)(initialised - opened), (ull)(now_ns() - initialised));
    return 0;
}
