/* Starts further processes and talks with them. The first word says what to do; a child gets the word "child" in front of what the
   parents say. Each line begins with "parent" or "child", so that callers can count them.

   spawn N [KEY VALUE]...     N children, with these info keys
   multiple A B               A and B children of two commands
   chain N                    a child that does the same with N-1
   repeat COUNT [KEY VALUE]...  COUNT times one child, one after the other
   missing PROGRAM            asks for PROGRAM, which cannot be started, and goes on
   fail                       two children that exit with code 9 while the parents wait for them
   late                       the parents end first, unless FAMILY_UNTIL is set; the children write later */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size;

/* Until the file that FAMILY_UNTIL names exists, at most half a minute; without the variable for a second. */
static void wait_until_allowed(void) {
    const char *file = getenv("FAMILY_UNTIL");
    if (file == NULL) {
        sleep(1);
        return;
    }
    for (int i = 0; i < 3000 && access(file, F_OK) != 0; i++) {
        usleep(10000);
    }
}

static MPI_Info info_of(char **words)
{
    MPI_Info info;
    MPI_Info_create(&info);
    for (; words[0] && words[1]; words += 2)
        MPI_Info_set(info, words[0], words[1]);
    return info;
}

/* Both sides: the sum of everybody's 1 over the two groups. */
static int count_all(MPI_Comm between, int high)
{
    MPI_Comm all;
    int one = 1, sum = 0;
    MPI_Intercomm_merge(between, high, &all);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, all);
    MPI_Comm_free(&all);
    return sum;
}

static MPI_Comm spawn(char *program, int count, char **argv, MPI_Info info)
{
    MPI_Comm between;
    int codes[64];
    MPI_Comm_spawn(program, argv, count, info, 0, MPI_COMM_WORLD, &between, codes);
    return between;
}

static int universe(void)
{
    int *value, found;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &value, &found);
    return found ? *value : -1;
}

static void child(MPI_Comm parents, char **argv)
{
    char name[MPI_MAX_PROCESSOR_NAME], cwd[1024];
    int length, *appnum, found, others;
    const char *mark = getenv("FAMILY_MARK");

    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &appnum, &found);
    MPI_Comm_remote_size(parents, &others);
    MPI_Get_processor_name(name, &length);
    if (strcmp(argv[0], "fail") == 0) {
        count_all(parents, 1);
        exit(9);
    }
    printf("child %d of %d, program %d, parents %d, in %s%s%s\n", rank, size, found ? *appnum : -1, others,
           getcwd(cwd, sizeof cwd), mark ? ", mark " : "", mark ? mark : "");
    fflush(stdout);
    if (strcmp(argv[0], "late") == 0) {
        MPI_Barrier(parents);
        MPI_Comm_disconnect(&parents);
        wait_until_allowed();
        printf("child %d is the last\n", rank);
        return;
    }
    printf("child %d counts %d\n", rank, count_all(parents, 1));
    MPI_Comm_disconnect(&parents);
}

int main(int argc, char **argv)
{
    MPI_Comm parents, between;
    char *word, *self = argv[0], number[16];

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_get_parent(&parents);
    word = argc > 1 ? argv[1] : "spawn";
    if (parents != MPI_COMM_NULL && strcmp(word, "chain") != 0) {
        child(parents, argv + 1);
    } else if (strcmp(word, "spawn") == 0) {
        char *args[] = { "spawn", "two words", NULL };
        between = spawn(self, atoi(argv[2]), args, info_of(argv + 3));
        printf("parent %d counts %d, universe %d\n", rank, count_all(between, 0), universe());
        MPI_Comm_disconnect(&between);
    } else if (strcmp(word, "multiple") == 0) {
        char *commands[] = { self, self }, *args[] = { "multiple", NULL }, **all_args[] = { args, args };
        int counts[] = { atoi(argv[2]), atoi(argv[3]) }, codes[64];
        MPI_Info infos[] = { MPI_INFO_NULL, MPI_INFO_NULL };
        MPI_Comm_spawn_multiple(2, commands, all_args, counts, infos, 0, MPI_COMM_WORLD, &between, codes);
        printf("parent %d counts %d\n", rank, count_all(between, 0));
        MPI_Comm_disconnect(&between);
    } else if (strcmp(word, "chain") == 0) {
        int left = atoi(argv[2]);
        printf("parent with %d to come\n", left);
        if (left > 0) {
            char *args[] = { "chain", number, NULL };
            snprintf(number, sizeof number, "%d", left - 1);
            between = spawn(self, 1, args, MPI_INFO_NULL);
            MPI_Comm_disconnect(&between);
        }
        if (parents != MPI_COMM_NULL)
            MPI_Comm_disconnect(&parents);
    } else if (strcmp(word, "repeat") == 0) {
        char *args[] = { "repeat", NULL };
        int sum = 0;
        for (int round = atoi(argv[2]); round > 0; round--) {
            between = spawn(self, 1, args, info_of(argv + 3));
            sum += count_all(between, 0);
            MPI_Comm_disconnect(&between);
        }
        printf("parent %d counts %d\n", rank, sum);
    } else if (strcmp(word, "missing") == 0) {
        int code;
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        code = MPI_Comm_spawn(argv[2], MPI_ARGV_NULL, 2, info_of(argv + 3), 0, MPI_COMM_WORLD, &between,
                              MPI_ERRCODES_IGNORE);
        printf("parent %d %s\n", rank, code == MPI_SUCCESS ? "succeeds" : "is refused");
    } else if (strcmp(word, "fail") == 0) {
        char *args[] = { "fail", NULL };
        between = spawn(self, 2, args, MPI_INFO_NULL);
        count_all(between, 0);
        count_all(between, 0);
    } else if (strcmp(word, "late") == 0) {
        char *args[] = { "late", NULL };
        between = spawn(self, 2, args, MPI_INFO_NULL);
        /* MPICH's parents would not wait until the children have connected to all of them. */
        MPI_Barrier(between);
        MPI_Comm_disconnect(&between);
        if (getenv("FAMILY_UNTIL") != NULL) {
            /* The whole family is seen until then. */
            wait_until_allowed();
        }
        printf("parent %d ends\n", rank);
    }
    MPI_Finalize();
    return 0;
}
