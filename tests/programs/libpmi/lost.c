/* Rank 3 ends in the middle of a job; the others are told so by every kind of call. */
#include "check.h"
#include "wireup.h"
#include <stdint.h>
#include <unistd.h>

int main(void) {
    wu_ctx *ctx;
    wu_group *world, *all;
    wu_group_info_t info = {.struct_size = sizeof info};
    wu_open_params params = {.struct_size = sizeof params, .field_mask = WU_OPEN_ENGINE, .engine = WU_ENGINE_PEERS};
    IS(wu_open(WU_API, &params, &ctx), WU_OK);
    IS(wu_group_world(ctx, &world), WU_OK);
    IS(wu_group_info(world, &info), WU_OK);
    IS(wu_group_dup(world, &all), WU_OK);
    IS(wu_barrier(world, NULL), WU_OK);
    if (info.rank == 3) {
        fflush(stdout);
        _exit(0);
    }
    IS(wu_barrier(world, NULL), WU_ERR_PEER_LOST);
    IS(wu_lost_rank(ctx), 3);
    IS(wu_barrier(world, NULL), WU_ERR_PEER_LOST);
    uint32_t number;
    IS(wu_recv(all, 3, 0, &number, sizeof number, NULL, NULL), WU_ERR_PEER_LOST);
    IS(strstr(wu_error(ctx), "rank 3") != NULL, 1);
    printf("%u: lost rank 3\n", info.rank);
    fflush(stdout);
    /* Its launcher is not told that this one leaves: it waits for all. */
    _exit(0);
}
