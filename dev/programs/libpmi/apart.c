/* Only the first and the last rank use connections; the others call collectives of the agents, and leave. A rank that leaves without having
 * told an address is answered for. */
#include "check.h"
#include "wireup.h"
#include <stdint.h>

int main(void) {
    wu_ctx *ctx;
    wu_group *world;
    wu_group_info_t its = {.struct_size = sizeof its};
    IS(wu_open(WU_API, NULL, &ctx), WU_OK);
    IS(wu_group_world(ctx, &world), WU_OK);
    IS(wu_group_info(world, &its), WU_OK);
    uint32_t last = its.size - 1, other = its.rank ? 0 : last, got = 0;
    uint64_t one = 1, sum = 0;
    int talks = its.rank == 0 || its.rank == last;
    if (talks) IS(wu_send(world, other, 1, &its.rank, sizeof its.rank, NULL), WU_OK);
    IS(wu_barrier(world, NULL), WU_OK);
    if (talks) {
        IS(wu_recv(world, other, 1, &got, sizeof got, NULL, NULL), WU_OK);
        IS(got, other);
    }
    IS(wu_allreduce(world, &one, &sum, 1, WU_U64, WU_SUM, NULL), WU_OK);
    IS(sum, its.size);
    char address[8];
    if (its.rank == 0 && its.size > 2)
        IS(wu_addr_get(ctx, "net", 1, address, sizeof address, NULL, NULL), WU_ERR_NOT_FOUND);
    IS(wu_group_free(world), WU_OK);
    IS(wu_close(ctx), WU_OK);
    printf("%u of %u: all right\n", its.rank, its.size);
    return 0;
}
