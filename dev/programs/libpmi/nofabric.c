/* libfabric cannot be used here: the error text says why. The argument is "peers", so that wu_open fails, or "auto", so that a later call does. */
#include "check.h"
#include "wireup.h"
#include <stdint.h>

int main(int argc, char **argv) {
    wu_ctx *ctx = NULL;
    wu_group *world;
    wu_open_params params = {.struct_size = sizeof params, .field_mask = WU_OPEN_ENGINE | WU_OPEN_TRANSPORT};
    params.transport = WU_TRANSPORT_FABRIC;
    int fails = argc > 1 && !strcmp(argv[1], "peers");
    params.engine = fails ? WU_ENGINE_PEERS : WU_ENGINE_AUTO;
    IS(wu_open(WU_API, &params, &ctx), fails ? WU_ERR_SYSTEM : WU_OK);
    if (!fails) {
        uint32_t number = 0;
        IS(wu_group_world(ctx, &world), WU_OK);
        IS(wu_barrier(world, NULL), WU_OK);
        IS(wu_send(world, 0, 0, &number, sizeof number, NULL), WU_ERR_SYSTEM);
    }
    printf("%s\n", wu_error(ctx));
    if (ctx) {
        IS(wu_group_free(world), WU_OK);
        IS(wu_close(ctx), WU_OK);
    }
    return 0;
}
