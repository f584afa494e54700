/* Names of MPI, in one job: found by all ranks, published and withdrawn once. Prints the classes of the errors, for comparison with other
 * launchers. With an argument: two jobs find each other by that name, and one sends a number to the other. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static int rank;

static void say(const char *what, int error)
{
    int class;
    char text[MPI_MAX_ERROR_STRING];
    int length;

    MPI_Error_class(error, &class);
    MPI_Error_string(class, text, &length);
    if (rank == 0)
        printf("%s: %s\n", what, error == MPI_SUCCESS ? "success" : class == MPI_ERR_NAME ? "MPI_ERR_NAME" :
               class == MPI_ERR_SERVICE ? "MPI_ERR_SERVICE" : text);
}

static void within_a_job(int size)
{
    char port[MPI_MAX_PORT_NAME], found[MPI_MAX_PORT_NAME] = "";
    int last = rank == size - 1, right = 0, all = 0, error;

    say("look up nothing", MPI_Lookup_name("nobody's", MPI_INFO_NULL, found));
    say("withdraw nothing", MPI_Unpublish_name("nobody's", MPI_INFO_NULL, "port"));
    strcpy(port, "tag#0$description#here$port#7$ifname#127.0.0.1$");
    error = last ? MPI_Publish_name("service", MPI_INFO_NULL, port) : MPI_SUCCESS;
    MPI_Bcast(&error, 1, MPI_INT, size - 1, MPI_COMM_WORLD);
    say("publish", error);
    say("publish again", rank == 0 ? MPI_Publish_name("service", MPI_INFO_NULL, "another") : MPI_SUCCESS);
    error = MPI_Lookup_name("service", MPI_INFO_NULL, found);
    say("look up", error);
    right = error == MPI_SUCCESS && strcmp(found, port) == 0;
    MPI_Allreduce(&right, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d of %d have found it\n", all, size);
    error = last ? MPI_Unpublish_name("service", MPI_INFO_NULL, port) : MPI_SUCCESS;
    MPI_Bcast(&error, 1, MPI_INT, size - 1, MPI_COMM_WORLD);
    say("withdraw", error);
    say("look up what is withdrawn", MPI_Lookup_name("service", MPI_INFO_NULL, found));
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Whoever publishes first is the server. */
static void between_jobs(const char *name)
{
    char port[MPI_MAX_PORT_NAME] = "";
    int serves = 0, number = 17;
    MPI_Comm other;

    if (rank == 0) {
        MPI_Open_port(MPI_INFO_NULL, port);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        serves = MPI_Publish_name(name, MPI_INFO_NULL, port) == MPI_SUCCESS;
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    }
    MPI_Bcast(&serves, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (serves) {
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other);
        if (rank == 0)
            MPI_Send(&number, 1, MPI_INT, 0, 0, other);
    } else {
        if (rank == 0)
            MPI_Lookup_name(name, MPI_INFO_NULL, port);
        MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other);
        if (rank == 0) {
            number = 0;
            MPI_Recv(&number, 1, MPI_INT, 0, 0, other, MPI_STATUS_IGNORE);
            printf("the number is %d\n", number);
        }
    }
    MPI_Comm_disconnect(&other);
}

int main(int argc, char **argv)
{
    int size;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 1) {
        between_jobs(argv[1]);
    } else {
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        within_a_job(size);
    }
    MPI_Finalize();
    return 0;
}
