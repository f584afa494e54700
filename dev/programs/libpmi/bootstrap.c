/* Every function of wireup.h, with the engine or the transport that the first argument names: auto, agents, peers, ring, udp, fabric, and
 * with the thread of the library (thread, udp-thread) or few connections (few, udp-few), or both. */
#include "check.h"
#include "wireup.h"
#include <poll.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

static wu_open_params params = {.struct_size = sizeof params, .field_mask = WU_OPEN_ENGINE};
static wu_ctx *ctx;
static uint32_t rank, size;

static wu_group_info_t info_of(wu_group *group) {
    wu_group_info_t info = {.struct_size = sizeof info};
    IS(wu_group_info(group, &info), WU_OK);
    return info;
}

static int ids_made;

/* In place of ncclGetUniqueId. */
static int make_id(void *id) {
    ids_made++;
    for (size_t at = 0; at < 128; at += sizeof rank)
        memcpy((char *)id + at, &rank, sizeof rank);
    return 0;
}

static int make_no_id(void *id) {
    (void)id;
    return 1;
}

/* Each id was made once, by the member that ncclCommInitRankScalable takes for the root of a part of the ranks. */
static void unique_ids(wu_group *group, uint32_t (*member)(uint32_t)) {
    uint32_t me = info_of(group).rank, count = info_of(group).size;
    for (uint32_t wanted = 0; wanted <= count; wanted += count / 3 + 1) {
        wu_rows *ids = NULL;
        int is_root = 0;
        ids_made = 0;
        IS(wu_unique_ids(group, make_id, wanted, &ids, NULL), WU_OK);
        uint32_t roots = wanted ? wanted : (count + 127) / 128;
        IS(ids->count, roots);
        for (uint32_t root = 0; root < roots; root++) {
            uint32_t extra = count % roots, first = root * (count / roots) + (root < extra ? root : extra);
            is_root |= first == me;
            IS(ids->offsets[root], root * 128);
            for (size_t at = 0; at < 128; at += sizeof first) {
                uint32_t maker;
                memcpy(&maker, ids->bytes + root * 128 + at, sizeof maker);
                IS(maker, member(first));
            }
        }
        IS(ids->offsets[roots], roots * 128);
        IS(ids_made, is_root);
        wu_rows_release(ids);
    }
    wu_rows *ids = NULL;
    IS(wu_unique_ids(group, me == 0 ? make_no_id : make_id, 1, &ids, NULL), WU_ERR_SYSTEM);
    IS(wu_unique_ids(group, make_id, count + 1, &ids, NULL), WU_ERR_ARG);
    IS(wu_unique_ids(group, NULL, 1, &ids, NULL), WU_ERR_ARG);
}

/* All collectives of a group whose member m is `member(m)` of the job. */
static void collectives(wu_group *group, uint32_t (*member)(uint32_t)) {
    wu_group_info_t info = info_of(group);
    uint32_t me = info.rank, count = info.size;
    IS(member(me), rank);
    IS(wu_barrier(group, NULL), WU_OK);

    for (uint32_t root = 0; root < count; root += count / 2 + 1) {
        char text[40];
        sprintf(text, "from %u", member(root));
        char buffer[40] = "";
        if (me == root)
            strcpy(buffer, text);
        IS(wu_bcast(group, buffer, sizeof buffer, root, NULL), WU_OK);
        SAME(buffer, text);
    }

    uint64_t *rows = malloc(count * 2 * sizeof *rows), own[2] = {rank, ~(uint64_t)rank};
    IS(wu_allgather(group, own, sizeof own, rows, NULL), WU_OK);
    for (uint32_t at = 0; at < count; at++) {
        IS(rows[2 * at], member(at));
        IS(rows[2 * at + 1], ~(uint64_t)member(at));
    }

    uint32_t *from = malloc(count * sizeof *from), *to = malloc(count * sizeof *to);
    for (uint32_t at = 0; at < count; at++)
        from[at] = rank * 1000 + member(at);
    IS(wu_alltoall(group, from, sizeof *from, to, NULL), WU_OK);
    for (uint32_t at = 0; at < count; at++)
        IS(to[at], member(at) * 1000 + rank);

    int64_t numbers[2] = {rank, -(int64_t)rank}, result[2], before[2] = {7, 7};
    int64_t sum = 0, least = 0, up_to = 0;
    for (uint32_t at = 0; at < count; at++) {
        sum += member(at);
        least = -(int64_t)member(at) < least ? -(int64_t)member(at) : least;
        up_to += at <= me ? member(at) : 0;
    }
    IS(wu_allreduce(group, numbers, result, 2, WU_I64, WU_SUM, NULL), WU_OK);
    IS(result[0], sum);
    IS(result[1], -sum);
    IS(wu_allreduce(group, numbers, result, 2, WU_I64, WU_MIN, NULL), WU_OK);
    IS(result[1], least);
    IS(wu_scan(group, numbers, result, 2, WU_I64, WU_SUM, NULL), WU_OK);
    IS(result[0], up_to);
    IS(wu_exscan(group, numbers, before, 2, WU_I64, WU_SUM, NULL), WU_OK);
    IS(before[0], me == 0 ? 7 : up_to - rank);
    double tenth = 0.1 * rank, total, *all = malloc(count * sizeof total);
    IS(wu_allreduce(group, &tenth, &total, 1, WU_F64, WU_SUM, NULL), WU_OK);
    IS(wu_allgather(group, &total, sizeof total, all, NULL), WU_OK);
    for (uint32_t at = 0; at < count; at++)
        IS(memcmp(&all[at], &total, sizeof total), 0);

    /* Long values of any bytes. */
    unsigned char *mine = malloc(3000), *each = malloc(count * 3000);
    for (uint32_t at = 0; at < 3000; at++)
        mine[at] = at % 7 ? (unsigned char)(at * (rank + 1)) : ';';
    IS(wu_allgather(group, mine, 3000, each, NULL), WU_OK);
    for (uint32_t at = 0; at < count * 3000; at += 11) {
        uint32_t nth = at % 3000;
        IS(each[at], nth % 7 ? (unsigned char)(nth * (member(at / 3000) + 1)) : ';');
    }
    /* The same where they are; several at a time. */
    const unsigned char *shared[3];
    wu_view *views[3];
    for (int nth = 0; nth < 3; nth++) {
        mine[0] = nth;
        IS(wu_allgather_view(group, mine, nth < 2 ? 3000 : 20, (const void **)&shared[nth], &views[nth], NULL), WU_OK);
    }
    for (int nth = 0; nth < 3; nth++) {
        uint32_t length = nth < 2 ? 3000 : 20;
        for (uint32_t at = 0; at < count; at++) {
            IS(shared[nth][at * length], nth);
            IS(memcmp(shared[nth] + at * length + 1, each + at * 3000 + 1, length - 1), 0);
        }
        wu_view_release(views[nth]);
    }
    wu_req *viewing;
    IS(wu_allgather_view(group, NULL, 0, (const void **)shared, views, &viewing), WU_OK);
    IS(wu_wait(viewing, -1), WU_OK);
    wu_view_release(views[0]);
    free(mine), free(each);

    uint32_t left;
    IS(wu_shift(group, &rank, sizeof rank, &left, NULL), WU_OK);
    IS(left, member((me + count - 1) % count));

    char text[300];
    memset(text, 'a' + me % 26, sizeof text);
    wu_rows *values = NULL;
    IS(wu_allgatherv(group, text, me % 300, &values, NULL), WU_OK);
    IS(values->count, count);
    for (uint32_t at = 0; at < count; at++) {
        IS(values->offsets[at + 1] - values->offsets[at], at % 300);
        if (at % 300)
            IS(values->bytes[values->offsets[at]], 'a' + at % 26);
    }
    wu_rows_release(values);
    unique_ids(group, member);
    free(rows), free(from), free(to), free(all);
}

static uint32_t same(uint32_t at) {
    return at;
}

static uint32_t odd_or_even(uint32_t at) {
    return at * 2 + rank % 2;
}

static uint32_t backwards(uint32_t at) {
    return size - 1 - at;
}

static void requests(wu_group *group, uint32_t (*member)(uint32_t)) {
    wu_req *all[20];
    uint32_t *rows = malloc(20 * size * sizeof *rows), values[20];
    for (int nth = 0; nth < 20; nth++) {
        values[nth] = rank * 100 + nth;
        IS(wu_allgather(group, &values[nth], sizeof *rows, rows + nth * size, &all[nth]), WU_OK);
    }
    for (int nth = 19; nth >= 0; nth--) {
        int flag = 0;
        if (nth % 3 == 0)
            while (!flag)
                IS(wu_test(all[nth], &flag), WU_OK);
        else
            IS(wu_wait(all[nth], nth % 3 == 1 ? -1 : 60000), WU_OK);
        for (uint32_t at = 0; at < size; at++)
            IS(rows[nth * size + at], member(at) * 100 + nth);
    }
    free(rows);
}

static void messages(wu_group *group) {
    wu_group_info_t info = info_of(group);
    uint32_t others = info.size, me = info.rank;
    wu_req *receives[2 * others];
    uint32_t values[2 * others];
    size_t len = 0;
    for (uint32_t from = 0; from < others; from++)
        for (uint32_t tag = 0; tag < 2; tag++)
            IS(wu_recv(group, from, tag, &values[2 * from + tag], sizeof *values, NULL, &receives[2 * from + tag]), WU_OK);
    for (uint32_t to = 0; to < others; to++)
        for (uint32_t tag = 0; tag < 2; tag++) {
            uint32_t value = me * 10 + tag;
            IS(wu_send(group, to, 1 - tag, &value, sizeof value, NULL), WU_OK);
        }
    for (uint32_t at = 0; at < 2 * others; at++) {
        IS(wu_wait(receives[at], -1), WU_OK);
        IS(values[at], at / 2 * 10 + 1 - at % 2);
    }
    uint32_t left = (me + others - 1) % others, right = (me + 1) % others;
    IS(wu_send(group, right, 9, "too long", 9, NULL), WU_OK);
    IS(wu_recv(group, left, 9, values, 4, &len, NULL), WU_ERR_TRUNCATED);
    IS(len, 9);
    wu_req *never;
    IS(wu_recv(group, left, 10, values, 4, NULL, &never), WU_OK);
    IS(wu_wait(never, 20), WU_ERR_TIMEOUT);
    IS(wu_free(never), WU_OK);
    IS(wu_barrier(group, NULL), WU_OK);
}

static uint32_t lower_half_backwards(uint32_t at) {
    return (size + 1) / 2 - 1 - at;
}

/* Groups that only their members make: the lower half of the job backwards, twice under one name; and the whole job without agreement. */
static void creations(wu_group *world) {
    uint32_t half = (size + 1) / 2, *members = malloc((size + 1) * sizeof *members);
    wu_group *group, *twin;
    if (rank < half) {
        for (uint32_t at = 0; at < half; at++)
            members[at] = half - 1 - at;
        wu_req *one, *other;
        IS(wu_group_create(world, members, half, "lower half", &group, &one), WU_OK);
        IS(wu_group_create(world, members, half, "lower half", &twin, &other), WU_OK);
        IS(wu_wait(other, -1), WU_OK);
        IS(wu_wait(one, -1), WU_OK);
        collectives(group, lower_half_backwards);
        collectives(twin, lower_half_backwards);
        IS(wu_group_free(group), WU_OK);
        IS(wu_group_free(twin), WU_OK);
    } else {
        members[0] = 0;
        IS(wu_group_create(world, members, 1, "not with this rank", &group, NULL), WU_ERR_ARG);
    }
    /* The last rank has another list than the others. */
    uint32_t last = size - 1, count = rank == last ? size - 1 : size;
    for (uint32_t at = 0; at < count; at++)
        members[at] = rank == last ? at + 1 : at;
    if (size > 2) {
        IS(wu_group_create(world, members, count, "disagreed", &group, NULL), WU_ERR_MISMATCH);
        char wanted[20];
        sprintf(wanted, "rank %u ", last);
        IS(strncmp(wu_error(ctx), "rank ", 5), 0);
        if (rank != last)
            IS(strncmp(wu_error(ctx), wanted, strlen(wanted)), 0);
    }
    members[0] = rank, members[1] = rank;
    IS(wu_group_create(world, members, 2, "twice", &group, NULL), WU_ERR_ARG);
    IS(wu_group_create(world, members, 0, "nobody", &group, NULL), WU_ERR_ARG);
    IS(wu_group_create(world, NULL, 1, "null", &group, NULL), WU_ERR_ARG);
    IS(wu_group_create(world, members, 1, NULL, &group, NULL), WU_ERR_ARG);
    IS(wu_group_create(world, members, 1, "alone", &group, NULL), WU_OK);
    IS(info_of(group).size, 1);
    IS(wu_group_free(group), WU_OK);
    free(members);
}

/* Of several requests the one that is over is found; a receive that is cancelled leaves its message to the next one. */
static void ends(wu_group *world) {
    uint32_t left = (rank + size - 1) % size, right = (rank + 1) % size, got[3] = {0};
    wu_req *all[4] = {NULL};
    size_t which = 9;
    for (uint32_t tag = 0; tag < 3; tag++)
        IS(wu_recv(world, left, 20 + tag, &got[tag], sizeof *got, NULL, &all[1 + tag]), WU_OK);
    IS(wu_wait_any(all, 4, &which, 10), WU_ERR_TIMEOUT);
    IS(wu_barrier(world, NULL), WU_OK);
    IS(wu_send(world, right, 21, &rank, sizeof rank, NULL), WU_OK);
    IS(wu_wait_any(all, 4, &which, -1), WU_OK);
    IS(which, 2);
    IS(all[2] == NULL, 1);
    IS(got[1], left);
    IS(wu_cancel(all[1]), WU_OK);
    IS(wu_wait_any(all, 4, &which, -1), WU_ERR_CANCELLED);
    IS(which, 1);
    IS(wu_cancel(all[3]), WU_OK);
    IS(wu_cancel(all[3]), WU_OK);
    IS(wu_wait(all[3], -1), WU_ERR_CANCELLED);
    all[3] = NULL;
    IS(wu_wait_any(all, 4, &which, -1), WU_ERR_ARG);
    IS(wu_recv(world, left, 22, &got[0], sizeof *got, NULL, &all[0]), WU_OK);
    uint32_t value = rank + 500;
    IS(wu_barrier(world, NULL), WU_OK);
    IS(wu_send(world, right, 22, &value, sizeof value, NULL), WU_OK);
    IS(wu_wait(all[0], -1), WU_OK);
    IS(got[0], left + 500);
    IS(got[2], 0);
    /* The other members' part of a collective goes on, and what is over keeps its result. */
    uint64_t *rows = calloc(size, sizeof *rows), own = rank;
    wu_req *collective;
    IS(wu_allgather(world, &own, sizeof own, rows, &collective), WU_OK);
    if (rank == 0) {
        wu_cancel(collective);
        int code = wu_wait(collective, -1);
        IS(code == WU_ERR_CANCELLED || code == WU_OK, 1);
    } else {
        IS(wu_wait(collective, -1), WU_OK);
        IS(rows[size - 1], size - 1);
    }
    IS(wu_barrier(world, NULL), WU_OK);
    free(rows);
}

static void wrong(wu_group *world) {
    wu_ctx *second;
    IS(wu_open(WU_API, &params, &second), params.name ? WU_ERR_EXISTS : WU_ERR_STATE);
    IS(wu_open(WU_API + 1, NULL, &second), WU_ERR_API);
    IS(wu_open(WU_API, NULL, NULL), WU_ERR_ARG);
    IS(wu_barrier(NULL, NULL), WU_ERR_ARG);
    IS(wu_allgather(world, NULL, 4, NULL, NULL), WU_ERR_ARG);
    IS(wu_bcast(world, &rank, sizeof rank, size, NULL), WU_ERR_ARG);
    IS(wu_allreduce(world, &rank, &rank, 1, 9, 0, NULL), WU_ERR_ARG);
    IS(wu_allreduce(world, &rank, &rank, 1, WU_F64, WU_BAND, NULL), WU_ERR_ARG);
    IS(wu_send(world, size, 0, NULL, 0, NULL), WU_ERR_ARG);
    IS(wu_wait(NULL, 0), WU_ERR_ARG);
    IS(strlen(wu_error(ctx)) > 5, 1);
}

/* Each rank publishes a name, and its neighbour looks it up. Slurm's server replaces a name, and withdraws any. */
static void names(wu_ctx *ctx, wu_group *world)
{
    wu_group_info_t its = info_of(world);
    int is_slurm = getenv("SLURM_STEP_ID") && !getenv("WIREUP_RANK");
    char name[20], value[40], wanted[40], *long_name = calloc(1, 1025);

    sprintf(name, "name %u", its.rank);
    sprintf(value, "port of %u", its.rank);
    IS(wu_publish(ctx, name, value), WU_OK);
    if (!is_slurm)
        IS(wu_publish(ctx, name, "another"), WU_ERR_EXISTS);
    IS(wu_barrier(world, NULL), WU_OK);
    sprintf(name, "name %u", (its.rank + 1) % its.size);
    sprintf(wanted, "port of %u", (its.rank + 1) % its.size);
    IS(wu_lookup(ctx, name, value, sizeof value), WU_OK);
    SAME(value, wanted);
    IS(wu_lookup(ctx, name, value, 3), WU_ERR_TRUNCATED);
    IS(wu_lookup(ctx, "nobody", value, sizeof value), WU_ERR_NOT_FOUND);
    if (!is_slurm)
        IS(wu_unpublish(ctx, "nobody"), WU_ERR_NOT_FOUND);
    IS(wu_barrier(world, NULL), WU_OK);
    sprintf(name, "name %u", its.rank);
    IS(wu_unpublish(ctx, name), WU_OK);
    IS(wu_lookup(ctx, name, value, sizeof value), WU_ERR_NOT_FOUND);
    IS(wu_publish(ctx, "", "value"), WU_ERR_ARG);
    IS(wu_publish(ctx, memset(long_name, 'x', 1024), "value"), WU_ERR_ARG);
    IS(wu_lookup(ctx, NULL, value, sizeof value), WU_ERR_ARG);
    IS(wu_lookup(ctx, name, NULL, 8), WU_ERR_ARG);
    IS(wu_unpublish(NULL, name), WU_ERR_ARG);
    free(long_name);
}

/* Addresses of a network of the program's own. Under wireup they are there at once; elsewhere after a fence. */
static void addresses(wu_group *world) {
    int is_wireup = getenv("WIREUP_RANK") != NULL;
    uint32_t right = (rank + 1) % size;
    char own[500] = "", got[500], wanted[500] = "";
    size_t len = 0;
    wu_req *early = NULL;
    own[0] = wanted[0] = ';';
    sprintf(own + 2, "address of %u", rank);
    sprintf(wanted + 2, "address of %u", right);
    if (is_wireup)
        IS(wu_addr_get(ctx, "my-net_1.0", right, got, sizeof got, &len, &early), WU_OK);
    IS(wu_addr_set(ctx, "my-net_1.0", own, sizeof own), WU_OK);
    if (early) {
        IS(wu_wait(early, -1), WU_OK);
        IS(len, sizeof wanted);
        IS(memcmp(got, wanted, sizeof wanted), 0);
        IS(wu_addr_set(ctx, "my-net_1.0", own, 1), WU_ERR_EXISTS);
    }
    IS(wu_fence(ctx), WU_OK);
    for (uint32_t of = rank; of < rank + size; of += 1 + size / 8) {
        sprintf(wanted + 2, "address of %u", of % size);
        IS(wu_addr_get(ctx, "my-net_1.0", of % size, got, sizeof got, NULL, NULL), WU_OK);
        SAME(got + 2, wanted + 2);
    }
    IS(wu_addr_get(ctx, "my-net_1.0", right, got, 499, &len, NULL), WU_ERR_TRUNCATED);
    IS(len, 500);
    IS(wu_addr_get(ctx, "none", right, got, sizeof got, &len, &early), WU_OK);
    IS(wu_wait(early, 20), is_wireup ? WU_ERR_TIMEOUT : WU_ERR_NOT_FOUND);
    if (is_wireup)
        IS(wu_free(early), WU_OK);
    IS(wu_addr_set(ctx, "no blanks", own, 1), WU_ERR_ARG);
    IS(wu_addr_set(ctx, "a-name-that-is-longer-than-32-bytes", own, 1), WU_ERR_ARG);
    IS(wu_addr_set(ctx, "long", own, 501), WU_ERR_ARG);
    IS(wu_addr_set(ctx, "empty", NULL, 0), WU_OK);
    IS(wu_addr_get(ctx, "net", size, got, sizeof got, NULL, NULL), WU_ERR_ARG);
    IS(wu_addr_get(ctx, NULL, 0, got, sizeof got, NULL, NULL), WU_ERR_ARG);
    IS(wu_barrier(world, NULL), WU_OK);
}

/* Connections of the program's own: two to each other rank, asked for in both directions at once. What one end sends at once, while the other
 * has not asked yet, is not lost. */
static void connections(wu_group *world, int is_tcp) {
    uint32_t others = size < 5 ? size - 1 : 4;
    int fds[16];
    wu_req *reqs[16];
    if (!is_tcp) {
        IS(wu_connect(ctx, (rank + 1) % size, fds, NULL), WU_ERR_ARG);
        return;
    }
    for (uint32_t at = 0; at < others; at++) {
        uint32_t up = (rank + 1 + at) % size, down = (rank + size - 1 - at) % size;
        IS(wu_connect(ctx, up, &fds[2 * at], &reqs[2 * at]), WU_OK);
        IS(wu_connect(ctx, down, &fds[2 * at + 1], &reqs[2 * at + 1]), WU_OK);
    }
    for (uint32_t at = 0; at < 2 * others; at++) {
        IS(wu_wait(reqs[at], -1), WU_OK);
        IS(write(fds[at], &rank, sizeof rank), sizeof rank);
        /* So that the other end may be in the middle of its proof. */
        wu_progress(ctx);
    }
    /* With a bound on connections, messages of the previous collective may still wait for a connection, and plain reads send nothing. */
    IS(wu_flush(ctx, -1), WU_OK);
    for (uint32_t at = 0; at < 2 * others; at++) {
        uint32_t got, wanted = at % 2 ? (rank + size - 1 - at / 2) % size : (rank + 1 + at / 2) % size;
        IS(read(fds[at], &got, sizeof got), sizeof got);
        IS(got, wanted);
        close(fds[at]);
    }
    IS(wu_connect(ctx, rank, fds, NULL), WU_ERR_ARG);
    IS(wu_connect(ctx, size, fds, NULL), WU_ERR_ARG);
    IS(wu_connect(ctx, 0, NULL, NULL), WU_ERR_ARG);
    if (size > 1) {
        IS(wu_connect(ctx, (rank + 1) % size, fds, reqs), WU_OK);
        IS(wu_cancel(reqs[0]), WU_OK);
        /* What is over keeps its result. */
        int code = wu_wait(reqs[0], -1);
        IS(code == WU_ERR_CANCELLED || code == WU_OK, 1);
        if (code == WU_OK)
            close(fds[0]);
    }
    IS(wu_barrier(world, NULL), WU_OK);
}

int main(int argc, char **argv) {
    const char *engine = argc > 1 ? argv[1] : "auto";
    params.engine = !strcmp(engine, "agents") ? WU_ENGINE_AGENTS : !strcmp(engine, "peers") ? WU_ENGINE_PEERS : WU_ENGINE_AUTO;
    if (!strcmp(engine, "ring") || !strcmp(engine, "allgather")) {
        params.field_mask |= WU_OPEN_START;
        params.start = !strcmp(engine, "ring") ? WU_START_RING : WU_START_ALLGATHER;
    }
    if (!strncmp(engine, "udp", 3) || !strcmp(engine, "fabric")) {
        params.field_mask |= WU_OPEN_TRANSPORT;
        params.engine = WU_ENGINE_PEERS;
        params.transport = !strncmp(engine, "udp", 3) ? WU_TRANSPORT_UDP : WU_TRANSPORT_FABRIC;
    }
    if (strstr(engine, "thread"))
        params.field_mask |= WU_OPEN_THREAD;
    if (strstr(engine, "named")) {
        params.field_mask |= WU_OPEN_NAME;
        params.name = "boot-strap.1";
    }
    if (strstr(engine, "few")) {
        params.field_mask |= WU_OPEN_CONNECTIONS_MAX;
        params.connections_max = 2;
    }
    if (strstr(engine, "by-ranks")) {
        params.field_mask |= WU_OPEN_SPLIT_GATHER_MAX;
        params.split_gather_max = 1;
    }
    IS(wu_version(), WU_API);
    IS(wu_open(WU_API, &params, &ctx), WU_OK);
    wu_group *world, *half, *reverse, *twin, *none;
    IS(wu_group_world(ctx, &world), WU_OK);
    wu_group_info_t info = info_of(world);
    rank = info.rank, size = info.size;
    if (params.engine)
        IS(info.engine, params.engine);
    collectives(world, same);
    requests(world, same);

    IS(wu_group_split(world, rank % 2, 0, &half, NULL), WU_OK);
    IS(wu_group_split_str(world, "all", 3, -(int64_t)rank, &reverse, NULL), WU_OK);
    IS(wu_group_split(world, rank ? -1 : 0, 0, &none, NULL), WU_OK);
    IS(none == NULL, rank != 0);
    IS(wu_group_dup(half, &twin), WU_OK);
    collectives(half, odd_or_even);
    collectives(reverse, backwards);
    collectives(twin, odd_or_even);
    requests(reverse, backwards);
    messages(world);
    messages(half);
    creations(world);
    ends(world);
    /* Groups are independent: these two are used in different orders. */
    wu_req *one, *other;
    IS(wu_barrier(rank % 2 ? reverse : world, &one), WU_OK);
    IS(wu_barrier(rank % 2 ? world : reverse, &other), WU_OK);
    IS(wu_wait(other, -1), WU_OK);
    IS(wu_wait(one, -1), WU_OK);
    /* A barrier by the ranks costs log2 of their number: waits, and messages of 17 bytes. */
    wu_counts_t was = {.struct_size = sizeof was}, is = {.struct_size = sizeof is}, less = {.struct_size = 16, .bytes = 5};
    uint32_t log = 0;
    while (1u << log < size)
        log++;
    IS(wu_counts(ctx, &was), WU_OK);
    IS(wu_barrier(reverse, NULL), WU_OK);
    IS(wu_counts(ctx, &is), WU_OK);
    IS(is.rounds - was.rounds, log);
    IS(is.messages - was.messages, log);
    IS(is.bytes - was.bytes, 17 * log);
    IS(is.connections <= size && is.addresses < size && is.address_len > 10, 1);
    IS(wu_counts(ctx, &less), WU_OK);
    IS(less.messages == is.messages && less.bytes == 5, 1);
    /* A wait sleeps, also while another request is over. */
    wu_req *over, *never;
    struct timespec before, after;
    IS(wu_barrier(world, &over), WU_OK);
    IS(wu_recv(world, (rank + size - 1) % size, 77, &rank, sizeof rank, NULL, &never), WU_OK);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    IS(wu_wait(never, 300), WU_ERR_TIMEOUT);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    IS((after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000 < 150, 1);
    IS(wu_free(never), WU_OK);
    IS(wu_wait(over, -1), WU_OK);

    wu_group *node, *leaders;
    IS(wu_group_node(ctx, &node), WU_OK);
    IS(wu_group_leaders(ctx, &leaders), WU_OK);
    wu_group_info_t on_node = info_of(node), of_leaders = info_of(leaders);
    if (getenv("WIREUP_RANK") && (!strcmp(engine, "auto") || !strcmp(engine, "agents"))) {
        wu_group *part;
        IS(on_node.engine, WU_ENGINE_AGENTS);
        IS(of_leaders.engine, WU_ENGINE_AGENTS);
        IS(wu_group_split(half, info_of(half).rank / 2, 0, &part, NULL), WU_OK);
        IS(info_of(part).engine, WU_ENGINE_AGENTS);
        IS(info_of(part).rank, info_of(half).rank % 2);
        IS(wu_barrier(part, NULL), WU_OK);
        IS(wu_group_free(part), WU_OK);
    }
    if (params.split_gather_max) {
        /* Ranks have split; the agents carry out the collectives of consecutive ranks. */
        wu_group *part, *single;
        IS(wu_group_split(world, rank / 3, 0, &part, NULL), WU_OK);
        IS(info_of(part).engine, WU_ENGINE_AGENTS);
        IS(info_of(part).rank, rank % 3);
        IS(info_of(reverse).engine, size > 1 ? WU_ENGINE_PEERS : WU_ENGINE_AGENTS);
        messages(part);
        IS(wu_group_split(part, info_of(part).rank, 0, &single, NULL), WU_OK);
        IS(info_of(single).size, 1);
        IS(wu_group_free(single), WU_OK);
        IS(wu_group_free(part), WU_OK);
    }
    uint32_t *members = malloc(size * sizeof *members), numbers[2] = {on_node.rank, on_node.size};
    IS(wu_allgather(node, &rank, sizeof rank, members, NULL), WU_OK);
    for (uint32_t at = 1; at < on_node.size; at++)
        IS(members[at - 1] < members[at], 1);
    IS(members[on_node.rank], rank);
    uint32_t *all = malloc(size * sizeof numbers), peers = 0;
    IS(wu_allgather(world, numbers, sizeof numbers, all, NULL), WU_OK);
    for (uint32_t at = 0; at < size; at++)
        peers += all[2 * at] == on_node.rank;
    IS(of_leaders.size, peers);
    if (argc > 2)
        IS(on_node.size, atoi(argv[2]));
    free(members), free(all);
    IS(wu_group_free(node), WU_OK);
    IS(wu_group_free(leaders), WU_OK);
    wrong(world);

    char key[20], value[40], wanted[40];
    sprintf(key, "key%u", rank);
    sprintf(value, "value of %u", rank);
    IS(wu_put(ctx, key, value), WU_OK);
    IS(wu_fence(ctx), WU_OK);
    sprintf(key, "key%u", (rank + 1) % size);
    sprintf(wanted, "value of %u", (rank + 1) % size);
    IS(wu_get(ctx, key, value, sizeof value), WU_OK);
    SAME(value, wanted);
    IS(wu_get(ctx, key, value, 3), WU_ERR_TRUNCATED);
    IS(wu_get(ctx, "nobody", value, sizeof value), WU_ERR_NOT_FOUND);
    names(ctx, world);
    addresses(world);
    connections(world, strcmp(engine, "fabric"));

    /* The descriptor tells when a message has arrived. */
    wu_req *receive;
    uint32_t left = (rank + size - 1) % size, got = ~0u;
    IS(wu_recv(world, left, 5, &got, sizeof got, NULL, &receive), WU_OK);
    IS(wu_send(world, (rank + 1) % size, 5, &rank, sizeof rank, NULL), WU_OK);
    for (int flag = 0; !flag;) {
        struct pollfd fd = {.fd = wu_fd(ctx), .events = POLLIN};
        IS(wu_progress(ctx), WU_OK);
        IS(wu_test(receive, &flag), WU_OK);
        /* The thread waits for the descriptor itself. */
        if (strstr(engine, "thread"))
            IS(fd.fd, -1);
        if (!flag && fd.fd >= 0)
            IS(poll(&fd, 1, 60000), 1);
    }
    IS(got, left);

    IS(wu_barrier(world, NULL), WU_OK);
    IS(wu_lost_rank(ctx), -1);
    if (none)
        IS(wu_group_free(none), WU_OK);
    IS(wu_group_free(twin), WU_OK);
    IS(wu_group_free(half), WU_OK);
    IS(wu_group_free(reverse), WU_OK);
    IS(wu_group_free(world), WU_OK);
    IS(wu_close(ctx), WU_OK);
    printf("%u of %u: all right\n", rank, size);
    return 0;
}
