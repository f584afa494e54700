/* Groups that libwireup's agents carry out (a split, collectives, addresses), with values of known lengths, so that the traffic between
 * agents can be checked. */
#include "check.h"
#include "wireup.h"

static void allgather(wu_group *group, uint32_t size, size_t len) {
    char value[64] = "", *rows = malloc(size * len);
    memset(value, 'v', len);
    IS(wu_allgather(group, value, len, rows, NULL), WU_OK);
    IS(memcmp(rows + (size - 1) * len, value, len), 0);
    free(rows);
}

int main(void) {
    wu_group_info_t all = {.struct_size = sizeof all}, local = all, across = all;
    wu_group *world, *node, *alike;
    wu_ctx *ctx;
    IS(wu_open(WU_API, NULL, &ctx), WU_OK);
    IS(wu_group_world(ctx, &world), WU_OK);
    IS(wu_group_node(ctx, &node), WU_OK);
    IS(wu_group_info(world, &all), WU_OK);
    IS(wu_group_info(node, &local), WU_OK);
    IS(wu_group_split(world, local.rank, all.rank, &alike, NULL), WU_OK);
    IS(wu_group_info(alike, &across), WU_OK);
    allgather(alike, across.size, 24);
    IS(wu_barrier(alike, NULL), WU_OK);
    allgather(node, local.size, 8);
    IS(wu_addr_set(ctx, "traffic", "sixteen bytes..", 16), WU_OK);
    IS(wu_barrier(world, NULL), WU_OK);
    for (uint32_t side = 0; side < 2; side++) {
        char address[16];
        size_t len;
        uint32_t neighbour = (all.rank + (side ? 1 : all.size - 1)) % all.size;
        IS(wu_addr_get(ctx, "traffic", neighbour, address, sizeof address, &len, NULL), WU_OK);
        IS(len, 16);
    }
    IS(wu_barrier(world, NULL), WU_OK);
    IS(wu_group_free(alike), WU_OK);
    IS(wu_group_free(node), WU_OK);
    IS(wu_group_free(world), WU_OK);
    IS(wu_close(ctx), WU_OK);
    printf("%u of %u: all right\n", all.rank, all.size);
    return 0;
}
