/* Many rounds of the same keys and of allgathers: neither this process nor its agent may leak files or mappings. */
#include "check.h"
#include "pmix_ext.h"
#include <dirent.h>
#include <unistd.h>

#define VALUE 64
#define EARLY 20
#define LATE 200

static int rank, size;

/* Open files of a process. */
static int files(int pid) {
    char path[64];
    int count = 0;
    sprintf(path, "/proc/%d/fd", pid);
    DIR *directory = opendir(path);
    if (directory == NULL)
        return -1;
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count;
}

static int mappings(void) {
    int count = 0, c;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && (c = getc(maps)) != EOF)
        count += c == '\n';
    if (maps != NULL)
        fclose(maps);
    return count;
}

static int parent_of(int pid) {
    char path[64];
    int parent = 0;
    sprintf(path, "/proc/%d/stat", pid);
    FILE *stat = fopen(path, "r");
    if (stat != NULL && fscanf(stat, "%*d (%*[^)]) %*c %d", &parent) != 1)
        parent = 0;
    if (stat != NULL)
        fclose(stat);
    return parent;
}

static void round_of(int number) {
    char key[32], value[VALUE], got[VALUE];
    char *rows = calloc(size, VALUE);
    const void *array = NULL;
    int length;
    PMIX_Request gather, fence;
    sprintf(key, "key-%d", rank);
    sprintf(value, "%d in %d", rank, number);
    IS(PMI2_KVS_Put(key, value), PMI2_SUCCESS);
    if (number % 2 == 0) {
        IS(PMI2_KVS_Fence(), PMI2_SUCCESS);
    } else {
        IS(PMIX_KVS_Ifence(&fence), PMI2_SUCCESS);
        IS(PMIX_Wait(fence), PMI2_SUCCESS);
    }
    sprintf(key, "key-%d", (rank + 1) % size);
    sprintf(value, "%d in %d", (rank + 1) % size, number);
    IS(PMI2_KVS_Get(NULL, PMI2_ID_NULL, key, got, sizeof got, &length), PMI2_SUCCESS);
    SAME(got, value);
    sprintf(value, "%d in %d", rank, number);
    IS(PMIX_Iallgather_len(value, VALUE, rows, &gather), PMI2_SUCCESS);
    IS(PMIX_Allgather_shared(value, VALUE, &array), PMI2_SUCCESS);
    IS(PMIX_Wait(gather), PMI2_SUCCESS);
    for (int who = 0; who < size; who++) {
        sprintf(value, "%d in %d", who, number);
        SAME(rows + who * VALUE, value);
        SAME((const char *)array + who * VALUE, value);
    }
    IS(PMIX_Release_shared(array), PMI2_SUCCESS);
    free(rows);
}

int main(void) {
    int spawned, appnum, early[3] = {0}, late[3] = {0};
    IS(PMI2_Init(&spawned, &size, &rank, &appnum), PMI2_SUCCESS);
    /* This process is a child of a keeper, and the keeper is a child of the agent. */
    int agent = parent_of(getppid());
    for (int number = 0; number <= LATE; number++) {
        round_of(number);
        if (number != EARLY && number != LATE)
            continue;
        /* All ranks have finished the round, so nothing else is in progress when the counts are taken. */
        IS(PMI2_KVS_Fence(), PMI2_SUCCESS);
        int *now = number == EARLY ? early : late;
        now[0] = files(agent), now[1] = files(getpid()), now[2] = mappings();
        IS(PMI2_KVS_Fence(), PMI2_SUCCESS);
    }
    IS(early[0] > 3, 1);
    for (int what = 0; what < 3; what++)
        if (late[what] > early[what] + 2) {
            fprintf(stderr, "%d: %d grew from %d to %d\n", rank, what, early[what], late[what]);
            exit(1);
        }
    IS(PMI2_Finalize(), PMI2_SUCCESS);
    printf("%d of %d: all right\n", rank, size);
    return 0;
}
