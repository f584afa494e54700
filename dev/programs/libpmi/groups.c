/* Barriers of groups (PMI 1.2): all ranks, the ranks of a node, lists of ranks, repeated, with puts that only the group has to see;
 * then calls that are refused. With the argument "threads", four threads also wait in barriers at the same time, for libraries that
 * support it. */
#include <pthread.h>
#include "check.h"
#include "pmi.h"

static int rank, size;
static char kvsname[256];

static void put(const char *what, int round) {
    char key[64], value[64];
    snprintf(key, sizeof key, "%s-%d-%d", what, rank, round);
    snprintf(value, sizeof value, "of-%d-in-%d", rank, round);
    IS(PMI_KVS_Put(kvsname, key, value), PMI_SUCCESS);
    IS(PMI_KVS_Commit(kvsname), PMI_SUCCESS);
}

static void get(const char *what, int who, int round) {
    char key[64], value[64], wanted[64];
    snprintf(key, sizeof key, "%s-%d-%d", what, who, round);
    snprintf(wanted, sizeof wanted, "of-%d-in-%d", who, round);
    IS(PMI_KVS_Get(kvsname, key, value, sizeof value), PMI_SUCCESS);
    SAME(value, wanted);
}

/* All ranks with the same remainder as the caller. */
static int alike(int modulo, int *members) {
    int count = 0;
    for (int who = rank % modulo; who < size; who += modulo)
        members[count++] = who;
    return count;
}

static void rounds(const char *what, const int *group, int count, const int *members, int member_count, const char *tag) {
    for (int round = 0; round < 20; round++) {
        put(what, round);
        IS(PMI_Barrier_group(group, count, tag), PMI_SUCCESS);
        for (int at = 0; at < member_count; at++)
            get(what, members[at], round);
    }
}

static int *members[4], counts[4];

static void *thread(void *place) {
    int which = *(int *)place;
    char tag[16];
    snprintf(tag, sizeof tag, "thread-%d", which);
    for (int round = 0; round < 50; round++)
        IS(PMI_Barrier_group(which ? members[which] : PMI_GROUP_WORLD, counts[which], tag), PMI_SUCCESS);
    return NULL;
}

static void threads(void) {
    pthread_t ids[4];
    int places[4];
    for (int which = 0; which < 4; which++) {
        places[which] = which;
        IS(pthread_create(&ids[which], NULL, thread, &places[which]), 0);
    }
    for (int which = 0; which < 4; which++)
        IS(pthread_join(ids[which], NULL), 0);
}

static void refused(void) {
    int beyond[] = {rank, size}, twice[] = {rank, rank}, others[] = {(rank + 1) % size};
    IS(PMI_Barrier_group(beyond, 2, "beyond"), PMI_FAIL);
    IS(PMI_Barrier_group(twice, 2, "twice"), PMI_FAIL);
    if (size > 1)
        IS(PMI_Barrier_group(others, 1, "others"), PMI_FAIL);
}

int main(int argc, char **argv) {
    int spawned, node_count, *node;
    IS(PMI_Init(&spawned), PMI_SUCCESS);
    IS(PMI_Get_rank(&rank), PMI_SUCCESS);
    IS(PMI_Get_size(&size), PMI_SUCCESS);
    IS(PMI_KVS_Get_my_name(kvsname, sizeof kvsname), PMI_SUCCESS);
    for (int modulo = 1; modulo < 4; modulo++) {
        members[modulo] = malloc(size * sizeof(int));
        counts[modulo] = alike(modulo, members[modulo]);
    }
    rounds("world", PMI_GROUP_WORLD, 0, members[1], size, "w");
    rounds("all", members[1], size, members[1], size, NULL);
    rounds("pair", members[2], counts[2], members[2], counts[2], "p");
    rounds("third", members[3], counts[3], members[3], counts[3], "p");
    if (argc > 1 && strcmp(argv[1], "threads") == 0) {
        threads();
    } else {
        IS(PMI_Get_clique_size(&node_count), PMI_SUCCESS);
        node = malloc(node_count * sizeof(int));
        IS(PMI_Get_clique_ranks(node, node_count), PMI_SUCCESS);
        rounds("node", PMI_GROUP_NODE, 0, node, node_count, NULL);
        free(node);
        refused();
    }
    put("last", 0);
    IS(PMI_Barrier(), PMI_SUCCESS);
    get("last", (rank + 1) % size, 0);
    IS(PMI_Finalize(), PMI_SUCCESS);
    for (int modulo = 1; modulo < 4; modulo++)
        free(members[modulo]);
    printf("%d of %d: all right\n", rank, size);
    return 0;
}
