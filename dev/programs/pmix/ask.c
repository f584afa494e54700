/* Queries: the names of jobs, the table of processes. Then writes text with PMIx_Log; with `end`, rank 0 ends the job. */
#include "check.h"

static pmix_status_t ask(const char *key, bool of_job, pmix_info_t **found)
{
    pmix_query_t query;
    size_t count = 0;

    PMIX_QUERY_CONSTRUCT(&query);
    PMIX_ARGV_APPEND(count, query.keys, key);
    count = 0;
    if (of_job) {
        PMIX_QUERY_QUALIFIERS_CREATE(&query, 1);
        PMIX_INFO_LOAD(&query.qualifiers[0], PMIX_NSPACE, me.nspace, PMIX_STRING);
    }
    return PMIx_Query_info(&query, 1, found, &count);
}

int main(int argc, char **argv)
{
    pmix_info_t *found = NULL, text;

    begin();
    MUST(ask(PMIX_QUERY_NAMESPACES, false, &found));
    CHECK(found[0].value.type == PMIX_STRING && strstr(found[0].value.data.string, me.nspace));
    MUST(ask(PMIX_QUERY_PROC_TABLE, true, &found));
    CHECK(found[0].value.type == PMIX_DATA_ARRAY && found[0].value.data.darray->size == size);
    pmix_proc_info_t *procs = found[0].value.data.darray->array;
    for (uint32_t i = 0; i < size; i++)
        CHECK(procs[i].proc.rank != me.rank || procs[i].pid == getpid());
    MUST(fence(false));
    if (me.rank == 0) {
        PMIX_INFO_LOAD(&text, PMIX_LOG_STDOUT, "logged by rank 0\n", PMIX_STRING);
        MUST(PMIx_Log(&text, 1, NULL, 0));
        if (argc > 1 && strcmp(argv[1], "end") == 0) {
            bool yes = true;
            PMIX_INFO_LOAD(&text, PMIX_JOB_CTRL_TERMINATE, &yes, PMIX_BOOL);
            PMIx_Job_control_nb(&everybody, 1, &text, 1, NULL, NULL);
            sleep(30);
        }
    }
    MUST(fence(false));
    if (me.rank == 0)
        printf("answers over %u ranks: right\n", size);
    finish();
    return 0;
}
