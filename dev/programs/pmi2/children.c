/* Rank 0 starts three children of two programs by PMI-2, with a pair for them, and tells them a name under which they answer. */
#include <slurm/pmi2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Text with what separates the fields of a message. */
static char pair[] = "a;b = c;;d";

static void check(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void child(int rank, int size, int appnum, const char *word)
{
    char job[PMI2_MAX_VALLEN], value[PMI2_MAX_VALLEN];
    int length;

    check(PMI2_Job_GetId(job, sizeof job) == PMI2_SUCCESS, "job id");
    check(PMI2_KVS_Get(job, PMI2_ID_NULL, "pair", value, sizeof value, &length) == PMI2_SUCCESS, "get the pair");
    check(strcmp(value, pair) == 0, "the pair");
    printf("child %d of %d, program %d, %s\n", rank, size, appnum, word);
}

static void parent(const char *self, const char *program)
{
    const char *commands[] = { self, program ? program : self };
    const char *first[] = { "two words" }, *second[] = { "b;c" }, **arguments[] = { first, second };
    int counts[] = { 1, 1 }, maxprocs[] = { 1, 2 }, infos[] = { 0, 0 }, errors[3] = { 9, 9, 9 };
    struct MPID_Info preput = { .key = "pair", .value = pair };
    const struct MPID_Info *preputs[] = { &preput }, *none[] = { NULL, NULL };
    char job[PMI2_MAX_VALLEN] = "";

    int code = PMI2_Job_Spawn(2, commands, counts, arguments, maxprocs, infos, none, 1, preputs, job, sizeof job, errors);
    if (code != PMI2_SUCCESS) {
        printf("parent is refused\n");
        return;
    }
    check(job[0] != 0, "the job's name");
    printf("parent has started %s\n", strchr(job, '-') ? "a job" : "nothing");
}

int main(int argc, char **argv)
{
    int spawned, size, rank, appnum;

    check(PMI2_Init(&spawned, &size, &rank, &appnum) == PMI2_SUCCESS, "init");
    if (spawned)
        child(rank, size, appnum, argc > 1 ? argv[1] : "");
    else if (rank == 0)
        parent(argv[0], argc > 1 ? argv[1] : NULL);
    PMI2_Finalize();
    return 0;
}
