/* Every function of pmi.h, used rightly and wrongly. The argument names the server: "alone" for none, "plain" for ours, "hydra",
 * "groups" for a Hydra with PMI 1.2, or "slurm", which does not answer unknown requests. */
#include "check.h"
#include "pmi.h"

static int rank, size;
static char kvsname[256];

static void pairs(void) {
    char key[64], value[1024], wanted[1024], small[4];
    snprintf(key, sizeof key, "key-%d", rank);
    snprintf(value, sizeof value, "value-of=%d;here", rank);
    IS(PMI_KVS_Put(kvsname, key, value), PMI_SUCCESS);
    IS(PMI_KVS_Commit(kvsname), PMI_SUCCESS);
    IS(PMI_Barrier(), PMI_SUCCESS);
    for (int who = 0; who < size; who++) {
        snprintf(key, sizeof key, "key-%d", who);
        snprintf(wanted, sizeof wanted, "value-of=%d;here", who);
        IS(PMI_KVS_Get(kvsname, key, value, sizeof value), PMI_SUCCESS);
        SAME(value, wanted);
        IS(PMI_KVS_Get(kvsname, key, small, sizeof small), PMI_ERR_INVALID_LENGTH);
    }
    IS(PMI_KVS_Get(kvsname, "no-such-key", value, sizeof value), PMI_FAIL);
    IS(PMI_Barrier(), PMI_SUCCESS);
}

static void halves(void) {
    char key[64], value[64];
    int number;
    IS(PMI_Wait(), PMI_FAIL);
    snprintf(key, sizeof key, "half-%d", rank);
    IS(PMI_KVS_Put(kvsname, key, "there"), PMI_SUCCESS);
    IS(PMI_Ibarrier(), PMI_SUCCESS);
    IS(PMI_Ibarrier(), PMI_FAIL);
    IS(PMI_Get_appnum(&number), PMI_SUCCESS);
    IS(PMI_KVS_Get(kvsname, key, value, sizeof value), PMI_FAIL);
    IS(PMI_Wait(), PMI_SUCCESS);
    IS(PMI_Wait(), PMI_FAIL);
    snprintf(key, sizeof key, "half-%d", (rank + 1) % size);
    IS(PMI_KVS_Get(kvsname, key, value, sizeof value), PMI_SUCCESS);
    SAME(value, "there");
    IS(PMI_Ibarrier(), PMI_SUCCESS);
    IS(PMI_Barrier(), PMI_SUCCESS);
    IS(PMI_Wait(), PMI_SUCCESS);
}

static void job(const char *server) {
    int number = -7, name_max, key_max, value_max, count = 0, *ranks = malloc(size * sizeof *ranks), found = 0;
    char id[256];
    IS(PMI_Get_universe_size(&number), PMI_SUCCESS);
    IS(PMI_Get_appnum(&number), PMI_SUCCESS);
    IS(number, strcmp(server, "alone") == 0 || strcmp(server, "slurm") == 0 ? -1 : 0);
    IS(PMI_Get_id_length_max(&name_max), PMI_SUCCESS);
    IS(PMI_KVS_Get_name_length_max(&number), PMI_SUCCESS);
    IS(number, name_max);
    IS(PMI_KVS_Get_key_length_max(&key_max), PMI_SUCCESS);
    IS(PMI_KVS_Get_value_length_max(&value_max), PMI_SUCCESS);
    IS(key_max, 64);
    IS(value_max % 2, 0);
    IS(PMI_Get_id(id, sizeof id), PMI_SUCCESS);
    SAME(id, kvsname);
    IS(PMI_Get_kvs_domain_id(id, sizeof id), PMI_SUCCESS);
    IS(PMI_Get_id(id, 2), PMI_ERR_INVALID_LENGTH);
    IS(PMI_Get_clique_size(&count), PMI_SUCCESS);
    IS(PMI_Get_clique_ranks(ranks, count), PMI_SUCCESS);
    for (int at = 0; at < count; at++) {
        found |= ranks[at] == rank;
        IS(at && ranks[at] <= ranks[at - 1], 0);
    }
    IS(found, 1);
    IS(PMI_Get_clique_ranks(ranks, count - 1), PMI_ERR_INVALID_LENGTH);
    if (getenv("WIREUP_LOCAL_SIZE"))
        IS(count, atoi(getenv("WIREUP_LOCAL_SIZE")));
    free(ranks);
}

/* Every pair that was put so far, each once. */
static void walk_all(void) {
    char key[64], value[1024], found[1024];
    int count = 0, *met = calloc(2 * size, sizeof *met);
    IS(PMI_KVS_Iter_first(kvsname, key, sizeof key, value, sizeof value), PMI_SUCCESS);
    for (; key[0]; count++) {
        int who = atoi(strchr(key, '-') + 1);
        IS(met[2 * who + (key[0] == 'k')]++, 0);
        IS(PMI_KVS_Get(kvsname, key, found, sizeof found), PMI_SUCCESS);
        SAME(value, found);
        IS(PMI_KVS_Iter_next(kvsname, key, sizeof key, value, sizeof value), PMI_SUCCESS);
    }
    IS(count, 2 * size);
    IS(PMI_KVS_Iter_next(kvsname, key, sizeof key, value, sizeof value), PMI_SUCCESS);
    SAME(key, "");
    free(met);
}

static void walk(const char *server) {
    char key[64], value[1024];
    if (strcmp(server, "plain") == 0)
        walk_all();
    if (strcmp(server, "alone") != 0)
        return;
    IS(PMI_KVS_Iter_first(kvsname, key, sizeof key, value, sizeof value), PMI_SUCCESS);
    SAME(key, "key-0");
    SAME(value, "value-of=0;here");
    IS(PMI_KVS_Iter_next(kvsname, key, sizeof key, value, sizeof value), PMI_SUCCESS);
    SAME(key, "half-0");
    IS(PMI_KVS_Iter_next(kvsname, key, sizeof key, value, sizeof value), PMI_SUCCESS);
    SAME(key, "");
}

/* For servers that are known to refuse what they do not implement. */
static void refused(const char *server) {
    char text[1024];
    int errors[2], maxprocs[] = {2}, sizes[] = {1};
    const char *commands[] = {"./no-such-program"}, *arguments[] = {"a b", NULL};
    const char **argvs[] = {arguments};
    PMI_keyval_t pair = {"key", "value"};
    const PMI_keyval_t *infos[] = {&pair};
    if (strcmp(server, "hydra") == 0 || strcmp(server, "groups") == 0 || strcmp(server, "slurm") == 0)
        return;
    IS(PMI_Spawn_multiple(1, commands, argvs, maxprocs, sizes, infos, 1, &pair, errors), PMI_FAIL);
    IS(PMI_KVS_Create(text, sizeof text), PMI_FAIL);
    IS(PMI_KVS_Destroy("another"), PMI_FAIL);
}

/* Each rank publishes a name, and its neighbour looks it up. Slurm's server replaces a name that is published again. */
static void names(const char *server) {
    char name[64], port[1024], wanted[64];
    snprintf(name, sizeof name, "service-%d", rank);
    snprintf(wanted, sizeof wanted, "port-of-%d", rank);
    IS(PMI_Publish_name(name, wanted), PMI_SUCCESS);
    if (strcmp(server, "slurm") != 0)
        IS(PMI_Publish_name(name, "another"), PMI_FAIL);
    IS(PMI_Barrier(), PMI_SUCCESS);
    snprintf(name, sizeof name, "service-%d", (rank + 1) % size);
    snprintf(wanted, sizeof wanted, "port-of-%d", (rank + 1) % size);
    IS(PMI_Lookup_name(name, port), PMI_SUCCESS);
    SAME(port, wanted);
    IS(PMI_Barrier(), PMI_SUCCESS);
    snprintf(name, sizeof name, "service-%d", rank);
    IS(PMI_Unpublish_name(name), PMI_SUCCESS);
    IS(PMI_Barrier(), PMI_SUCCESS);
    IS(PMI_Lookup_name(name, port), PMI_FAIL);
    if (strcmp(server, "slurm") != 0)
        IS(PMI_Unpublish_name(name), PMI_FAIL);
}

static void groups(const char *server) {
    int members[] = {0, size - 1}, has_groups = strcmp(server, "groups") == 0 || strcmp(server, "plain") == 0;
    int wanted = has_groups || strcmp(server, "alone") == 0 ? PMI_SUCCESS : PMI_FAIL;
    IS(PMI_Barrier_group(PMI_GROUP_SELF, 0, NULL), wanted);
    IS(PMI_Barrier_group(PMI_GROUP_WORLD, 0, NULL), wanted);
    IS(PMI_Barrier_group(PMI_GROUP_NODE, 0, "tag"), wanted);
    if (has_groups && size > 1 && (rank == 0 || rank == size - 1))
        IS(PMI_Barrier_group(members, 2, "both"), PMI_SUCCESS);
}

static void options(void) {
    char *args[] = {"-key", "value", "--other=1", "plain", "name=x", "-last"};
    char **line = args, text[16];
    PMI_keyval_t *pairs = NULL;
    int count = 6, parsed = -1, number = -1;
    IS(PMI_Parse_option(6, args, &parsed, &pairs, &number), PMI_SUCCESS);
    IS(parsed, 2);
    IS(number, 1);
    SAME(pairs[0].key, "key");
    SAME(pairs[0].val, "value");
    IS(PMI_Free_keyvals(pairs, number), PMI_SUCCESS);
    IS(PMI_Parse_option(1, args + 3, &parsed, &pairs, &number), PMI_SUCCESS);
    IS(number, 0);
    IS(PMI_Args_to_keyval(&count, (char *((*)[]))&line, &pairs, &number), PMI_SUCCESS);
    IS(number, 3);
    SAME(pairs[2].key, "name");
    IS(PMI_Free_keyvals(pairs, number), PMI_SUCCESS);
    IS(PMI_Free_keyvals(NULL, 0), PMI_SUCCESS);
    IS(PMI_Parse_option(0, args, &parsed, &pairs, &number), PMI_ERR_INVALID_NUM_ARGS);
    IS(PMI_Parse_option(1, NULL, &parsed, &pairs, &number), PMI_ERR_INVALID_ARGS);
    IS(PMI_Parse_option(1, args, NULL, &pairs, &number), PMI_ERR_INVALID_NUM_PARSED);
    IS(PMI_Parse_option(1, args, &parsed, NULL, &number), PMI_ERR_INVALID_KEYVALP);
    IS(PMI_Parse_option(1, args, &parsed, &pairs, NULL), PMI_ERR_INVALID_SIZE);
    number = sizeof text;
    IS(PMI_Get_options(text, &number), PMI_SUCCESS);
    SAME(text, "");
}

static void misuse(void) {
    char long_text[2000], value[64];
    memset(long_text, 'v', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = 0;
    IS(PMI_Get_size(NULL), PMI_ERR_INVALID_ARG);
    IS(PMI_Init(NULL), PMI_ERR_INVALID_ARG);
    IS(PMI_Initialized(NULL), PMI_ERR_INVALID_ARG);
    IS(PMI_KVS_Put(NULL, "k", "v"), PMI_ERR_INVALID_ARG);
    IS(PMI_KVS_Put(kvsname, NULL, "v"), PMI_ERR_INVALID_KEY);
    IS(PMI_KVS_Put(kvsname, "", "v"), PMI_ERR_INVALID_KEY);
    IS(PMI_KVS_Put(kvsname, "a b", "v"), PMI_ERR_INVALID_KEY);
    IS(PMI_KVS_Put(kvsname, long_text, "v"), PMI_ERR_INVALID_KEY_LENGTH);
    IS(PMI_KVS_Put(kvsname, "k", NULL), PMI_ERR_INVALID_VAL);
    IS(PMI_KVS_Put(kvsname, "k", ""), PMI_ERR_INVALID_VAL);
    IS(PMI_KVS_Put(kvsname, "k", "a\nb"), PMI_ERR_INVALID_VAL);
    IS(PMI_KVS_Put(kvsname, "k", long_text), PMI_ERR_INVALID_VAL_LENGTH);
    IS(PMI_KVS_Get(kvsname, "k", NULL, 10), PMI_ERR_INVALID_ARG);
    IS(PMI_KVS_Get(NULL, "k", value, sizeof value), PMI_ERR_INVALID_ARG);
    IS(PMI_KVS_Commit(NULL), PMI_ERR_INVALID_ARG);
}

int main(int argc, char **argv) {
    const char *server = argc > 1 ? argv[1] : "plain";
    int spawned = -1, initialized = -1;
    IS(PMI_Initialized(&initialized), PMI_SUCCESS);
    IS(initialized, PMI_FALSE);
    IS(PMI_Get_rank(&rank), PMI_ERR_INIT);
    IS(PMI_Barrier(), PMI_ERR_INIT);
    IS(PMI_Finalize(), PMI_ERR_INIT);
    IS(PMI_Init(&spawned), PMI_SUCCESS);
    IS(spawned, PMI_FALSE);
    IS(PMI_Initialized(&initialized), PMI_SUCCESS);
    IS(initialized, PMI_TRUE);
    IS(PMI_Get_rank(&rank), PMI_SUCCESS);
    IS(PMI_Get_size(&size), PMI_SUCCESS);
    IS(PMI_KVS_Get_my_name(kvsname, sizeof kvsname), PMI_SUCCESS);
    pairs();
    halves();
    job(server);
    walk(server);
    refused(server);
    names(server);
    groups(server);
    options();
    misuse();
    pairs();
    IS(PMI_Finalize(), PMI_SUCCESS);
    printf("%d of %d: all right\n", rank, size);
    return 0;
}
