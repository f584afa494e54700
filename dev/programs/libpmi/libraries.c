/* Several libraries in one process, each with a context of its own name, opened in another order on each rank, and used by threads at the same
 * time; beside them one without a name. */
#include "check.h"
#include "wireup.h"
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define LIBRARIES 4
#define ROUNDS 20

struct library {
    char name[16];
    wu_ctx *ctx;
    uint64_t sum;
    pthread_t thread;
};

static wu_ctx *opened(const char *name) {
    wu_open_params params = {.struct_size = sizeof params, .field_mask = WU_OPEN_NAME, .name = name};
    wu_ctx *ctx;
    IS(wu_open(WU_API, &params, &ctx), WU_OK);
    return ctx;
}

/* What a library does: its own collectives, messages, addresses and pairs. */
static void *work(void *of) {
    struct library *own = of;
    wu_group *world, *pairs;
    wu_group_info_t its = {.struct_size = sizeof its};
    IS(wu_group_world(own->ctx, &world), WU_OK);
    IS(wu_group_info(world, &its), WU_OK);
    uint32_t right = (its.rank + 1) % its.size, left = (its.rank + its.size - 1) % its.size;
    /* Libraries call different numbers of functions. */
    uint32_t rounds = ROUNDS + (own->name[3] - '0') * 7;
    for (uint64_t round = 0; round < rounds; round++) {
        uint64_t sum = 0, all[3], values[3] = {round, own->name[3], its.rank};
        IS(wu_allreduce(world, values, all, 3, WU_U64, WU_SUM, NULL), WU_OK);
        IS(all[0], round * its.size);
        IS(all[1], (uint64_t)own->name[3] * its.size);
        uint64_t to[2] = {own->name[3], round}, from[2];
        IS(wu_send(world, right, 3, to, sizeof to, NULL), WU_OK);
        IS(wu_recv(world, left, 3, from, sizeof from, NULL, NULL), WU_OK);
        IS(from[0], to[0]);
        IS(from[1], round);
        own->sum += sum;
    }
    IS(wu_group_split(world, its.rank % 2, 0, &pairs, NULL), WU_OK);
    IS(wu_barrier(pairs, NULL), WU_OK);
    IS(wu_group_free(pairs), WU_OK);

    char text[64], wanted[64], key[32];
    size_t len;
    snprintf(text, sizeof text, "%s of %u", own->name, its.rank);
    snprintf(wanted, sizeof wanted, "%s of %u", own->name, right);
    IS(wu_addr_set(own->ctx, "net", text, strlen(text) + 1), WU_OK);
    IS(wu_addr_set(own->ctx, "net", text, strlen(text) + 1), WU_ERR_EXISTS);
    IS(wu_addr_get(own->ctx, "net", right, text, sizeof text, &len, NULL), WU_OK);
    SAME(text, wanted);
    snprintf(key, sizeof key, "key%u", its.rank);
    snprintf(text, sizeof text, "%s of %u", own->name, its.rank);
    IS(wu_put(own->ctx, key, text), WU_OK);
    IS(wu_get(own->ctx, key, text, sizeof text), WU_ERR_NOT_FOUND);
    IS(wu_fence(own->ctx), WU_OK);
    snprintf(key, sizeof key, "key%u", right);
    IS(wu_get(own->ctx, key, text, sizeof text), WU_OK);
    SAME(text, wanted);
    IS(wu_group_free(world), WU_OK);
    return NULL;
}

/* What is no request to join is dropped: too short, too long, another magic number, a rank that does not exist. */
static void nonsense(void) {
    const char *agent = getenv("WIREUP_AGENT");
    if (!agent)
        return;
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t len = strlen(strchr(agent, ':') + 1);
    memcpy(to.sun_path + 1, strchr(agent, ':') + 1, len);
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    char bytes[4096] = "\1\0\0\0\377\377wu1 name";
    size_t lens[] = {0, 1, 9, 14, 40, sizeof bytes};
    for (unsigned at = 0; at < sizeof lens / sizeof *lens; at++)
        IS(sendto(fd, bytes, lens[at], 0, (struct sockaddr *)&to, offsetof(struct sockaddr_un, sun_path) + 1 + len), lens[at]);
    close(fd);
}

int main(void) {
    nonsense();
    wu_ctx *own, *other = NULL;
    wu_group *world;
    wu_group_info_t its = {.struct_size = sizeof its};
    struct library all[LIBRARIES];
    uint32_t first = getenv("WIREUP_RANK") ? atoi(getenv("WIREUP_RANK")) % LIBRARIES : 0;
    for (uint32_t at = 0; at < LIBRARIES; at++) {
        struct library *one = &all[(first + at) % LIBRARIES];
        snprintf(one->name, sizeof one->name, "lib%u", (first + at) % LIBRARIES);
        one->ctx = opened(one->name), one->sum = 0;
        if (at == first)
            IS(wu_open(WU_API, NULL, &own), WU_OK);
    }

    /* What is refused disturbs nothing. */
    wu_open_params params = {.struct_size = sizeof params, .field_mask = WU_OPEN_NAME, .name = "lib0"};
    IS(wu_open(WU_API, &params, &other), WU_ERR_EXISTS);
    IS(strstr(wu_error(NULL), "this name") != NULL, 1);
    IS(wu_open(WU_API, NULL, &other), WU_ERR_STATE);
    IS(strstr(wu_error(NULL), "WU_OPEN_NAME") != NULL, 1);
    const char *wrong[] = {"", "a b", "a/b", "0123456789012345678901234567890"};
    for (unsigned at = 0; at < sizeof wrong / sizeof *wrong; at++) {
        params.name = wrong[at];
        IS(wu_open(WU_API, &params, &other), WU_ERR_ARG);
        IS(strstr(wu_error(NULL), "parameter") != NULL, 1);
    }
    params.name = NULL;
    IS(wu_open(WU_API, &params, &other), WU_ERR_ARG);
    params.name = "ring", params.field_mask |= WU_OPEN_START, params.start = WU_START_RING;
    IS(wu_open(WU_API, &params, &other), WU_ERR_ARG);

    for (uint32_t at = 0; at < LIBRARIES; at++)
        IS(pthread_create(&all[at].thread, NULL, work, &all[at]), 0);
    IS(wu_group_world(own, &world), WU_OK);
    IS(wu_group_info(world, &its), WU_OK);
    for (uint64_t one = 1, sum = 0, round = 0; round < ROUNDS; round++) {
        IS(wu_allreduce(world, &one, &sum, 1, WU_U64, WU_SUM, NULL), WU_OK);
        IS(sum, its.size);
    }
    IS(wu_group_free(world), WU_OK);
    for (uint32_t at = 0; at < LIBRARIES; at++)
        IS(pthread_join(all[at].thread, NULL), 0);

    /* One closes early; a closed name is not used again. */
    IS(wu_close(all[1].ctx), WU_OK);
    params.name = "lib1", params.field_mask = WU_OPEN_NAME;
    IS(wu_open(WU_API, &params, &other), WU_ERR_EXISTS);
    IS(wu_group_world(all[2].ctx, &world), WU_OK);
    IS(wu_barrier(world, NULL), WU_OK);

    /* The one without a name goes first; the others still work. */
    IS(wu_close(own), WU_OK);
    IS(wu_barrier(world, NULL), WU_OK);
    IS(wu_group_free(world), WU_OK);
    IS(wu_close(all[2].ctx), WU_OK);
    IS(wu_close(all[0].ctx), WU_OK);
    IS(wu_close(all[3].ctx), WU_OK);
    printf("%u of %u: all right\n", its.rank, its.size);
    return 0;
}
