/* Rank 0 connects to all others before they have called anything; each then finds the connection at the socket that it was started with. */
#include "check.h"
#include "wireup.h"
#include <fcntl.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv) {
    wu_ctx *ctx;
    wu_group *world;
    wu_group_info_t info = {.struct_size = sizeof info};
    wu_open_params params = {.struct_size = sizeof params, .field_mask = WU_OPEN_START, .start = WU_START_ALLGATHER};
    IS(argc, 2);
    IS(wu_open(WU_API, &params, &ctx), WU_OK);
    IS(wu_group_world(ctx, &world), WU_OK);
    IS(wu_group_info(world, &info), WU_OK);
    int listening = wu_listen_fd(ctx);
    IS(listening >= 0, 1);
    if (info.rank == 0) {
        int connected[64];
        IS(info.size <= 64, 1);
        for (uint32_t to = 1; to < info.size; to++) {
            struct sockaddr_storage address;
            uint32_t len = sizeof address;
            IS(wu_listen_address(ctx, to, &address, &len), WU_OK);
            connected[to] = socket(address.ss_family, SOCK_STREAM, 0);
            IS(connect(connected[to], (struct sockaddr *)&address, len), 0);
            IS(write(connected[to], &to, sizeof to), (long)sizeof to);
        }
        /* The others wait for this file before they execute their program. */
        IS(close(open(argv[1], O_WRONLY | O_CREAT, 0600)), 0);
        struct sockaddr_storage address;
        uint32_t len = 1;
        IS(wu_listen_address(ctx, 0, &address, &len), WU_ERR_TRUNCATED);
        IS(len > 1 && len <= sizeof address, 1);
        IS(wu_listen_address(ctx, info.size, &address, &len), WU_ERR_NOT_FOUND);
        for (uint32_t to = 1; to < info.size; to++) {
            uint32_t answer = 0;
            IS(read(connected[to], &answer, sizeof answer), (long)sizeof answer);
            IS(answer, to + 1);
        }
    } else {
        uint32_t number = 0;
        int accepted = accept(listening, NULL, NULL);
        IS(read(accepted, &number, sizeof number), (long)sizeof number);
        IS(number, info.rank);
        number++;
        IS(write(accepted, &number, sizeof number), (long)sizeof number);
    }
    /* The library has made its own network beside that. */
    IS(wu_barrier(world, NULL), WU_OK);
    wu_group *node;
    IS(wu_group_node(ctx, &node), WU_OK);
    IS(wu_barrier(node, NULL), WU_OK);
    IS(wu_group_free(node), WU_OK);
    IS(wu_group_free(world), WU_OK);
    IS(wu_close(ctx), WU_OK);
    printf("%u of %u: all right\n", info.rank, info.size);
    return 0;
}
