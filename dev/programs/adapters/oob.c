// Drives the adapter's callbacks as UCC does: several exchanges at a time, tested in any order, and one given up.
#include "../libpmi/check.h"

#include "wireup_ucc.h"

enum { EXCHANGES = 3, RANKS_MAX = 64 };

static wu_ctx *ctx;

int main(void) {
    wu_group *world;
    IS(wu_open(WU_API, NULL, &ctx), WU_OK);
    IS(wu_group_world(ctx, &world), WU_OK);
    wu_group_info_t info = {.struct_size = sizeof info};
    IS(wu_group_info(world, &info), WU_OK);
    IS(info.size <= RANKS_MAX, 1);

    ucc_oob_coll_t oob;
    IS(wu_ucc_oob(world, &oob), UCC_OK);
    IS(oob.oob_ep, info.rank);
    IS(oob.n_oob_eps, info.size);

    uint64_t own[EXCHANGES], all[EXCHANGES][RANKS_MAX];
    void *requests[EXCHANGES];
    for (int at = 0; at < EXCHANGES; at++) {
        own[at] = 1000 * (uint64_t)at + info.rank;
        IS(oob.allgather(&own[at], all[at], sizeof own[at], oob.coll_info, &requests[at]), UCC_OK);
    }
    for (int left = EXCHANGES; left > 0;) {
        left = EXCHANGES;
        for (int at = EXCHANGES - 1; at >= 0; at--) {
            ucc_status_t status = oob.req_test(requests[at]);
            IS(status == UCC_OK || status == UCC_INPROGRESS, 1);
            if (status == UCC_OK) left--;
        }
    }
    for (int at = 0; at < EXCHANGES; at++) {
        IS(oob.req_test(requests[at]), UCC_OK);
        IS(oob.req_free(requests[at]), UCC_OK);
        for (uint32_t rank = 0; rank < info.size; rank++) IS(all[at][rank], 1000 * at + rank);
    }
    IS(oob.allgather(&own[0], all[0], sizeof own[0], oob.coll_info, &requests[0]), UCC_OK);
    IS(oob.req_free(requests[0]), UCC_OK);
    IS(wu_barrier(world, NULL), WU_OK);
    IS(wu_group_free(world), WU_OK);
    IS(wu_close(ctx), WU_OK);
    printf("%u of %u: all right\n", info.rank, info.size);
    return 0;
}
