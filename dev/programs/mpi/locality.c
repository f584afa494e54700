/* Each rank prints the ranks that it shares memory with, and its own index among them. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    int rank, size, local, locals, ranks[256];
    char line[2048];
    MPI_Comm shared;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &shared);
    MPI_Comm_rank(shared, &local);
    MPI_Comm_size(shared, &locals);
    if (locals > 256)
        MPI_Abort(MPI_COMM_WORLD, 6);
    MPI_Allgather(&rank, 1, MPI_INT, ranks, 1, MPI_INT, shared);
    int at = snprintf(line, sizeof line, "rank %d of %d: local %d of", rank, size, local);
    for (int i = 0; i < locals; i++)
        at += snprintf(line + at, sizeof line - at, " %d", ranks[i]);
    puts(line);
    MPI_Comm_free(&shared);
    MPI_Finalize();
    return 0;
}
