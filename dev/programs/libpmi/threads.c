/* Threads call every kind of function at once, with the library that the argument names: they join together, use the job together, leave
 * together, and fork at any time. With a second argument, one of them aborts the job meanwhile. */
#include "check.h"
#include "pmi.h"
#include "pmix_ext.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 10, FORKS = 20, ROOM = 64 };

static int with_2, aborts, size, rank, left, forked;
static char kvsname[256];
static pthread_barrier_t together;
static PMIX_Request requests[THREADS][2];
static char *rows[THREADS];
static const void *shared[THREADS];

static int initialised(void) {
    int is = 0;
    if (with_2)
        return PMI2_Initialized();
    IS(PMI_Initialized(&is), PMI_SUCCESS);
    return is;
}

static int init(int *size_, int *rank_) {
    int spawned, appnum, result;
    if (with_2)
        return PMI2_Init(&spawned, size_, rank_, &appnum);
    result = PMI_Init(&spawned);
    if (result == PMI_SUCCESS) {
        IS(PMI_Get_size(size_), PMI_SUCCESS);
        IS(PMI_Get_rank(rank_), PMI_SUCCESS);
        IS(PMI_Get_appnum(&appnum), PMI_SUCCESS);
    }
    return result;
}

static int fence(void) {
    return with_2 ? PMI2_KVS_Fence() : PMI_Barrier();
}

static int put(const char *key, const char *value) {
    return with_2 ? PMI2_KVS_Put(key, value) : PMI_KVS_Put(kvsname, key, value);
}

static int get(int who, const char *key, char *value) {
    int len;
    return with_2 ? PMI2_KVS_Get(NULL, who, key, value, ROOM, &len) : PMI_KVS_Get(kvsname, key, value, ROOM);
}

static void meet(void) {
    pthread_barrier_wait(&together);
}

/* One thread forks; the others hold the library's lock most of the time. No child waits for it. */
static void forks(int me, int joined, int init_again) {
    char name[256];
    int status, unused;
    if (me > 0)
        while (__atomic_load_n(&forked, __ATOMIC_RELAXED) < FORKS)
            IS(initialised(), joined);
    for (int round = 0; me == 0 && round < FORKS; round++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            IS(initialised(), 0);
            IS(with_2 ? PMI2_Job_GetId(name, sizeof name) : PMI_Get_id(name, sizeof name), PMI_ERR_INIT);
            IS(with_2 ? PMI2_Finalize() : PMI_Finalize(), PMI_ERR_INIT);
            if (init_again)
                IS(init(&unused, &unused), PMI_FAIL);
            _exit(0);
        }
        IS(waitpid(child, &status, 0), child);
        IS(status, 0);
        __atomic_fetch_add(&forked, 1, __ATOMIC_RELAXED);
    }
    meet();
    if (me == 0)
        forked = 0;
    meet();
}

static void pairs(int me) {
    char key[ROOM], value[ROOM], wanted[ROOM];
    for (int round = 0; round < ROUNDS; round++) {
        snprintf(key, sizeof key, "key-%d-%d-%d", rank, me, round);
        snprintf(value, sizeof value, "value-of-%d", rank);
        IS(put(key, value), PMI_SUCCESS);
        IS(fence(), PMI_SUCCESS);
    }
    meet();
    for (int who = 0; who < size; who++)
        for (int round = 0; round < ROUNDS; round++) {
            snprintf(key, sizeof key, "key-%d-%d-%d", who, (me + 1) % THREADS, round);
            snprintf(wanted, sizeof wanted, "value-of-%d", who);
            IS(get(who, key, value), PMI_SUCCESS);
            SAME(value, wanted);
        }
    meet();
}

static void properties(void) {
    char text[1024];
    int found = 0, number = 0;
    if (with_2) {
        IS(PMI2_Job_GetId(text, sizeof text), PMI2_SUCCESS);
        IS(PMI2_Info_PutNodeAttr("attribute", "5"), PMI2_SUCCESS);
        IS(PMI2_Info_GetNodeAttr("attribute", text, sizeof text, &found, 1), PMI2_SUCCESS);
        SAME(text, "5");
        IS(PMI2_Info_GetJobAttr("PMI_process_mapping", text, sizeof text, &found), PMI2_SUCCESS);
        IS(found, 1);
    } else {
        IS(PMI_Get_id(text, sizeof text), PMI_SUCCESS);
        IS(PMI_Get_universe_size(&number), PMI_SUCCESS);
        IS(PMI_Get_clique_size(&number), PMI_SUCCESS);
        IS(number >= 1, 1);
    }
    meet();
}

static void check_rows(const char *all) {
    for (int who = 0; who < size; who++)
        IS(atoi(all + who * ROOM), who);
}

/* Each thread finishes what another one has started. */
static void allgathers(int me) {
    int next = (me + 1) % THREADS, flag = 0, position, ranks;
    char value[ROOM], lower[ROOM], upper[ROOM];
    snprintf(value, sizeof value, "%d", rank);
    for (int round = 0; round < ROUNDS; round++) {
        rows[me] = malloc((size_t)size * ROOM);
        IS(PMIX_Iallgather_len(value, ROOM, rows[me], &requests[me][0]), PMI2_SUCCESS);
        IS(PMIX_Iallgather_shared(value, ROOM, &shared[me], &requests[me][1]), PMI2_SUCCESS);
        meet();
        while (!flag)
            IS(PMIX_Test(requests[next][0], &flag), PMI2_SUCCESS);
        flag = 0;
        IS(PMIX_Wait(requests[next][1]), PMI2_SUCCESS);
        check_rows(rows[next]);
        check_rows(shared[next]);
        IS(PMIX_Release_shared(shared[next]), PMI2_SUCCESS);
        free(rows[next]);
        meet();
    }
    for (int round = 0; round < ROUNDS; round++) {
        IS(PMIX_Ring(value, &position, &ranks, lower, upper, ROOM), PMI2_SUCCESS);
        IS(ranks, size);
        IS(atoi(lower), (position + size - 1) % size);
        IS(atoi(upper), (position + 1) % size);
    }
    meet();
}

static void abort_meanwhile(int me) {
    if (rank == 1 && me == 0) {
        usleep(50000);
        if (with_2)
            PMI2_Abort(9, "one has had enough");
        PMI_Abort(9, "one has had enough");
    }
    for (;;) {
        put("until-the-end", "1");
        initialised();
        if (me == 1)
            fence();
    }
}

static void *work(void *which) {
    int me = (int)(long)which, size_ = 0, rank_ = 0;
    forks(me, 0, 0);
    IS(init(&size_, &rank_), PMI_SUCCESS);
    if (me == 0) {
        size = size_;
        rank = rank_;
        if (!with_2)
            IS(PMI_KVS_Get_my_name(kvsname, sizeof kvsname), PMI_SUCCESS);
    }
    meet();
    IS(size_ == size && rank_ == rank, 1);
    if (aborts)
        abort_meanwhile(me);
    pairs(me);
    properties();
    if (with_2)
        allgathers(me);
    forks(me, 1, 1);
    /* One of the threads leaves the job; the others find that this has happened. */
    int result = with_2 ? PMI2_Finalize() : PMI_Finalize();
    if (result == PMI_SUCCESS)
        __atomic_fetch_add(&left, 1, __ATOMIC_RELAXED);
    else
        IS(result, PMI_ERR_INIT);
    meet();
    IS(__atomic_load_n(&left, __ATOMIC_RELAXED), 1);
    forks(me, 0, 1);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    with_2 = argc > 1 && strcmp(argv[1], "pmi2") == 0;
    aborts = argc > 2;
    pthread_barrier_init(&together, NULL, THREADS);
    for (long which = 0; which < THREADS; which++)
        IS(pthread_create(&threads[which], NULL, work, (void *)which), 0);
    for (int which = 0; which < THREADS; which++)
        IS(pthread_join(threads[which], NULL), 0);
    printf("%d: all right\n", rank);
    return 0;
}
