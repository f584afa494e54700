/* firstuse WHAT STAMPS
 *
 * Uses the job once, as early as MPI can: `node-group` splits the world into the nodes, `message` sends a byte from rank 0 to the last rank
 * and back. Appends its line to STAMPS, for the benchmark of the same things without MPI. */
#include <mpi.h>
#include <string.h>

#include "../../../lab/bench/programs/stamps.h"

int main(int argc, char **argv)
{
    uint64_t main_ns = now_ns();
    int rank, size;
    char byte = 1;
    MPI_Comm node;
    if (argc != 3)
        return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!strcmp(argv[1], "node-group")) {
        /* A colour for each node, from the size of nodes: as cheap as a split by colour can be. */
        int ppn = getenv("WIREUP_BENCH_PPN") ? atoi(getenv("WIREUP_BENCH_PPN")) : 1;
        MPI_Comm_split(MPI_COMM_WORLD, rank / ppn, 0, &node);
    } else if (rank == 0) {
        MPI_Send(&byte, 1, MPI_CHAR, size - 1, 0, MPI_COMM_WORLD);
        MPI_Recv(&byte, 1, MPI_CHAR, size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (rank == size - 1) {
        MPI_Recv(&byte, 1, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(&byte, 1, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
    }
    if (!stamp(argv[2], rank, main_ns, now_ns()))
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Finalize();
    return 0;
}
