/* lateexit HOW: rank 1 exits with code 3 after MPI_Finalize, or dies with `signal`; the others work for one more second. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Finalize();
    if (rank == 1 && argc > 1 && strcmp(argv[1], "signal") == 0)
        raise(SIGKILL);
    if (rank == 1)
        exit(3);
    sleep(argc > 1 ? 100 : 1);
    printf("rank %d has finished\n", rank);
    return 0;
}
