/* Calls every function of libpmi2 and prints the results, so that the outputs of two libraries can be compared. The argument "slurm"
 * restricts the calls to what Slurm's server implements; "refused" adds calls that the server refuses. Both add names. */
#ifdef OWN_HEADERS
#include "pmi2.h"
#else
#include <slurm/pmi2.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;
static char jobid[256];
static int is_slurms;

static void say(const char *what, int rc, const char *text) {
    printf("%d %s %d %s\n", rank, what, rc, text);
}

static void say_number(const char *what, int rc, int number) {
    printf("%d %s %d %d\n", rank, what, rc, number);
}

/* A hash of many results. */
static void mix(unsigned *sum, const char *text, int number) {
    for (; *text; text++)
        *sum = (*sum ^ (unsigned char)*text) * 16777619u;
    *sum = (*sum ^ (unsigned)number) * 16777619u;
}

static void kvs(void) {
    char key[64], value[1100], text[1100];
    int len = 0, rc;
    unsigned sum = 2166136261u;
    snprintf(key, sizeof key, "key-%d", rank);
    /* In Slurm's server a semicolon ends the value. */
    snprintf(value, sizeof value, "value of %d%c a=b \\ %s", rank, is_slurms ? ',' : ';', "and more");
    say("put", PMI2_KVS_Put(key, value), "");
    memset(value, 'a' + rank % 26, 1023);
    value[1023] = 0;
    snprintf(key, sizeof key, "long-%d", rank);
    say("put", PMI2_KVS_Put(key, value), "");
    say("fence", PMI2_KVS_Fence(), "");
    for (int other = 0; other < size; other++) {
        snprintf(key, sizeof key, "key-%d", other);
        rc = PMI2_KVS_Get(jobid, other, key, text, sizeof text, &len);
        mix(&sum, text, rc);
        mix(&sum, "", len);
        snprintf(key, sizeof key, "long-%d", other);
        rc = PMI2_KVS_Get(jobid, PMI2_ID_NULL, key, text, sizeof text, &len);
        mix(&sum, text, rc);
        rc = PMI2_KVS_Get(jobid, PMI2_ID_NULL, key, text, 10, &len);
        mix(&sum, text, rc);
        mix(&sum, "", len);
        if (other == size - 1) {
            say_number("cut", rc, len);
            say("cut", rc, text);
        }
    }
    say_number("all", 0, (int)sum);
    say("missing", PMI2_KVS_Get(jobid, PMI2_ID_NULL, "no such key", text, sizeof text, &len), "");
    say("fence", PMI2_KVS_Fence(), "");
}

static void info(void) {
    char name[64], text[1024] = "";
    int array[8] = {0}, count = 0, found = 0, rc;
    const char *local = getenv("WIREUP_LOCAL_RANK");
    /* With local ranks only the first process of a node puts, and prints the result. Otherwise all put the same, without printing. */
    if (local && atoi(local) == 0)
        say("put attr", PMI2_Info_PutNodeAttr("numbers", "7,-8,9"), "");
    else if (!local)
        PMI2_Info_PutNodeAttr("numbers", "7,-8,9");
    rc = PMI2_Info_GetNodeAttr("numbers", text, sizeof text, &found, 1);
    say("attr", rc, text);
    rc = PMI2_Info_GetNodeAttrIntArray("numbers", array, 8, &count, &found);
    printf("%d ints %d %d: %d %d %d\n", rank, rc, count, array[0], array[1], array[2]);
    rc = PMI2_Info_GetNodeAttrIntArray("numbers", array, 2, &count, &found);
    say_number("two ints", rc, count);
    snprintf(name, sizeof name, "nobody-%d", rank);
    rc = PMI2_Info_GetNodeAttr(name, text, sizeof text, &found, 0);
    say_number("no attr", rc, found);
    rc = PMI2_Info_GetJobAttr("universeSize", text, sizeof text, &found);
    say("universe", rc, found ? text : "-");
    rc = PMI2_Info_GetJobAttrIntArray("universeSize", array, 8, &count, &found);
    say_number("universe", rc, found ? array[0] : -1);
    rc = PMI2_Info_GetJobAttr("PMI_process_mapping", text, sizeof text, &found);
    say("mapping", rc, found ? text : "-");
    rc = PMI2_Info_GetJobAttr("nobody-knows-this", text, sizeof text, &found);
    say_number("no job attr", rc, found);
}

/* Each rank publishes a name, and its neighbour looks it up. */
static void names(void) {
    char name[64], port[1024] = "";
    snprintf(name, sizeof name, "service-%d", rank);
    snprintf(port, sizeof port, "port of %d", rank);
    say("publish", PMI2_Nameserv_publish(name, NULL, port), "");
    PMI2_KVS_Fence();
    snprintf(name, sizeof name, "service-%d", (rank + 1) % size);
    memset(port, 0, sizeof port);
    int rc = PMI2_Nameserv_lookup(name, NULL, port, sizeof port);
    say("lookup", rc, rc == PMI2_SUCCESS ? port : "");
    PMI2_KVS_Fence();
    snprintf(name, sizeof name, "service-%d", rank);
    say("unpublish", PMI2_Nameserv_unpublish(name, NULL), "");
    PMI2_KVS_Fence();
    say("lookup", PMI2_Nameserv_lookup(name, NULL, port, sizeof port), "");
}

/* Functions that this server does not implement: only the return code matters. */
static void refused(void) {
    char spawned[256];
    int errors[2], argcs[] = {1}, maxprocs[] = {2}, sizes[] = {1};
    const char *commands[] = {"./no-such-program"}, *arguments[] = {"x"};
    const char **argvs[] = {arguments};
    struct MPID_Info object = {0, 0, 0, NULL, "key", "value"};
    const struct MPID_Info *infos[] = {&object}, *preputs[] = {&object};
    PMI2_Connect_comm_t connection = {NULL, NULL, NULL, 0};
    say("connect", PMI2_Job_Connect("another", &connection), "");
    say("disconnect", PMI2_Job_Disconnect("another"), "");
    say("spawn", PMI2_Job_Spawn(1, commands, argcs, argvs, maxprocs, sizes, infos, 1, preputs, spawned, sizeof spawned, errors),
        "");
}

int main(int argc, char **argv) {
    int spawned = -1, appnum = -2, number = -1, rc;
    const char *given = getenv("PMI_JOBID");
    is_slurms = argc > 1 && strcmp(argv[1], "slurm") == 0;
    printf("- before %d\n", PMI2_Initialized());
    rc = PMI2_Init(&spawned, &size, &rank, &appnum);
    say_number("init", rc, spawned);
    say_number("size", PMI2_Initialized(), size);
    say_number("appnum", 0, appnum);
    rc = PMI2_Job_GetRank(&number);
    say_number("rank", rc, number);
    rc = PMI2_Info_GetSize(&number);
    say_number("size", rc, number);
    rc = PMI2_Job_GetId(jobid, sizeof jobid);
    say("job", rc, given && strcmp(given, jobid) ? jobid : "as it should be");
    kvs();
    info();
    if (argc > 1)
        names();
    if (argc > 1 && !is_slurms)
        refused();
    say("finalize", PMI2_Finalize(), "");
    return 0;
}
