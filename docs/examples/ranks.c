/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * From the start of a process to a message to any other, with libwireup.
 *
 *   cc ranks.c -o ranks $(pkg-config --cflags --libs wireup)
 *   wireup run -n 16 ./ranks
 */
#include <stdio.h>
#include <stdlib.h>
#include <wireup.h>

static wu_ctx *ctx;

static void check(int status) {
    if (status != WU_OK) {
        fprintf(stderr, "libwireup: %s\n", wu_error(ctx));
        exit(1);
    }
}

int main(void) {
    wu_group *world;
    wu_group_info_t info = {.struct_size = sizeof info};
    check(wu_open(WU_API, NULL, &ctx));
    check(wu_group_world(ctx, &world));
    check(wu_group_info(world, &info));

    uint32_t to = (info.rank + info.size / 2) % info.size, from = (info.rank + (info.size + 1) / 2) % info.size;
    uint32_t number = info.rank, arrived;
    uint64_t one, all;
    check(wu_send(world, to, 0, &number, sizeof number, NULL));
    check(wu_recv(world, from, 0, &arrived, sizeof arrived, NULL, NULL));
    one = arrived == from;
    check(wu_allreduce(world, &one, &all, 1, WU_U64, WU_SUM, NULL));
    if (info.rank == 0)
        printf("%llu of %u messages arrived\n", (unsigned long long)all, info.size);
    return wu_close(ctx) == WU_OK ? 0 : 1;
}
