/* Each rank sends to all others, with few connections. Arguments: the number of the transport, the bound of connections. */
#include "check.h"
#include "wireup.h"
#include <dirent.h>
#include <stdint.h>
#include <unistd.h>

#define ROUNDS 6
#define LONG 50000

static wu_ctx *ctx;
static uint32_t bound;

static wu_counts_t counts(void) {
    wu_counts_t now = {.struct_size = sizeof now};
    IS(wu_counts(ctx, &now), WU_OK);
    return now;
}

static uint32_t sockets(void) {
    char path[300], target[20];
    uint32_t count = 0;
    DIR *all = opendir("/proc/self/fd");
    for (struct dirent *one; (one = readdir(all)) != NULL;) {
        snprintf(path, sizeof path, "/proc/self/fd/%s", one->d_name);
        ssize_t len = readlink(path, target, sizeof target);
        count += len > 7 && memcmp(target, "socket:", 7) == 0;
    }
    closedir(all);
    return count;
}

int main(int argc, char **argv) {
    wu_open_params params = {.struct_size = sizeof params, .transport = argc > 1 ? atoi(argv[1]) : 0};
    params.field_mask = WU_OPEN_TRANSPORT | WU_OPEN_CONNECTIONS_MAX;
    params.connections_max = bound = argc > 2 ? atoi(argv[2]) : 3;
    wu_group *world;
    wu_group_info_t info = {.struct_size = sizeof info};
    IS(wu_open(WU_API, &params, &ctx), WU_OK);
    IS(wu_group_world(ctx, &world), WU_OK);
    IS(wu_group_info(world, &info), WU_OK);
    uint32_t sockets_before = sockets(), me = info.rank, size = info.size;

    unsigned char *message = malloc(LONG);
    for (uint32_t round = 0; round < ROUNDS; round++)
        for (uint32_t step = 1; step < size; step++) {
            uint32_t to = (me + step * (round % 2 ? 1 : size - 1)) % size;
            size_t len = step % 5 == 0 ? LONG : 8;
            memset(message, me + round, len);
            IS(wu_send(world, to, 7, message, len, NULL), WU_OK);
            IS(wu_progress(ctx), WU_OK);
            /* Nobody waits for a message yet. */
            IS(counts().connections <= bound, 1);
        }
    IS(wu_fence(ctx), WU_OK);
    for (uint32_t step = 1; step < size; step++)
        for (uint32_t round = 0; round < ROUNDS; round++) {
            uint32_t from = (me + step) % size;
            size_t len;
            IS(wu_recv(world, from, 7, message, LONG, &len, NULL), WU_OK);
            IS(message[0], (unsigned char)(from + round));
            IS(message[len - 1], (unsigned char)(from + round));
        }
    /* The last messages of others wait for connections that this rank agrees to close. */
    IS(wu_fence(ctx), WU_OK);
    wu_counts_t now = counts();
    /* One more for those who listen, two if datagrams request connections; the rest were there before. */
    uint32_t own = params.transport == WU_TRANSPORT_UDP ? 2 : 1;
    while (now.connections > bound || now.closing > 0 || sockets() > sockets_before + own + bound) {
        IS(wu_progress(ctx), WU_OK);
        now = counts();
    }
    IS(wu_group_info(world, &info), WU_OK);
    IS(info.connections <= bound, 1);
    if (size > bound + 1)
        IS(now.closed > 0, 1);
    IS(wu_barrier(world, NULL), WU_OK);
    printf("rank %u: %lu connections closed, %u open: all right\n", me, (unsigned long)now.closed, info.connections);
    IS(wu_group_free(world), WU_OK);
    IS(wu_close(ctx), WU_OK);
    free(message);
    return 0;
}
