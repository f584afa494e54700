/* Rank 3 ends in the middle of a job; the others are told so by every kind of call. The argument is the number of the transport. */
#include "check.h"
#include "wireup.h"
#include <stdint.h>
#include <unistd.h>

int main(int argc, char **argv) {
    wu_ctx *ctx;
    wu_group *world, *all;
    wu_group_info_t info = {.struct_size = sizeof info};
    wu_open_params params = {.struct_size = sizeof params, .field_mask = WU_OPEN_ENGINE | WU_OPEN_TRANSPORT, .engine = WU_ENGINE_PEERS};
    params.transport = argc > 1 ? atoi(argv[1]) : WU_TRANSPORT_AUTO;
    IS(wu_open(WU_API, &params, &ctx), WU_OK);
    IS(wu_group_world(ctx, &world), WU_OK);
    IS(wu_group_info(world, &info), WU_OK);
    IS(wu_group_dup(world, &all), WU_OK);
    IS(wu_barrier(world, NULL), WU_OK);
    uint32_t number = 0;
    if (info.rank == 3) {
        /* All others have left the barrier. */
        for (uint32_t from = 0; from < info.size; from++)
            if (from != 3)
                IS(wu_recv(world, from, 1, &number, sizeof number, NULL, NULL), WU_OK);
        _exit(0);
    }
    IS(wu_send(world, 3, 1, &number, sizeof number, NULL), WU_OK);
    IS(wu_barrier(world, NULL), WU_ERR_PEER_LOST);
    IS(wu_lost_rank(ctx), 3);
    IS(wu_barrier(world, NULL), WU_ERR_PEER_LOST);
    IS(wu_recv(all, 3, 0, &number, sizeof number, NULL, NULL), WU_ERR_PEER_LOST);
    IS(strstr(wu_error(ctx), "rank 3") != NULL, 1);
    printf("%u: lost rank 3\n", info.rank);
    fflush(stdout);
    /* A goodbye to the server would wait for rank 3. */
    _exit(0);
}
