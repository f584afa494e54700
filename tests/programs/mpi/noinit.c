/* Linked to an MPI and never in MPI_Init, as a program whose library does not find the PMI that it is offered. */
#include <mpi.h>
#include <stdio.h>

int main(void)
{
    int initialized = 0;

    MPI_Initialized(&initialized);
    printf("rank 0 of 1, initialized %d\n", initialized);
    return 0;
}
