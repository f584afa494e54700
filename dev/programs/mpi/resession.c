/* Sessions of MPI-4, one after the other: each has a communicator of all ranks. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void session(void)
{
    MPI_Session session;
    MPI_Group world;
    MPI_Comm comm;
    int size, one = 1, sum = 0;

    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &world);
    MPI_Comm_create_from_group(world, "all", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    MPI_Comm_size(comm, &size);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    if (sum != size)
        exit(3);
    MPI_Comm_free(&comm);
    MPI_Group_free(&world);
    MPI_Session_finalize(&session);
}

int main(void)
{
    for (int turn = 0; turn < 3; turn++)
        session();
    puts("three sessions");
    return 0;
}
