/* Sums a vector over all ranks; every rank checks every element. */
#include <mpi.h>
#include <stdio.h>

enum { COUNT = 4096 };

int main(int argc, char **argv)
{
    static long mine[COUNT], sum[COUNT];
    int rank, size;
    long wrong = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (long i = 0; i < COUNT; i++)
        mine[i] = i * (rank + 1);
    MPI_Allreduce(mine, sum, COUNT, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    for (long i = 0; i < COUNT; i++)
        wrong += sum[i] != i * size * (size + 1) / 2;
    if (wrong) {
        fprintf(stderr, "rank %d: %ld of %d sums are wrong\n", rank, wrong, COUNT);
        MPI_Abort(MPI_COMM_WORLD, 4);
    }
    if (rank == 0)
        printf("allreduce over %d ranks: %d sums are right\n", size, COUNT);
    MPI_Finalize();
    return 0;
}
