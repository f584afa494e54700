// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// A bootstrap plugin of NVSHMEM 3 over libwireup:
//
//     cc -shared -fPIC -O2 -o nvshmem_bootstrap_wireup.so nvshmem_bootstrap_wireup.c $(pkg-config --cflags --libs wireup)
//     NVSHMEM_BOOTSTRAP=plugin NVSHMEM_BOOTSTRAP_PLUGIN=$PWD/nvshmem_bootstrap_wireup.so wireup run -n 16 ./app
//
// Under wireup the plugin has a context of its own, so the program may use MPI and other contexts beside NVSHMEM. Under
// other launchers it takes the only conversation that a process has.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <wireup.h>

// The interface of NVSHMEM's bootstrap plugins, version 3.0.0. The library sets the two numbers of the node itself.
enum { ABI = 30000, ABI_MAJOR = 10000 };

typedef struct handle {
    int version;
    int rank;
    int size;
    int rank_on_node;
    int size_of_node;
    int (*allgather)(const void *from, void *to, int len, struct handle *handle);
    int (*alltoall)(const void *from, void *to, int len, struct handle *handle);
    int (*barrier)(struct handle *handle);
    void (*global_exit)(int status);
    int (*finalize)(struct handle *handle);
    int (*show_info)(struct handle *handle, int style);
    void *before_init;
    void *state;
} handle;

static wu_ctx *ctx;
static wu_group *world;

// Tells what has failed; 0: nothing.
static int failed(const char *what, int code) {
    if (code != WU_OK) fprintf(stderr, "nvshmem_bootstrap_wireup: %s: %s (%d)\n", what, wu_error(ctx), code);
    return code;
}

static int allgather(const void *from, void *to, int len, handle *handle) {
    // In place: this process's bytes lie where they are to be.
    const char *own = from == to ? (const char *)to + (size_t)handle->rank * (size_t)len : from;
    return failed("allgather", wu_allgather(world, own, (size_t)len, to, NULL));
}

static int alltoall(const void *from, void *to, int len, handle *handle) {
    (void)handle;
    return failed("alltoall", wu_alltoall(world, from, (size_t)len, to, NULL));
}

static int barrier(handle *handle) {
    (void)handle;
    return failed("barrier", wu_barrier(world, NULL));
}

// A rank that ends without wu_close fails its job.
static void global_exit(int status) {
    _exit(status ? status : EXIT_FAILURE);
}

static int finalize(handle *handle) {
    (void)handle;
    if (!ctx) return 0;
    int code = wu_group_free(world);
    code = code == WU_OK ? wu_close(ctx) : code;
    ctx = NULL;
    return code;
}

static int show_info(handle *handle, int style) {
    (void)handle, (void)style;
    printf("Bootstrap by libwireup: no options\n");
    return 0;
}

int nvshmemi_bootstrap_plugin_init(void *attributes, handle *handle, int version);

int nvshmemi_bootstrap_plugin_init(void *attributes, handle *handle, int version) {
    (void)attributes;
    if (version / ABI_MAJOR != ABI / ABI_MAJOR) {
        fprintf(stderr, "nvshmem_bootstrap_wireup: NVSHMEM wants version %d of the interface, this is %d\n", version, ABI);
        return WU_ERR_API;
    }
    wu_group_info_t info = {.struct_size = sizeof info};
    wu_open_params params = {.struct_size = sizeof params, .field_mask = WU_OPEN_NAME, .name = "nvshmem"};
    int code = failed("wu_open", wu_open(WU_API, &params, &ctx));
    if (code != WU_OK) return code;
    code = wu_group_world(ctx, &world);
    if (code == WU_OK) code = wu_group_info(world, &info);
    if (code != WU_OK) {
        failed("the group of all ranks", code);
        wu_close(ctx);
        ctx = NULL;
        return code;
    }
    handle->version = version < ABI ? version : ABI;
    handle->rank = (int)info.rank;
    handle->size = (int)info.size;
    handle->allgather = allgather;
    handle->alltoall = alltoall;
    handle->barrier = barrier;
    handle->global_exit = global_exit;
    handle->finalize = finalize;
    handle->show_info = show_info;
    handle->before_init = NULL;
    handle->state = ctx;
    return 0;
}
