/* Linked with an MPI library, but never calls MPI_Init, like a program whose library does not support the offered PMI. */
#include <mpi.h>
#include <stdio.h>

int main(void)
{
    int initialized = 0;

    MPI_Initialized(&initialized);
    printf("rank 0 of 1, initialized %d\n", initialized);
    return 0;
}
