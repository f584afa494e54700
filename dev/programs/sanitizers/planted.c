/* Makes the mistake that the argument names, which a sanitizer must report. */
#include "pmi.h"
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static int rank;

static void *ask(void *unused) {
    PMI_Get_rank(&rank);
    return unused;
}

int main(int argc, char **argv) {
    int spawned;
    pthread_t thread;
    char *name = malloc(4);
    PMI_Init(&spawned);
    if (argc > 1 && strcmp(argv[1], "overflow") == 0) {
        PMI_KVS_Get_my_name(name, 256); /* The library writes behind its end. */
    } else if (argc > 1 && strcmp(argv[1], "undefined") == 0) {
        rank = INT_MAX - 1 + argc;
    } else {
        pthread_create(&thread, NULL, ask, NULL); /* The library writes, and so does this thread. */
        rank = 7;
        pthread_join(thread, NULL);
    }
    free(name);
    PMI_Finalize();
    return rank;
}
