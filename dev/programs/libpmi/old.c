/* A client that was compiled with the first header, and whose structs are shorter than today's. */
#include "check.h"
#include "old/wireup.h"

/* What lies behind a struct of this client is not the library's. */
enum { GUARD = 0x55aa55aa };
static struct {
    wu_open_params params;
    int guard[4];
} opening;
static struct {
    wu_group_info_t info;
    int guard[4];
} asked = {{.struct_size = sizeof(wu_group_info_t)}, {GUARD, GUARD, GUARD, GUARD}};

int main(void) {
    wu_ctx *ctx;
    wu_group *world, *half;
    IS(wu_version() >= WU_API, 1);
    /* Padding, where today's struct has fields, has any value. */
    memset(&opening, 0x55, sizeof opening);
    opening.params.struct_size = sizeof opening.params;
    opening.params.field_mask = WU_OPEN_ENGINE;
    opening.params.engine = WU_ENGINE_PEERS;
    IS(wu_open(WU_API, &opening.params, &ctx), WU_OK);
    IS(wu_group_world(ctx, &world), WU_OK);
    IS(wu_group_info(world, &asked.info), WU_OK);
    for (int at = 0; at < 4; at++) {
        IS(opening.guard[at], 0x55555555);
        IS(asked.guard[at], GUARD);
    }
    IS(asked.info.engine, WU_ENGINE_PEERS);
    uint32_t rank = asked.info.rank, size = asked.info.size, sum = 0;
    uint32_t *all = malloc(size * sizeof *all);
    IS(wu_group_split(world, rank % 2, 0, &half, NULL), WU_OK);
    IS(wu_allgather(world, &rank, sizeof rank, all, NULL), WU_OK);
    for (uint32_t at = 0; at < size; at++)
        sum += all[at] == at;
    IS(sum, size);
    uint64_t one = 1, members = 0;
    IS(wu_allreduce(half, &one, &members, 1, WU_U64, WU_SUM, NULL), WU_OK);
    IS(wu_group_info(half, &asked.info), WU_OK);
    IS(members, asked.info.size);
    wu_req *req;
    size_t len;
    uint32_t left = (rank + size - 1) % size, arrived;
    IS(wu_recv(world, left, 3, &arrived, sizeof arrived, &len, &req), WU_OK);
    IS(wu_send(world, (rank + 1) % size, 3, &rank, sizeof rank, NULL), WU_OK);
    IS(wu_wait(req, -1), WU_OK);
    IS(arrived, left);
    IS(len, sizeof arrived);
    char key[32], value[32];
    sprintf(key, "old%u", rank);
    IS(wu_put(ctx, key, "value"), WU_OK);
    IS(wu_fence(ctx), WU_OK);
    IS(wu_get(ctx, key, value, sizeof value), WU_OK);
    SAME(value, "value");
    free(all);
    IS(wu_group_free(half), WU_OK);
    IS(wu_group_free(world), WU_OK);
    IS(wu_close(ctx), WU_OK);
    printf("%u of %u: all right\n", rank, size);
    return 0;
}
