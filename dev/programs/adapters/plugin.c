// plugin PATH [in-place]: uses a bootstrap plugin of NVSHMEM as the library does, and checks all answers. NVSHMEM's
// plugins do not agree about where a rank's own bytes lie if both buffers are the same; `in-place`: where they are to
// be, as with its plugin for MPI.
#include <dlfcn.h>

#include "../libpmi/check.h"

#include <stdint.h>

enum { ABI = 30000, ROUNDS = 3, RANKS_MAX = 64, LEN = 40 };

typedef struct handle {
    int version, rank, size, rank_on_node, size_of_node;
    int (*allgather)(const void *from, void *to, int len, struct handle *handle);
    int (*alltoall)(const void *from, void *to, int len, struct handle *handle);
    int (*barrier)(struct handle *handle);
    void (*global_exit)(int status);
    int (*finalize)(struct handle *handle);
    int (*show_info)(struct handle *handle, int style);
    void *before_init;
    void *state;
} handle;

// Bytes from a rank to another one, zeros included.
static void fill(unsigned char *bytes, int from, int to, int round) {
    for (int at = 0; at < LEN; at++) bytes[at] = (unsigned char)(at < 4 ? 0 : 7 * from + 31 * to + 101 * round + at);
}

int main(int argc, char **argv) {
    IS(argc == 2 || argc == 3, 1);
    int is_in_place = argc == 3;
    void *library = dlopen(argv[1], RTLD_NOW);
    if (!library) fprintf(stderr, "%s\n", dlerror());
    IS(library != NULL, 1);
    int (*init)(void *, handle *, int) = (int (*)(void *, handle *, int))dlsym(library, "nvshmemi_bootstrap_plugin_init");
    IS(init != NULL, 1);
    handle handle = {0};
    IS(init(NULL, &handle, ABI), 0);
    IS(handle.version / 100 <= ABI / 100, 1);
    IS(handle.size <= RANKS_MAX, 1);
    unsigned char from[RANKS_MAX][LEN], to[RANKS_MAX][LEN], wanted[LEN];
    for (int round = 0; round < ROUNDS; round++) {
        fill(from[0], handle.rank, 0, round);
        IS(handle.allgather(from[0], to, LEN, &handle), 0);
        for (int rank = 0; rank < handle.size; rank++) {
            fill(wanted, rank, 0, round);
            IS(memcmp(to[rank], wanted, LEN), 0);
        }
        memset(to, 0, sizeof to);
        fill(to[handle.rank], handle.rank, 1, round);
        if (is_in_place) IS(handle.allgather(to, to, LEN, &handle), 0);
        for (int rank = 0; rank < handle.size && is_in_place; rank++) {
            fill(wanted, rank, 1, round);
            IS(memcmp(to[rank], wanted, LEN), 0);
        }
        for (int rank = 0; rank < handle.size; rank++) fill(from[rank], handle.rank, rank, round);
        IS(handle.alltoall(from, to, LEN, &handle), 0);
        for (int rank = 0; rank < handle.size; rank++) {
            fill(wanted, rank, handle.rank, round);
            IS(memcmp(to[rank], wanted, LEN), 0);
        }
        IS(handle.barrier(&handle), 0);
    }
    IS(handle.finalize(&handle), 0);
    printf("%d of %d: all right\n", handle.rank, handle.size);
    return 0;
}
