/* A second copy of the library in one process cannot join the job, and does not disturb the first one. */
#define _GNU_SOURCE
#include "check.h"
#include "wireup.h"
#include <dlfcn.h>
#include <stdint.h>

int main(void) {
    wu_ctx *ctx, *other = NULL;
    wu_group *world;
    wu_group_info_t its = {.struct_size = sizeof its};
    IS(wu_open(WU_API, NULL, &ctx), WU_OK);
    void *copy = dlmopen(LM_ID_NEWLM, "libwireup.so.0", RTLD_NOW);
    IS(copy != NULL, 1);
    int (*open)(uint32_t, const wu_open_params *, wu_ctx **) = (int (*)(uint32_t, const wu_open_params *, wu_ctx **))dlsym(copy, "wu_open");
    const char *(*error)(wu_ctx *) = (const char *(*)(wu_ctx *))dlsym(copy, "wu_error");
    IS(open != NULL && open != wu_open, 1);
    IS(open(WU_API, NULL, &other), WU_ERR_SERVER);
    IS(strstr(error(NULL), "another library of this process") != NULL, 1);
    IS(wu_group_world(ctx, &world), WU_OK);
    IS(wu_group_info(world, &its), WU_OK);
    uint64_t one = 1, sum = 0;
    IS(wu_allreduce(world, &one, &sum, 1, WU_U64, WU_SUM, NULL), WU_OK);
    IS(sum, its.size);
    IS(wu_close(ctx), WU_OK);
    printf("%u of %u: all right\n", its.rank, its.size);
    return 0;
}
