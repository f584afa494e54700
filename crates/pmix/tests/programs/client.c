/* A rank of a job of PMIx: puts, commits, fences with data, gets from every rank, publishes, looks up, leaves.
 *
 * What it does is named by its arguments, in order; it prints what it sees, a line each, and exits with the number of
 * things that went wrong. */
#define _GNU_SOURCE
#include <pmix.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pmix_proc_t me, job;
static int wrong;

/* The library's word for a result; versions differ in how they begin. */
static const char *word(pmix_status_t code) {
    static char words[8][64];
    static int next;
    const char *text = PMIx_Error_string(code);
    if (!strncmp(text, "PMIX_", 5)) text += 5;
    if (!strncmp(text, "ERR_", 4)) text += 4;
    if (!strncmp(text, "EVENT_", 6)) text += 6;
    char *copy = words[next++ % 8];
    snprintf(copy, 64, "%s", text);
    for (char *at = copy; *at; at++)
        if (*at == '_') *at = '-';
    return copy;
}

static void check(const char *what, pmix_status_t code) {
    if (code != PMIX_SUCCESS) {
        printf("%s: %s\n", what, word(code));
        wrong++;
    }
}

static pmix_status_t get(pmix_rank_t rank, const char *key, pmix_value_t **value) {
    pmix_proc_t peer = job;
    peer.rank = rank;
    return PMIx_Get(&peer, key, NULL, 0, value);
}

/* Asks its owner again. */
static pmix_status_t get_anew(pmix_rank_t rank, const char *key, pmix_value_t **value) {
    pmix_proc_t peer = job;
    pmix_info_t info;
    bool yes = true;
    PMIX_INFO_LOAD(&info, PMIX_GET_REFRESH_CACHE, &yes, PMIX_BOOL);
    peer.rank = rank;
    return PMIx_Get(&peer, key, &info, 1, value);
}

static void show(const char *name, pmix_rank_t rank, const char *key) {
    pmix_value_t *value = NULL;
    pmix_status_t code = name[0] == 'n' ? get_anew(rank, key, &value) : get(rank, key, &value);
    if (code != PMIX_SUCCESS) {
        printf("%s %s\n", name, word(code));
        return;
    }
    switch (value->type) {
    case PMIX_STRING: printf("%s string %s\n", name, value->data.string); break;
    case PMIX_UINT32: printf("%s u32 %u\n", name, value->data.uint32); break;
    case PMIX_UINT16: printf("%s u16 %u\n", name, value->data.uint16); break;
    case PMIX_PROC_RANK: printf("%s rank %u\n", name, value->data.rank); break;
    case PMIX_BOOL: printf("%s bool %d\n", name, value->data.flag); break;
    default: printf("%s type %d\n", name, value->type);
    }
}

/* Where a rank listens, from what this process has: as text, and how many addresses of which length there are. */
static void show_listen(const char *name, pmix_rank_t rank) {
    pmix_value_t *text = NULL, *raw = NULL;
    pmix_proc_t peer = job;
    pmix_info_t info;
    bool yes = true;
    PMIX_INFO_LOAD(&info, PMIX_OPTIONAL, &yes, PMIX_BOOL);
    peer.rank = rank;
    pmix_status_t code = PMIx_Get(&peer, "wireup.listen_address", &info, 1, &text);
    if (code == PMIX_SUCCESS)
        code = PMIx_Get(&peer, PMIX_FABRIC_ENDPT, &info, 1, &raw);
    if (code != PMIX_SUCCESS) {
        printf("%s %s\n", name, word(code));
        return;
    }
    pmix_byte_object_t *first = raw->data.darray->array;
    printf("%s %s, %zu of %zu bytes\n", name, text->data.string, raw->data.darray->size, first->size);
}

static void put(const char *key, bool again) {
    char text[64];
    pmix_value_t value;
    snprintf(text, sizeof text, "value%s of %u", again ? " anew" : "", me.rank);
    PMIX_VALUE_LOAD(&value, text, PMIX_STRING);
    check("put", PMIx_Put(PMIX_GLOBAL, key, &value));
    PMIX_VALUE_DESTRUCT(&value);
    check("commit", PMIx_Commit());
}

static void fence(const pmix_proc_t *procs, size_t count, bool collect, int timeout) {
    pmix_info_t info[2];
    PMIX_INFO_LOAD(&info[0], PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
    PMIX_INFO_LOAD(&info[1], PMIX_TIMEOUT, &timeout, PMIX_INT);
    pmix_status_t code = PMIx_Fence(procs, count, info, timeout ? 2 : 1);
    printf("fence %s\n", word(code));
}

static void publish(void) {
    char key[64], text[64];
    pmix_info_t info;
    snprintf(key, sizeof key, "port-%u", me.rank);
    snprintf(text, sizeof text, "address of %u", me.rank);
    PMIX_INFO_LOAD(&info, key, text, PMIX_STRING);
    check("publish", PMIx_Publish(&info, 1));
}

static void lookup(const char *key) {
    pmix_pdata_t data;
    PMIX_PDATA_CONSTRUCT(&data);
    strncpy(data.key, key, PMIX_MAX_KEYLEN);
    pmix_status_t code = PMIx_Lookup(&data, 1, NULL, 0);
    if (code == PMIX_SUCCESS)
        printf("lookup %s from %u: %s\n", key, data.proc.rank, data.value.data.string);
    else
        printf("lookup %s: %s\n", key, word(code));
}

static void unpublish(const char *key) {
    char *keys[] = {(char *) key, NULL};
    check("unpublish", PMIx_Unpublish(keys, NULL, 0));
}

static void query(const char *key) {
    pmix_query_t query;
    pmix_info_t *infos = NULL;
    size_t count = 0;
    char *keys[] = {(char *) key, NULL};
    memset(&query, 0, sizeof query);
    query.keys = keys;
    pmix_status_t code = PMIx_Query_info(&query, 1, &infos, &count);
    printf("query %s: %s", key, word(code));
    for (size_t i = 0; i < count; i++) {
        pmix_value_t *value = &infos[i].value;
        if (value->type == PMIX_STRING)
            printf(" %s", value->data.string);
        if (value->type == PMIX_UINT32)
            printf(" %u", value->data.uint32);
        if (value->type == PMIX_DATA_ARRAY && value->data.darray->type == PMIX_PROC_INFO) {
            pmix_proc_info_t *procs = value->data.darray->array;
            for (size_t p = 0; p < value->data.darray->size; p++)
                printf(" %u:%s:%s:%d:%d", procs[p].proc.rank, procs[p].hostname, procs[p].executable_name,
                       (int) procs[p].pid, procs[p].state);
        }
    }
    printf("\n");
}

static void group(const char *name) {
    pmix_info_t info, *results = NULL;
    size_t count = 0, context = 0;
    bool yes = true;
    PMIX_INFO_LOAD(&info, PMIX_GROUP_ASSIGN_CONTEXT_ID, &yes, PMIX_BOOL);
    pmix_status_t code = PMIx_Group_construct(name, &job, 1, &info, 1, &results, &count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(results[i].key, PMIX_GROUP_CONTEXT_ID) == 0)
            context = results[i].value.data.size;
    printf("group %s: %s context %zu\n", name, word(code), context);
    printf("group %s ends: %s\n", name, word(PMIx_Group_destruct(name, NULL, 0)));
}

static volatile int told;

static void on_event(size_t id, pmix_status_t status, const pmix_proc_t *source, pmix_info_t info[], size_t ninfo,
                     pmix_info_t *results, size_t nresults, pmix_event_notification_cbfunc_fn_t done, void *data) {
    pmix_rank_t affected = PMIX_RANK_UNDEF;
    (void) id; (void) source; (void) results; (void) nresults;
    for (size_t i = 0; i < ninfo; i++)
        if (strcmp(info[i].key, PMIX_EVENT_AFFECTED_PROC) == 0)
            affected = info[i].value.data.proc->rank;
    printf("event %s of %d\n", word(status), affected == PMIX_RANK_UNDEF ? -1 : (int) affected);
    if (done)
        done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, data);
    told = affected != PMIX_RANK_UNDEF;
}

static void watch(void) {
    pmix_status_t codes[] = {PMIX_ERR_PROC_ABORTED, PMIX_ERR_NODE_DOWN};
    pmix_status_t code = PMIx_Register_event_handler(codes, 2, NULL, 0, on_event, NULL, NULL);
    if (code < 0)
        check("register", code);
}

static void wait_for_event(void) {
    for (int i = 0; i < 1000 && !told; i++)
        usleep(10000);
    if (!told) {
        printf("no event\n");
        wrong++;
    }
}

static void report(void) {
    pmix_info_t info;
    char text[] = "a line to log";
    PMIX_INFO_LOAD(&info, PMIX_LOG_STDERR, text, PMIX_STRING);
    check("log", PMIx_Log(&info, 1, NULL, 0));
}

static void control(void) {
    pmix_info_t info;
    int number = SIGUSR1;
    PMIX_INFO_LOAD(&info, PMIX_JOB_CTRL_SIGNAL, &number, PMIX_INT);
    pmix_status_t code = PMIx_Job_control(&job, 1, &info, 1, NULL, NULL);
    printf("control %s\n", word(code));
}

static void raise_event(void) {
    pmix_status_t code = PMIx_Notify_event(PMIX_ERR_NODE_DOWN, &me, PMIX_RANGE_NAMESPACE, NULL, 0, NULL, NULL);
    if (code != PMIX_OPERATION_SUCCEEDED)
        check("notify", code);
}

static void spawn(void) {
    char nspace[PMIX_MAX_NSLEN + 1], *argv[] = {"true", NULL};
    pmix_app_t app;
    memset(&app, 0, sizeof app);
    app.cmd = "true";
    app.argv = argv;
    app.maxprocs = 1;
    printf("spawn %s\n", word(PMIx_Spawn(NULL, 0, &app, 1, nspace)));
}

static void facts(void) {
    show("size", PMIX_RANK_WILDCARD, PMIX_JOB_SIZE);
    show("universe", PMIX_RANK_WILDCARD, PMIX_UNIV_SIZE);
    show("map", PMIX_RANK_WILDCARD, PMIX_ANL_MAP);
    show("apps", PMIX_RANK_WILDCARD, PMIX_JOB_NUM_APPS);
    show("peers", PMIX_RANK_WILDCARD, PMIX_LOCAL_PEERS);
    show("local-size", PMIX_RANK_WILDCARD, PMIX_LOCAL_SIZE);
    show("local-rank", me.rank, PMIX_LOCAL_RANK);
    show("node-rank", me.rank, PMIX_NODE_RANK);
    show("program", me.rank, PMIX_APPNUM);
    show("node", me.rank, PMIX_NODEID);
    show("host", me.rank, PMIX_HOSTNAME);
    show("cpus", me.rank, PMIX_CPUSET);
    show("place", me.rank, PMIX_LOCALITY_STRING);
    show("last-local-rank", 3, PMIX_LOCAL_RANK);
    show("last-host", 3, PMIX_HOSTNAME);
    show("directory", PMIX_RANK_WILDCARD, PMIX_NSDIR);
}

int main(int argc, char **argv) {
    pmix_status_t code = PMIx_Init(&me, NULL, 0);
    if (code != PMIX_SUCCESS) {
        printf("init %s\n", word(code));
        return 100;
    }
    PMIX_LOAD_PROCID(&job, me.nspace, PMIX_RANK_WILDCARD);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < argc; i++) {
        const char *what = argv[i];
        if (!strcmp(what, "facts")) facts();
        else if (!strcmp(what, "put")) put("test.key", false);
        else if (!strncmp(what, "put-", 4)) put(what + 4, false);
        else if (!strncmp(what, "replace-", 8)) put(what + 8, true);
        else if (!strcmp(what, "fence")) fence(&job, 1, true, 0);
        else if (!strcmp(what, "fence-bare")) fence(&job, 1, false, 0);
        else if (!strcmp(what, "fence-soon")) fence(&job, 1, true, 1);
        else if (!strcmp(what, "fence-pair")) {
            pmix_proc_t pair[2] = {job, job};
            pair[0].rank = 3, pair[1].rank = 1;
            if (me.rank == 1) fence(pair, 2, true, 0);
        }
        else if (!strncmp(what, "get-", 4) || !strncmp(what, "new-", 4)) {
            const char *key = strchr(what + 4, '-');
            show(what, (pmix_rank_t) atoi(what + 4), key ? key + 1 : "test.key");
        }
        else if (!strncmp(what, "listen-", 7)) show_listen(what, (pmix_rank_t) atoi(what + 7));
        else if (!strcmp(what, "publish")) publish();
        else if (!strncmp(what, "lookup-", 7)) lookup(what + 7);
        else if (!strncmp(what, "unpublish-", 10)) unpublish(what + 10);
        else if (!strncmp(what, "query-", 6)) query(what + 6);
        else if (!strncmp(what, "group-", 6)) group(what + 6);
        else if (!strcmp(what, "watch")) watch();
        else if (!strcmp(what, "event")) wait_for_event();
        else if (!strcmp(what, "raise")) raise_event();
        else if (!strcmp(what, "log")) report();
        else if (!strcmp(what, "control")) control();
        else if (!strcmp(what, "spawn")) spawn();
        else if (!strcmp(what, "abort")) PMIx_Abort(7, "enough", NULL, 0);
        else if (!strcmp(what, "pause")) sleep(1);
        else if (!strcmp(what, "die")) _exit(9);
        else printf("what is %s?\n", what), wrong++;
    }
    check("finalize", PMIx_Finalize(NULL, 0));
    return wrong;
}
