/* A rank waits for the others outside the library as soon as its blocking call is over: what it has said must arrive without it. */
#include "check.h"
#include "wireup.h"
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int listening_at(struct sockaddr_un *at, socklen_t *len) {
    int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    at->sun_family = AF_UNIX;
    /* The kernel chooses a name. */
    if (listening < 0 || bind(listening, (void *)at, sizeof at->sun_family) || listen(listening, 64)) perror("listen");
    getsockname(listening, (void *)at, len);
    return listening;
}

int main(void) {
    wu_open_params peers = {.struct_size = sizeof peers, .field_mask = WU_OPEN_ENGINE, .engine = WU_ENGINE_PEERS};
    wu_ctx *ctx;
    wu_group *world;
    wu_group_info_t its = {.struct_size = sizeof its};
    IS(wu_open(WU_API, &peers, &ctx), WU_OK);
    IS(wu_group_world(ctx, &world), WU_OK);
    IS(wu_group_info(world, &its), WU_OK);
    struct sockaddr_un at = {0};
    uint32_t len = sizeof at, expected = its.size - 1;
    if (its.rank == 0) {
        int listening = listening_at(&at, &len);
        /* Twice: in a message to each, and in a collective. */
        for (int i = 0; i < 2; i++) {
            for (uint32_t to = 1; i == 0 && to < its.size; to++) IS(wu_send(world, to, 1, &at, len, NULL), WU_OK);
            if (i == 1) IS(wu_bcast(world, &at, sizeof at, 0, NULL), WU_OK);
            for (uint32_t n = 0; n < expected; n++) {
                int one = accept(listening, NULL, NULL);
                IS(one >= 0, 1);
                close(one);
            }
        }
        close(listening);
    } else {
        for (int i = 0; i < 2; i++) {
            size_t got = len;
            if (i == 0) IS(wu_recv(world, 0, 1, &at, sizeof at, &got, NULL), WU_OK);
            else IS(wu_bcast(world, &at, sizeof at, 0, NULL), WU_OK);
            if (i == 0) len = got;
            int one = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
            IS(connect(one, (void *)&at, len), 0);
            close(one);
        }
    }
    IS(wu_close(ctx), WU_OK);
    printf("%u of %u: all right\n", its.rank, its.size);
    return 0;
}
