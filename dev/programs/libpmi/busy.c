/* Rank 0 of 16 computes outside the library until a file exists. Meanwhile rank 3, which has no connection to it, sends it a message, and
 * rank 8 asks it where rank 15 is, to which it sends one. Arguments: the number of the transport, "thread" or "alone", the file.
 *
 * With the thread of the library on rank 0, both are over before rank 7 makes the file, which it does when it has heard so. Without it,
 * neither is, and rank 7 makes the file when it has heard that they wait. (3 and 8 know the address of 7 without rank 0.) */
#include "check.h"
#include "wireup.h"
#include <stdint.h>
#include <unistd.h>

#define CONNECTED 1
#define FOUND 2
#define REPORT 3
/* How often those look that wait without the thread. */
#define LOOKS 25
#define LOOK_MS 20

static wu_ctx *ctx;
static wu_group *world;
static int has_thread;
static char byte;

static volatile uint64_t result;

static void make(const char *path) {
    FILE *file = fopen(path, "w");
    IS(file != NULL && fclose(file) == 0, 1);
}

static void compute(const char *until) {
    while (access(until, F_OK) != 0)
        for (int step = 0; step < 100000; step++)
            result += step;
}

static uint64_t connections(void) {
    wu_counts_t counts = {.struct_size = sizeof counts};
    IS(wu_counts(ctx, &counts), WU_OK);
    return counts.connections;
}

/* Waits until rank 0 has answered, or sees that it does not, and tells rank 7. */
static void report(int (*is_over)(void)) {
    int looks = 0;
    while (has_thread ? !is_over() : looks++ < LOOKS)
        IS(!has_thread && is_over(), 0);
    IS(wu_send(world, 7, REPORT, &byte, 1, NULL), WU_OK);
}

static uint64_t before;
static wu_req *req;

static int is_connected(void) {
    usleep(LOOK_MS * 1000);
    IS(wu_progress(ctx), WU_OK);
    return connections() > before;
}

static int is_sent(void) {
    int code = wu_wait(req, LOOK_MS);
    IS(code == WU_OK || code == WU_ERR_TIMEOUT, 1);
    return code == WU_OK;
}

int main(int argc, char **argv) {
    if (argc < 4)
        return 2;
    has_thread = strcmp(argv[2], "thread") == 0;
    wu_open_params params = {.struct_size = sizeof params, .transport = atoi(argv[1]), .start = WU_START_ALLGATHER};
    params.field_mask = WU_OPEN_TRANSPORT | WU_OPEN_START | (has_thread ? WU_OPEN_THREAD : 0);
    wu_group *all;
    wu_group_info_t info = {.struct_size = sizeof info};
    IS(wu_open(WU_API, &params, &ctx), WU_OK);
    IS(wu_group_world(ctx, &all), WU_OK);
    /* The ranks' own: from here on they have connections. */
    IS(wu_group_dup(all, &world), WU_OK);
    IS(wu_group_info(world, &info), WU_OK);
    IS(info.size, 16);
    IS(wu_fd(ctx) >= 0, !has_thread);
    IS(wu_fence(ctx), WU_OK);

    uint32_t me = info.rank;
    /* Outside the library. */
    char begun[4096];
    snprintf(begun, sizeof begun, "%s.begun", argv[3]);
    while (me != 0 && access(begun, F_OK) != 0)
        usleep(1000);
    if (me == 0) {
        make(begun);
        compute(argv[3]);
        IS(wu_recv(world, 3, CONNECTED, &byte, 1, NULL, NULL), WU_OK);
    } else if (me == 7) {
        IS(wu_recv(world, 3, REPORT, &byte, 1, NULL, NULL), WU_OK);
        IS(wu_recv(world, 8, REPORT, &byte, 1, NULL, NULL), WU_OK);
        make(argv[3]);
    } else if (me == 3) {
        before = connections();
        IS(wu_send(world, 0, CONNECTED, &byte, 1, NULL), WU_OK);
        report(is_connected);
    } else if (me == 8) {
        IS(wu_send(world, 15, FOUND, &byte, 1, &req), WU_OK);
        report(is_sent);
        if (!has_thread)
            IS(wu_wait(req, -1), WU_OK);
    } else if (me == 15) {
        IS(wu_recv(world, 8, FOUND, &byte, 1, NULL, NULL), WU_OK);
    }
    /* Nobody leaves before the others are done. */
    IS(wu_fence(ctx), WU_OK);
    IS(wu_group_free(world), WU_OK);
    IS(wu_close(ctx), WU_OK);
    printf("rank %u: all right\n", me);
    return 0;
}
