/* Prints the kinds of memory that the library has been asked for. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    char kinds[200];
    int found = 0;
    MPI_Info info;

    MPI_Init(&argc, &argv);
    MPI_Comm_get_info(MPI_COMM_WORLD, &info);
    MPI_Info_get(info, "mpi_memory_alloc_kinds", sizeof kinds - 1, kinds, &found);
    printf("kinds %s\n", found ? kinds : "unknown");
    MPI_Info_free(&info);
    MPI_Finalize();
    return 0;
}
