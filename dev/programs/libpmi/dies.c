/* One rank kills itself in its n-th wait for others, wherever that is: while the network of ranks is made, in the making of groups, in a
 * collective. The others must get WU_ERR_PEER_LOST with that rank, at the latest when they wait for a message of it at the end. Arguments:
 * the number of the transport, that of the way to start, the number of ranks, the rank, n, a folder in which each survivor makes a file with
 * its rank. Survivors stay until all have. The victim makes a file, too, if it waits less often.
 *
 * The rank is a child of the process that the launcher knows, which stays: so no launcher notices, and the ranks must. With one more
 * argument it is that process itself. */
#define _GNU_SOURCE
#include "check.h"
#include "wireup.h"
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int waits_left = -1;

/* The library waits for other ranks by this function only; the program's own stands in front of that of the C library. */
int epoll_wait(int epoll, struct epoll_event *events, int room, int ms) {
    if (waits_left >= 0 && waits_left-- == 0)
        raise(SIGKILL);
    return syscall(SYS_epoll_pwait, epoll, events, room, ms, NULL, 8);
}

static wu_ctx *ctx;
static uint32_t victim, me, size;
static const char *step, *folder;

static FILE *file_of(uint32_t rank, const char *how) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%u", folder, rank);
    return fopen(path, how);
}

static void await_survivors(void) {
    for (uint32_t rank = 0; rank < size; rank++)
        for (FILE *other = NULL; rank != victim && other == NULL; usleep(1000))
            if ((other = file_of(rank, "r")) != NULL)
                fclose(other);
}

/* Returns in the rank. */
static void become_child(void) {
    int status;
    pid_t child = fork();
    IS(child >= 0, 1);
    if (child == 0)
        return;
    const char *listening = getenv("WIREUP_LISTEN_FD");
    if (listening)
        close(atoi(listening));
    IS(waitpid(child, &status, 0), child);
    if (me == victim) {
        IS(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, 1);
        await_survivors();
        status = 0;
    }
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

/* Over for this rank, if a call has failed because of the victim. */
static void survives(int code, const char *call) {
    if (code == WU_OK)
        return;
    if (code != WU_ERR_PEER_LOST || wu_lost_rank(ctx) != victim) {
        fprintf(stderr, "rank %u: %s: %s: code %d, rank %ld is lost\n", me, step, call, code, (long)wu_lost_rank(ctx));
        _exit(1);
    }
    FILE *own = file_of(me, "w");
    IS(own != NULL, 1);
    fprintf(own, "%s: %s\n", step, call);
    fclose(own);
    await_survivors();
    _exit(0);
}
#define DO(call) survives(call, #call)

static void collectives(wu_group *group, const char *name) {
    wu_group_info_t info = {.struct_size = sizeof info};
    IS(wu_group_info(group, &info), WU_OK);
    uint64_t number = me, sum, *rows = malloc(2 * info.size * sizeof *rows);
    double fraction = me, total;
    wu_rows *values;
    step = name;
    DO(wu_barrier(group, NULL));
    DO(wu_bcast(group, &number, sizeof number, info.size - 1, NULL));
    DO(wu_allgather(group, &number, sizeof number, rows, NULL));
    DO(wu_allgatherv(group, &number, sizeof number, &values, NULL));
    wu_rows_release(values);
    DO(wu_alltoall(group, rows, sizeof *rows, rows + info.size, NULL));
    DO(wu_allreduce(group, &number, &sum, 1, WU_U64, WU_SUM, NULL));
    DO(wu_allreduce(group, &fraction, &total, 1, WU_F64, WU_SUM, NULL));
    DO(wu_scan(group, &number, &sum, 1, WU_U64, WU_SUM, NULL));
    DO(wu_exscan(group, &number, &sum, 1, WU_U64, WU_SUM, NULL));
    DO(wu_shift(group, &number, sizeof number, &sum, NULL));
    free(rows);
}

int main(int argc, char **argv) {
    if (argc < 7)
        return 2;
    wu_open_params params = {.struct_size = sizeof params, .engine = WU_ENGINE_PEERS, .transport = atoi(argv[1]), .start = atoi(argv[2])};
    params.field_mask = WU_OPEN_ENGINE | WU_OPEN_TRANSPORT | WU_OPEN_START;
    size = atoi(argv[3]);
    victim = atoi(argv[4]);
    folder = argv[6];
    /* The variable of whatever launcher it is. */
    const char *rank = getenv("PMI_RANK");
    me = rank ? atoi(rank) : 0;
    if (argc == 7)
        become_child();
    if (me == victim)
        waits_left = atoi(argv[5]);

    wu_group *world, *half, *named, *twin, *made;
    wu_group_info_t info = {.struct_size = sizeof info};
    step = "open";
    DO(wu_open(WU_API, &params, &ctx));
    DO(wu_group_world(ctx, &world));
    IS(wu_group_info(world, &info), WU_OK);
    IS(info.rank, me);
    IS(info.size, size);
    collectives(world, "world");
    step = "groups";
    DO(wu_group_split(world, me % 2, -(int64_t)me, &half, NULL));
    DO(wu_group_split_str(world, "all", 3, 0, &named, NULL));
    DO(wu_group_dup(world, &twin));
    uint32_t *members = malloc(info.size * sizeof *members);
    for (uint32_t at = 0; at < info.size; at++)
        members[at] = (at + 1) % info.size;
    DO(wu_group_create(world, members, info.size, "created", &made, NULL));
    free(members);
    collectives(twin, "twin");
    collectives(made, "created");
    if (half && victim % 2 == me % 2)
        collectives(half, "half");
    for (uint32_t distance = 1; distance < info.size; distance++) {
        uint32_t got, to = (me + distance) % info.size, from = (me + info.size - distance) % info.size;
        step = "messages";
        DO(wu_send(named, to, distance, &me, sizeof me, NULL));
        DO(wu_recv(named, from, distance, &got, sizeof got, NULL, NULL));
        IS(got, from);
    }
    if (me == victim) {
        fclose(file_of(me, "w"));
        raise(SIGKILL);
    }
    step = "end";
    DO(wu_recv(world, victim, 9, &me, sizeof me, NULL, NULL));
    return 1;
}
