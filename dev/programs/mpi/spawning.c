/* spawning TIMES CHILDREN PAUSE_MS STAMPS WRAPPER
 *
 * Starts CHILDREN children of itself, TIMES times one after the other, by WRAPPER (`from_exec`), which puts the time of the child's own start into
 * its environment. Rank 0 appends a line to STAMPS for each call of MPI_Comm_spawn, with times in nanoseconds of the machine's clock:
 *
 *   call return, and for each child: start waited main initialised
 *
 * The ranks sleep for PAUSE_MS before each call, so that the children of the call before can end.
 *
 * `waited` is how long the child has waited for a cpu until `start`, `initialised` the return of MPI_Init. */
#include <mpi.h>
#include <string.h>

#include "../../../lab/bench/programs/stamps.h"

enum { START, WAITED, MAIN, INITIALISED, TIMES };

static int child(MPI_Comm parents, uint64_t main_ns, uint64_t initialised_ns)
{
    uint64_t times[TIMES] = {noted(EXEC_NS), noted(WAITED_NS), main_ns, initialised_ns};
    MPI_Send(times, TIMES, MPI_UINT64_T, 0, 0, parents);
    /* All have received everything before anybody closes a connection. */
    MPI_Barrier(parents);
    MPI_Comm_disconnect(&parents);
    return MPI_Finalize();
}

static int report(FILE *stamps, uint64_t call_ns, uint64_t return_ns, int children, MPI_Comm between)
{
    fprintf(stamps, "%llu %llu", (unsigned long long)call_ns, (unsigned long long)return_ns);
    for (int rank = 0; rank < children; rank++) {
        uint64_t times[TIMES];
        MPI_Recv(times, TIMES, MPI_UINT64_T, rank, 0, between, MPI_STATUS_IGNORE);
        for (int i = 0; i < TIMES; i++)
            fprintf(stamps, " %llu", (unsigned long long)times[i]);
    }
    fputc('\n', stamps);
    return fflush(stamps);
}

int main(int argc, char **argv)
{
    uint64_t main_ns = now_ns();
    MPI_Comm parents, between;
    int rank;
    MPI_Init(&argc, &argv);
    uint64_t initialised_ns = now_ns();
    MPI_Comm_get_parent(&parents);
    if (parents != MPI_COMM_NULL)
        return child(parents, main_ns, initialised_ns);
    if (argc != 6)
        MPI_Abort(MPI_COMM_WORLD, 2);
    int times = atoi(argv[1]), children = atoi(argv[2]), pause_us = atoi(argv[3]) * 1000;
    char *words[] = {"--waited", argv[0], NULL};
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    FILE *stamps = rank == 0 ? fopen(argv[4], "a") : NULL;
    if (rank == 0 && !stamps)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = 0; i < times; i++) {
        usleep(pause_us);
        MPI_Barrier(MPI_COMM_WORLD);
        uint64_t call_ns = now_ns();
        MPI_Comm_spawn(argv[5], words, children, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &between, MPI_ERRCODES_IGNORE);
        uint64_t return_ns = now_ns();
        if (rank == 0 && report(stamps, call_ns, return_ns, children, between))
            MPI_Abort(MPI_COMM_WORLD, 1);
        MPI_Barrier(between);
        MPI_Comm_disconnect(&between);
    }
    MPI_Finalize();
    return 0;
}
