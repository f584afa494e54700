/* A token is sent around the ring; each rank checks the sum so far and adds its number. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int rank, size;
    long token = 0, expected;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank > 0)
        MPI_Recv(&token, 1, MPI_LONG, rank - 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    expected = (long)rank * (rank - 1) / 2;
    if (token != expected) {
        fprintf(stderr, "rank %d: token %ld, expected %ld\n", rank, token, expected);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    token += rank;
    if (size > 1)
        MPI_Send(&token, 1, MPI_LONG, (rank + 1) % size, 7, MPI_COMM_WORLD);
    if (rank == 0) {
        if (size > 1)
            MPI_Recv(&token, 1, MPI_LONG, size - 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        printf("ring of %d: token %ld, expected %ld\n", size, token, (long)size * (size - 1) / 2);
    }
    MPI_Finalize();
    return rank == 0 && token != (long)size * (size - 1) / 2;
}
