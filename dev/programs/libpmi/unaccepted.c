/* How sockets of ranks begin and end. `leave`: rank 0 connects to rank 1, which ends without accepting. `find`: rank 1 sees no other
   connection than that of this job. `gone`: connects to rank 1 are refused soon after it has ended. */
#include "check.h"
#include "wireup.h"
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Returns the connection, or -1. */
static int connect_to(wu_ctx *ctx, uint32_t rank) {
    struct sockaddr_storage address;
    uint32_t len = sizeof address;
    IS(wu_listen_address(ctx, rank, &address, &len), WU_OK);
    int connection = socket(address.ss_family, SOCK_STREAM, 0);
    if (connect(connection, (struct sockaddr *)&address, len) == 0)
        return connection;
    int problem = errno;
    close(connection);
    errno = problem;
    return -1;
}

static void leave(wu_ctx *ctx, uint32_t rank) {
    for (int i = 0; rank == 0 && i < 3; i++) {
        int connection = connect_to(ctx, 1);
        IS(connection >= 0, 1);
        IS(write(connection, "old", 3), 3);
    }
}

static void find(wu_ctx *ctx, uint32_t rank) {
    char text[4] = "";
    int listening = wu_listen_fd(ctx);
    if (rank == 0) {
        int connection = connect_to(ctx, 1);
        IS(write(connection, "new", 3), 3);
        IS(read(connection, text, 3), 3);
        IS(memcmp(text, "end", 3), 0);
    } else if (rank == 1) {
        int connection = accept(listening, NULL, NULL);
        IS(read(connection, text, 3), 3);
        IS(memcmp(text, "new", 3), 0);
        IS(fcntl(listening, F_SETFL, O_NONBLOCK), 0);
        IS(accept(listening, NULL, NULL), -1);
        IS(write(connection, "end", 3), 3);
    }
}

static void gone(wu_ctx *ctx, uint32_t rank) {
    const struct timespec pause = {.tv_nsec = 2000000};
    int connection = 0;
    while (rank == 0 && (connection = connect_to(ctx, 1)) >= 0) {
        close(connection);
        nanosleep(&pause, NULL);
    }
    if (rank == 0)
        IS(errno, ECONNREFUSED);
}

int main(int argc, char **argv) {
    wu_ctx *ctx;
    wu_group *world;
    wu_group_info_t info = {.struct_size = sizeof info};
    wu_open_params params = {.struct_size = sizeof params, .field_mask = WU_OPEN_START, .start = WU_START_ALLGATHER};
    IS(argc, 2);
    IS(wu_open(WU_API, &params, &ctx), WU_OK);
    IS(wu_group_world(ctx, &world), WU_OK);
    IS(wu_group_info(world, &info), WU_OK);
    (*argv[1] == 'l' ? leave : *argv[1] == 'f' ? find : gone)(ctx, info.rank);
    /* By the agents, not by connections. */
    if (*argv[1] == 'l')
        IS(wu_barrier(world, NULL), WU_OK);
    IS(wu_group_free(world), WU_OK);
    IS(wu_close(ctx), WU_OK);
    printf("%u of %u: all right\n", info.rank, info.size);
    return 0;
}
