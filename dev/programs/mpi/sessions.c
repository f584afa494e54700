/* MPI sessions, without MPI_COMM_WORLD: each rank joins a communicator of the even or the odd ranks, then one of all ranks. If the
 * server implements barriers of groups, an MPI library uses them here. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void check(MPI_Group group, const char *tag)
{
    MPI_Comm comm;
    int rank, size;
    long mine, sum = -1;

    MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    mine = rank + 1;
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, comm);
    if (sum != (long)size * (size + 1) / 2) {
        fprintf(stderr, "%s: the sum of %d ranks is %ld\n", tag, size, sum);
        exit(3);
    }
    if (rank == 0)
        printf("%s: %d ranks\n", tag, size);
    MPI_Comm_free(&comm);
}

int main(void)
{
    MPI_Session session;
    MPI_Group world, half;
    int rank, size, first, last, ranges[1][3];

    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &world);
    MPI_Group_rank(world, &rank);
    MPI_Group_size(world, &size);
    first = rank % 2;
    last = size - 1;
    ranges[0][0] = first;
    ranges[0][1] = last;
    ranges[0][2] = 2;
    MPI_Group_range_incl(world, 1, ranges, &half);
    check(half, first ? "odd" : "even");
    check(world, "all");
    check(half, first ? "odd" : "even");
    MPI_Group_free(&half);
    MPI_Group_free(&world);
    MPI_Session_finalize(&session);
    return 0;
}
