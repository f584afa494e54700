/* Rank 3 sleeps in a named function, and the others wait for it in a barrier. */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

__attribute__((noinline)) void stuck_here(void) {
    for (;;)
        sleep(1000);
}

int main(int argc, char **argv) {
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    printf("ready\n");
    fflush(stdout);
    if (rank == 3)
        stuck_here();
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
