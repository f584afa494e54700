/* All ranks ask for a new process; with an argument they go on if they are refused. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    MPI_Comm all;
    int refused;

    MPI_Init(&argc, &argv);
    if (argc > 1)
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    refused = MPI_Comm_spawn("hostname", MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &all,
                             MPI_ERRCODES_IGNORE) != MPI_SUCCESS;
    printf("refused: %d\n", refused);
    MPI_Finalize();
    return 0;
}
