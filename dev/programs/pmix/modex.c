/* modex [BYTES]: put, commit, a fence that collects no data, get of every rank, twice. With `missing`: a key that no rank has put,
   and a rank that does not exist. With `late`: rank 0 gets the data of the others when these are in finalize or have exited. */
#include "check.h"

static void missing(void)
{
    pmix_proc_t proc = rank_of((me.rank + 1) % size);
    pmix_value_t *value = NULL;
    int seconds = 2;
    pmix_info_t info;

    PMIX_INFO_LOAD(&info, PMIX_TIMEOUT, &seconds, PMIX_INT);
    pmix_status_t status = PMIx_Get(&proc, "nobody.has.put.this", &info, 1, &value);
    CHECK(status == PMIX_ERR_NOT_FOUND || status == PMIX_ERR_TIMEOUT);
    proc.rank = size + 7;
    CHECK(PMIx_Get(&proc, "modex", &info, 1, &value) != PMIX_SUCCESS);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "32";
    size_t bytes = atoi(how) > 0 ? (size_t)atoi(how) : 32;
    double first = 0, second = 0;

    begin();
    put("modex", 0, bytes);
    MUST(PMIx_Commit());
    MUST(fence(false));
    if (strcmp(how, "missing") == 0) {
        missing();
    } else if (strcmp(how, "late") == 0) {
        if (me.rank == 0) {
            usleep(500000);
            for (uint32_t i = 1; i < size; i++)
                get(i, "modex", 0, bytes);
        }
    } else {
        for (int turn = 0; turn < 2; turn++) {
            double from = now();
            for (uint32_t i = 1; i < size; i++)
                get((me.rank + i) % size, "modex", 0, bytes);
            *(turn ? &second : &first) = (now() - from) / (size > 1 ? size - 1 : 1);
        }
        if (getenv("CLOCK"))
            fprintf(stderr, "rank %u: first %.6f again %.6f\n", me.rank, first, second);
        MUST(fence(false));
    }
    if (me.rank == 0)
        printf("modex over %u ranks: right\n", size);
    finish();
    return 0;
}
