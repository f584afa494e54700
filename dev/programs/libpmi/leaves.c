/* After wu_flush all that a rank has sent arrives while the rank waits for something outside the library; what it
 * sends before wu_close arrives too, although the receiver is outside the library for a while. */
#include "check.h"
#include "wireup.h"
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* More than the system takes of a connection at once. */
#define LONG_LEN (16 << 20)

static struct sockaddr_un at;
static socklen_t len = sizeof at;
static int listening = -1;

/* The kernel chooses the name. */
static void listen_somewhere(void) {
    listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    at.sun_family = AF_UNIX;
    IS(bind(listening, (void *)&at, sizeof at.sun_family), 0);
    IS(listen(listening, 64), 0);
    IS(getsockname(listening, (void *)&at, &len), 0);
}

/* Outside the library, until all others have called. */
static void await(uint32_t callers) {
    for (uint32_t n = 0; n < callers; n++) {
        int one = accept(listening, NULL, NULL);
        IS(one >= 0, 1);
        close(one);
    }
}

static void call(void) {
    int one = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    IS(connect(one, (void *)&at, len), 0);
    close(one);
}

int main(int argc, char **argv) {
    wu_open_params peers = {.struct_size = sizeof peers, .engine = WU_ENGINE_PEERS};
    peers.field_mask = WU_OPEN_ENGINE | WU_OPEN_TRANSPORT;
    peers.transport = argc > 1 ? atoi(argv[1]) : WU_TRANSPORT_TCP;
    wu_ctx *ctx;
    wu_group *world;
    wu_group_info_t its = {.struct_size = sizeof its};
    IS(wu_open(WU_API, &peers, &ctx), WU_OK);
    IS(wu_flush(ctx, -1), WU_OK);
    IS(wu_group_world(ctx, &world), WU_OK);
    IS(wu_group_info(world, &its), WU_OK);
    if (its.rank == 0) listen_somewhere();
    /* A collective that needs connections; all but the last rank pass it on. */
    IS(wu_bcast(world, &at, sizeof at, 0, NULL), WU_OK);
    IS(wu_bcast(world, &len, sizeof len, 0, NULL), WU_OK);
    IS(wu_flush(ctx, -1), WU_OK);
    if (its.rank == 0) await(its.size - 1);
    else call();
    /* A long message, to a rank that has no connection to this one. */
    char *message = calloc(LONG_LEN, 1);
    uint32_t last = its.size - 1;
    if (its.rank == 0 && last > 0) {
        IS(wu_send(world, last, 1, message, LONG_LEN, NULL), WU_OK);
        IS(wu_flush(ctx, -1), WU_OK);
        await(1);
    } else if (its.rank == last && last > 0) {
        IS(wu_recv(world, 0, 1, message, LONG_LEN, NULL, NULL), WU_OK);
        call();
    }
    if (its.rank == 0 && last > 0) {
        IS(wu_send(world, last, 2, message, LONG_LEN, NULL), WU_OK);
    } else if (its.rank == last && last > 0) {
        sleep(2);
        IS(wu_recv(world, 0, 2, message, LONG_LEN, NULL, NULL), WU_OK);
    }
    free(message);
    IS(wu_group_free(world), WU_OK);
    IS(wu_close(ctx), WU_OK);
    printf("%u of %u: all right\n", its.rank, its.size);
    return 0;
}
