/* The program of the recording: rank 2 crashes or hangs before it calls MPI_Init. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    const char *fault = argc > 1 ? argv[1] : "";
    int rank = atoi(getenv("WIREUP_RANK")), length;
    char host[MPI_MAX_PROCESSOR_NAME];

    if (rank == 2 && !strcmp(fault, "hang"))
        pause();
    if (rank == 2 && !strcmp(fault, "crash"))
        *(volatile int *)0 = 0;
    MPI_Init(&argc, &argv);
    MPI_Get_processor_name(host, &length);
    MPI_Barrier(MPI_COMM_WORLD);
    printf("hello from rank %d on %s\n", rank, host);
    MPI_Finalize();
    return 0;
}
