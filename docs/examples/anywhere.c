/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * One binary for every libpmi2.so.0: with the allgather where the library has it, with put, fence and get where it has not.
 * Compiles with Slurm's pmi2.h as well, since nothing of pmix_ext.h is linked.
 *
 *   cc anywhere.c -o anywhere $(pkg-config --cflags --libs wireup-pmi2)
 *   srun --mpi=pmi2 -n 16 ./anywhere
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pmi2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LEN = 64 };

static int rank, size;

/* As pmix_ext.h declares them. */
typedef struct PMIX_Request_s *Request;
static int (*iallgather)(const char value[], int maxlen, void *buffer, Request *request);
static int (*wait_for)(Request request);

static Request request;
static char jobid[256];

static void check(int rc, const char *what) {
    if (rc != PMI2_SUCCESS)
        PMI2_Abort(1, what);
}

/* Gives the value away. With the allgather this waits for nobody, and `rows` is not touched until `exchange_end`. */
static void exchange_begin(const char *value, char (*rows)[MAX_LEN]) {
    *(void **)&iallgather = dlsym(RTLD_DEFAULT, "PMIX_Iallgather_len");
    *(void **)&wait_for = dlsym(RTLD_DEFAULT, "PMIX_Wait");
    if (iallgather && wait_for) {
        check(iallgather(value, MAX_LEN, rows, &request), "PMIX_Iallgather_len");
        return;
    }
    char key[PMI2_MAX_KEYLEN];
    snprintf(key, sizeof key, "address-%d", rank);
    check(PMI2_Job_GetId(jobid, sizeof jobid), "PMI2_Job_GetId");
    check(PMI2_KVS_Put(key, value), "PMI2_KVS_Put");
    check(PMI2_KVS_Fence(), "PMI2_KVS_Fence");
}

/* From here on row r holds the value of rank r, filled up with zeros. */
static void exchange_end(char (*rows)[MAX_LEN]) {
    if (iallgather && wait_for) {
        check(wait_for(request), "PMIX_Wait");
        return;
    }
    memset(rows, 0, (size_t)size * MAX_LEN);
    for (int other = 0; other < size; other++) {
        char key[PMI2_MAX_KEYLEN];
        int len;
        snprintf(key, sizeof key, "address-%d", other);
        check(PMI2_KVS_Get(jobid, other, key, rows[other], MAX_LEN, &len), "PMI2_KVS_Get");
    }
}

int main(void) {
    int spawned, appnum, right = 0;
    char value[MAX_LEN], wanted[MAX_LEN];
    check(PMI2_Init(&spawned, &size, &rank, &appnum), "PMI2_Init");
    char(*rows)[MAX_LEN] = malloc((size_t)size * MAX_LEN);
    snprintf(value, sizeof value, "address of %d", rank);
    exchange_begin(value, rows);
    exchange_end(rows);
    for (int other = 0; other < size; other++) {
        snprintf(wanted, sizeof wanted, "address of %d", other);
        right += strcmp(rows[other], wanted) == 0;
    }
    printf("%d of %d addresses, by %s\n", right, size, iallgather ? "an allgather" : "put, fence and get");
    free(rows);
    check(PMI2_Finalize(), "PMI2_Finalize");
    return right != size;
}
