/* events: rank 0 raises an event that all others have registered for. With `death`: the last rank exits with code 0 and without
   finalize, and the others are notified. */
#include "check.h"
#include <pthread.h>

enum { OURS = PMIX_EXTERNAL_ERR_BASE - 7 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int seen, registered;
static pmix_proc_t source;

static void on_event(size_t id, pmix_status_t status, const pmix_proc_t *from, pmix_info_t info[], size_t ninfo,
                     pmix_info_t *results, size_t nresults, pmix_event_notification_cbfunc_fn_t done, void *arg)
{
    (void)id, (void)status, (void)results, (void)nresults;
    pthread_mutex_lock(&lock);
    source = *from;
    for (size_t i = 0; i < ninfo; i++)
        if (PMIX_CHECK_KEY(&info[i], PMIX_EVENT_AFFECTED_PROC) && info[i].value.data.proc)
            source = *info[i].value.data.proc;
    seen++;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
    if (done)
        done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, arg);
}

static void on_registered(pmix_status_t status, size_t id, void *arg)
{
    (void)id, (void)arg;
    CHECK(status == PMIX_SUCCESS);
    pthread_mutex_lock(&lock);
    registered = 1;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

static void await(int *what)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    pthread_mutex_lock(&lock);
    while (!*what)
        CHECK(pthread_cond_timedwait(&changed, &lock, &until) == 0);
    pthread_mutex_unlock(&lock);
}

int main(int argc, char **argv)
{
    bool death = argc > 1 && strcmp(argv[1], "death") == 0;
    pmix_status_t code = death ? PMIX_ERR_PROC_ABORTED : OURS;

    begin();
    PMIx_Register_event_handler(&code, 1, NULL, 0, on_event, on_registered, NULL);
    await(&registered);
    MUST(fence(false));
    uint32_t raiser = death ? size - 1 : 0;
    if (me.rank == raiser) {
        if (death)
            _exit(0);
        MUST(PMIx_Notify_event(OURS, &me, PMIX_RANGE_NAMESPACE, NULL, 0, NULL, NULL));
    } else {
        await(&seen);
        CHECK(source.rank == raiser);
        printf("rank %u was told of rank %u\n", me.rank, source.rank);
    }
    if (!death)
        MUST(fence(false));
    finish();
    return 0;
}
