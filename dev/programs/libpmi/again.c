/* Initialising again after finalize is refused, and files that the program has opened meanwhile are left alone. */
#define _GNU_SOURCE
#include "check.h"
#include "pmi.h"
#include "pmi2.h"
#include <errno.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static int number; /* The descriptor from the launcher. */

static int init_1(void) {
    int spawned;
    return PMI_Init(&spawned);
}

static int init_2(void) {
    int spawned, size, rank, appnum;
    return PMI2_Init(&spawned, &size, &rank, &appnum);
}

/* A file of the program has that number: nothing is written to it. */
static void with_a_file(int (*init)(void)) {
    IS(memfd_create("file", 0), number);
    IS(init(), PMI_FAIL);
    IS(lseek(number, 0, SEEK_END), 0);
    IS(close(number), 0);
}

/* A connection of the program has that number: the other end receives nothing. */
static void with_a_socket(int (*init)(void)) {
    int pair[2];
    char byte;
    IS(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    IS(pair[0], number);
    IS(init(), PMI_FAIL);
    IS(recv(pair[1], &byte, 1, MSG_DONTWAIT), -1);
    IS(errno, EAGAIN);
    IS(close(pair[0]), 0);
    IS(close(pair[1]), 0);
}

int main(int argc, char **argv) {
    int with_2 = argc > 1 && strcmp(argv[1], "pmi2") == 0, initialised;
    int (*init)(void) = with_2 ? init_2 : init_1, (*other)(void) = with_2 ? init_1 : init_2;
    number = atoi(getenv("PMI_FD"));
    IS(init(), PMI_SUCCESS);
    IS(init(), PMI_SUCCESS);
    IS(with_2 ? PMI2_Finalize() : PMI_Finalize(), PMI_SUCCESS);
    with_a_file(init);
    with_a_socket(init);
    with_a_file(other);
    /* The number is not in use. */
    IS(init(), PMI_FAIL);
    IS(other(), PMI_FAIL);
    IS(PMI_Initialized(&initialised), PMI_SUCCESS);
    IS(initialised, PMI_FALSE);
    IS(PMI2_Initialized(), PMI_FALSE);
    printf("%s: all right\n", getenv("PMI_RANK"));
    return 0;
}
