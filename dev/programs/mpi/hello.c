/* Each rank prints its number, its host and its MPI library. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    int rank, size, length;
    char host[MPI_MAX_PROCESSOR_NAME], library[MPI_MAX_LIBRARY_VERSION_STRING];

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_processor_name(host, &length);
    MPI_Get_library_version(library, &length);
    library[strcspn(library, "\n")] = 0;
    printf("hello from rank %d of %d on %s, %s\n", rank, size, host, library);
    MPI_Finalize();
    return 0;
}
