/* faults HOW: the last rank fails the others in the way that HOW names.
   fence CODE    it exits with CODE instead of entering a fence
   modex CODE    it exits with CODE while others ask for data that it has not committed
   timeout       it enters a fence late, in which the others wait for at most a second
   again         the same, and then all ranks fence without a time limit
   set CODE      it exits with CODE, and rank 0 fences over a set that includes it
   without       it exits with 0 and without finalize, when the others no longer need it
   stranger      rank 0 aborts with CODE */
#include "check.h"

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    int code = argc > 2 ? atoi(argv[2]) : 0, seconds = 1;
    pmix_info_t info;

    begin();
    bool last = me.rank == size - 1;
    pmix_proc_t him = rank_of(size - 1), pair[2] = {rank_of(0), him};
    pmix_value_t *value = NULL;
    PMIX_INFO_LOAD(&info, PMIX_TIMEOUT, &seconds, PMIX_INT);
    MUST(fence(false));
    if (strcmp(how, "fence") == 0) {
        if (last)
            _exit(code);
        pmix_status_t status = fence(true);
        printf("rank %u: %s\n", me.rank, status == PMIX_SUCCESS ? "done" : "refused");
    } else if (strcmp(how, "modex") == 0) {
        if (last) {
            usleep(200000);
            _exit(code);
        }
        pmix_status_t status = PMIx_Get(&him, "never", NULL, 0, &value);
        printf("rank %u: %s\n", me.rank, status == PMIX_SUCCESS ? "found" : "refused");
    } else if (strcmp(how, "timeout") == 0 || strcmp(how, "again") == 0) {
        if (last) {
            sleep(3);
        } else {
            EXPECT(PMIX_ERR_TIMEOUT, PMIx_Fence(&everybody, 1, &info, 1));
            printf("rank %u: out of patience\n", me.rank);
        }
        if (strcmp(how, "again") == 0) {
            MUST(fence(true));
            MUST(fence(false));
        }
    } else if (strcmp(how, "set") == 0) {
        if (last)
            _exit(code);
        usleep(300000);
        if (me.rank == 0) {
            pmix_status_t status = PMIx_Fence(pair, 2, NULL, 0);
            printf("rank 0: %s\n", status == PMIX_SUCCESS ? "done" : "refused");
        }
    } else if (strcmp(how, "without") == 0) {
        if (last)
            _exit(0);
    } else if (strcmp(how, "stranger") == 0) {
        if (me.rank == 0) {
            PMIx_Abort(code, "no more cheese", NULL, 0);
            printf("rank 0 goes on\n");
            fflush(stdout);
        }
        sleep(30);
    }
    finish();
    return 0;
}
