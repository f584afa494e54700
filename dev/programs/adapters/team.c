// UCC over libwireup: a context and a team of all ranks made by the adapter, and a sum of the ranks by the team. Links
// to UCC.
#include "../libpmi/check.h"

#include "wireup_ucc.h"

static wu_ctx *ctx;

int main(void) {
    wu_group *world;
    IS(wu_open(WU_API, NULL, &ctx), WU_OK);
    IS(wu_group_world(ctx, &world), WU_OK);
    wu_group_info_t info = {.struct_size = sizeof info};
    IS(wu_group_info(world, &info), WU_OK);

    ucc_lib_h lib;
    ucc_lib_params_t lib_params = {.mask = UCC_LIB_PARAM_FIELD_THREAD_MODE, .thread_mode = UCC_THREAD_SINGLE};
    ucc_lib_config_h lib_config;
    IS(ucc_lib_config_read(NULL, NULL, &lib_config), UCC_OK);
    IS(ucc_init(&lib_params, lib_config, &lib), UCC_OK);
    ucc_lib_config_release(lib_config);

    ucc_context_h context;
    ucc_context_params_t context_params = {.mask = UCC_CONTEXT_PARAM_FIELD_OOB};
    IS(wu_ucc_oob(world, &context_params.oob), UCC_OK);
    ucc_context_config_h context_config;
    IS(ucc_context_config_read(lib, NULL, &context_config), UCC_OK);
    IS(ucc_context_create(lib, &context_params, context_config, &context), UCC_OK);
    ucc_context_config_release(context_config);

    ucc_team_h team;
    ucc_team_params_t team_params = {.mask = UCC_TEAM_PARAM_FIELD_OOB};
    IS(wu_ucc_oob(world, &team_params.oob), UCC_OK);
    IS(ucc_team_create_post(&context, 1, &team_params, &team), UCC_OK);
    ucc_status_t status;
    while ((status = ucc_team_create_test(team)) == UCC_INPROGRESS) IS(ucc_context_progress(context) >= 0, 1);
    IS(status, UCC_OK);

    int64_t own = info.rank + 1, sum = 0;
    ucc_coll_args_t args = {
        .coll_type = UCC_COLL_TYPE_ALLREDUCE,
        .src.info = {&own, 1, UCC_DT_INT64, UCC_MEMORY_TYPE_HOST},
        .dst.info = {&sum, 1, UCC_DT_INT64, UCC_MEMORY_TYPE_HOST},
        .op = UCC_OP_SUM,
    };
    ucc_coll_req_h request;
    IS(ucc_collective_init(&args, &request, team), UCC_OK);
    IS(ucc_collective_post(request), UCC_OK);
    while ((status = ucc_collective_test(request)) == UCC_INPROGRESS) ucc_context_progress(context);
    IS(status, UCC_OK);
    IS(ucc_collective_finalize(request), UCC_OK);
    IS(sum, (int64_t)info.size * (info.size + 1) / 2);

    while ((status = ucc_team_destroy(team)) == UCC_INPROGRESS) {}
    IS(status, UCC_OK);
    IS(ucc_context_destroy(context), UCC_OK);
    IS(ucc_finalize(lib), UCC_OK);
    IS(wu_group_free(world), WU_OK);
    IS(wu_close(ctx), WU_OK);
    printf("%u of %u: all right\n", info.rank, info.size);
    return 0;
}
