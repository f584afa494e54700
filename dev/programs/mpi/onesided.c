/* Every rank puts its number into its right neighbour's window, and gets a number that this neighbour has computed from it. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int rank, size, here[2] = {-1, -1}, there = -1;
    MPI_Win window;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    MPI_Win_create(here, sizeof here, sizeof here[0], MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_fence(0, window);
    MPI_Put(&rank, 1, MPI_INT, right, 0, 1, MPI_INT, window);
    MPI_Win_fence(0, window);
    here[1] = here[0] + size;
    MPI_Win_fence(0, window);
    MPI_Get(&there, 1, MPI_INT, right, 1, 1, MPI_INT, window);
    MPI_Win_fence(0, window);
    if (here[0] != left || there != rank + size) {
        fprintf(stderr, "rank %d: %d was put, expected %d; %d was got, expected %d\n", rank, here[0], left, there,
                rank + size);
        MPI_Abort(MPI_COMM_WORLD, 5);
    }
    MPI_Win_free(&window);
    if (rank == 0)
        printf("one-sided over %d ranks: right\n", size);
    MPI_Finalize();
    return 0;
}
