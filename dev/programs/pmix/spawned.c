/* Jobs that ranks start, and what they have to do with each other. The first word says what to do; a child gets "child" and that word.

   family N    N children: all connect, get each other's data, enter a fence together and disconnect
   orphan      the child disconnects, and fails later; the parents go on
   bound       the child fails without having disconnected; the parents wait for it
   absent      the child never connects and ends: the parents are told
   late        the child connects late: the parents wait one second only
   refused     what cannot be is refused at once */
#include "check.h"

static char *word, self[4096], kin[PMIX_MAX_NSLEN + 1];

static pmix_proc_t proc_of(const char *nspace, uint32_t rank)
{
    pmix_proc_t proc;

    PMIX_LOAD_PROCID(&proc, nspace, rank);
    return proc;
}

static uint32_t number_of(const char *nspace, const char *key)
{
    pmix_proc_t proc = proc_of(nspace, PMIX_RANK_WILDCARD);
    pmix_value_t *value = NULL;

    MUST(PMIx_Get(&proc, key, NULL, 0, &value));
    CHECK(value->type == PMIX_UINT32);
    uint32_t number = value->data.uint32;
    PMIX_VALUE_RELEASE(value);
    return number;
}

static pmix_status_t ask_for(const char *program, int count, const char *key, const char *text)
{
    pmix_app_t *app;

    PMIX_APP_CREATE(app, 1);
    app->cmd = strdup(program);
    app->maxprocs = count;
    app->argv = calloc(4, sizeof *app->argv);
    app->argv[0] = strdup(program);
    app->argv[1] = strdup("child");
    app->argv[2] = strdup(word);
    app->env = calloc(2, sizeof *app->env);
    app->env[0] = strdup("KIN_MARK=two\nlines");
    if (key) {
        app->ninfo = 1;
        PMIX_INFO_CREATE(app->info, 1);
        PMIX_INFO_LOAD(&app->info[0], key, text, PMIX_STRING);
    }
    pmix_status_t status = PMIx_Spawn(NULL, 0, app, 1, kin);
    PMIX_APP_FREE(app, 1);
    return status;
}

/* Rank 0 starts a job, and tells the others its name. */
static void start(int count)
{
    pmix_value_t value, *found;
    pmix_proc_t first = rank_of(0);

    put("kin", 0, 40);
    if (me.rank == 0) {
        MUST(ask_for(self, count, NULL, NULL));
        PMIX_VALUE_LOAD(&value, kin, PMIX_STRING);
        MUST(PMIx_Put(PMIX_GLOBAL, "name", &value));
        PMIX_VALUE_DESTRUCT(&value);
    }
    MUST(PMIx_Commit());
    MUST(fence(true));
    MUST(PMIx_Get(&first, "name", NULL, 0, &found));
    strcpy(kin, found->data.string);
    PMIX_VALUE_RELEASE(found);
}

/* The rank that has asked for this job. */
static void find_parents(void)
{
    pmix_proc_t mine = rank_of(me.rank);
    pmix_value_t *value;

    MUST(PMIx_Get(&mine, PMIX_SPAWNED, NULL, 0, &value));
    CHECK(value->type == PMIX_BOOL && value->data.flag);
    PMIX_VALUE_RELEASE(value);
    MUST(PMIx_Get(&mine, PMIX_PARENT_ID, NULL, 0, &value));
    CHECK(value->type == PMIX_PROC && value->data.proc->rank == 0);
    strcpy(kin, value->data.proc->nspace);
    PMIX_VALUE_RELEASE(value);
    CHECK(strcmp(getenv("KIN_MARK"), "two\nlines") == 0);
}

/* Both jobs, in an order that depends on the side. */
static pmix_proc_t both[2];

static void name_both(void)
{
    both[0] = everybody;
    both[1] = proc_of(kin, PMIX_RANK_WILDCARD);
}

static void get_all_of_kin(void)
{
    uint32_t count = number_of(kin, PMIX_JOB_SIZE);

    for (uint32_t rank = 0; rank < count; rank++) {
        pmix_proc_t proc = proc_of(kin, rank);
        pmix_value_t *value = NULL;
        char *text = made(rank, 0, 40);
        MUST(PMIx_Get(&proc, "kin", NULL, 0, &value));
        CHECK(value->type == PMIX_STRING && strcmp(value->data.string, text) == 0);
        PMIX_VALUE_RELEASE(value);
        free(text);
    }
}

static void meet(const char *side)
{
    name_both();
    MUST(PMIx_Connect(both, 2, NULL, 0));
    get_all_of_kin();
    for (int turn = 0; turn < 3; turn++)
        MUST(PMIx_Fence(both, 2, NULL, 0));
    /* The last rank here with the last one there. */
    pmix_proc_t pair[2] = { rank_of(size - 1), proc_of(kin, number_of(kin, PMIX_JOB_SIZE) - 1) };
    if (me.rank == size - 1)
        MUST(PMIx_Fence(pair, 2, NULL, 0));
    uint32_t count = number_of(kin, PMIX_JOB_SIZE);
    MUST(PMIx_Disconnect(both, 2, NULL, 0));
    printf("%s %u of %u has met %u\n", side, me.rank, size, count);
    fflush(stdout);
}

static void child(void)
{
    find_parents();
    put("kin", 0, 40);
    MUST(PMIx_Commit());
    name_both();
    if (strcmp(word, "family") == 0) {
        meet("child");
    } else if (strcmp(word, "orphan") == 0) {
        MUST(PMIx_Connect(both, 2, NULL, 0));
        MUST(PMIx_Disconnect(both, 2, NULL, 0));
        exit(9);
    } else if (strcmp(word, "bound") == 0) {
        MUST(PMIx_Connect(both, 2, NULL, 0));
        exit(9);
    } else if (strcmp(word, "late") == 0) {
        sleep(3);
    }
}

static void parent(int count)
{
    pmix_info_t info;
    int second = 1;

    start(count);
    name_both();
    if (strcmp(word, "family") == 0) {
        meet("parent");
    } else if (strcmp(word, "orphan") == 0) {
        MUST(PMIx_Connect(both, 2, NULL, 0));
        MUST(PMIx_Disconnect(both, 2, NULL, 0));
        sleep(1);
        printf("parent %u goes on\n", me.rank);
    } else if (strcmp(word, "bound") == 0) {
        MUST(PMIx_Connect(both, 2, NULL, 0));
        PMIx_Fence(both, 2, NULL, 0);
        sleep(60);
    } else if (strcmp(word, "absent") == 0) {
        CHECK(PMIx_Connect(both, 2, NULL, 0) != PMIX_SUCCESS);
        printf("parent %u is told\n", me.rank);
    } else if (strcmp(word, "late") == 0) {
        PMIX_INFO_LOAD(&info, PMIX_TIMEOUT, &second, PMIX_INT);
        pmix_status_t status = PMIx_Connect(both, 2, &info, 1);
        /* Another one has waited, and ended. */
        CHECK(status == PMIX_ERR_TIMEOUT || status == PMIX_ERR_LOST_CONNECTION);
        printf("parent %u has waited\n", me.rank);
    }
}

static void refused(void)
{
    pmix_proc_t pair[2] = { everybody, proc_of("nobody", PMIX_RANK_WILDCARD) };
    pmix_value_t *value;

    if (me.rank == 0) {
        CHECK(ask_for("/no/such/program", 1, NULL, NULL) != PMIX_SUCCESS);
        CHECK(ask_for("/bin/true", 1, PMIX_HOST, "moon") != PMIX_SUCCESS);
        CHECK(ask_for("/bin/true", 1, PMIX_PREFIX, "/opt") != PMIX_SUCCESS);
        CHECK(ask_for("/bin/true", 1, PMIX_HOSTFILE, "/no/such/file") != PMIX_SUCCESS);
        CHECK(ask_for("/bin/true", 0, NULL, NULL) != PMIX_SUCCESS);
        CHECK(PMIx_Get(&pair[1], PMIX_JOB_SIZE, NULL, 0, &value) != PMIX_SUCCESS);
        pmix_proc_t one = proc_of("nobody", 0);
        CHECK(PMIx_Get(&one, "kin", NULL, 0, &value) != PMIX_SUCCESS);
    }
    MUST(fence(false));
    CHECK(PMIx_Connect(pair, 2, NULL, 0) != PMIX_SUCCESS);
    printf("rank %u is refused\n", me.rank);
}

int main(int argc, char **argv)
{
    CHECK(realpath(argv[0], self));
    begin();
    if (argc > 2 && strcmp(argv[1], "child") == 0) {
        word = argv[2];
        child();
    } else {
        word = argv[1];
        if (strcmp(word, "refused") == 0)
            refused();
        else
            parent(argc > 2 ? atoi(argv[2]) : 1);
    }
    finish();
    return 0;
}
