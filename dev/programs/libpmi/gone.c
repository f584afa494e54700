/* The server exits or sends garbage in the middle of the conversation: calls return errors, and none crashes. */
#define _GNU_SOURCE
#include "check.h"
#include "pmi.h"
#include "pmix_ext.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void answer(int fd, const char *text, int counted) {
    char buffer[512];
    int len = counted ? sprintf(buffer, "%6zu%s", strlen(text), text) : sprintf(buffer, "%s", text);
    if (write(fd, buffer, len) != len)
        _exit(1);
}

/* Answers the requests of an initialisation, reads once more, writes `last`, and exits. */
static void serve(int fd, int version, const char *last) {
    char buffer[4096];
    if (read(fd, buffer, sizeof buffer) <= 0)
        _exit(1);
    if (version == 2) {
        answer(fd, "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n", 0);
        if (read(fd, buffer, sizeof buffer) <= 0)
            _exit(1);
        answer(fd, "cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=0;size=2;appnum=0;", 1);
    } else {
        answer(fd, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n", 0);
        if (read(fd, buffer, sizeof buffer) <= 0)
            _exit(1);
        answer(fd, "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n", 0);
    }
    if (read(fd, buffer, sizeof buffer) <= 0)
        _exit(1);
    answer(fd, last, 0);
    _exit(0);
}

static int started(int version, const char *last) {
    int pair[2];
    char text[16];
    pid_t child;
    IS(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    child = fork();
    if (child == 0) {
        close(pair[0]);
        serve(pair[1], version, last);
    }
    close(pair[1]);
    sprintf(text, "%d", pair[0]);
    setenv("PMI_FD", text, 1);
    setenv("PMI_RANK", "0", 1);
    setenv("PMI_SIZE", "2", 1);
    return child;
}

static void with_pmi2(const char *last) {
    int spawned, size, rank, appnum, found, child = started(2, last);
    char buffer[2 * PMI2_MAX_VALLEN], text[64];
    PMIX_Request first, second, third;
    IS(PMI2_Init(&spawned, &size, &rank, &appnum), PMI2_SUCCESS);
    IS(PMIX_KVS_Ifence(&first), PMI2_SUCCESS);
    IS(PMIX_Iallgather("v", buffer, &second), PMI2_SUCCESS);
    IS(PMIX_Wait(second), PMI2_FAIL);
    IS(PMIX_Wait(first), PMI2_FAIL);
    IS(PMIX_Wait(first), PMI2_ERR_INVALID_ARG);
    IS(PMIX_KVS_Ifence(&third), PMI2_SUCCESS);
    IS(PMIX_Test(third, &found), PMI2_FAIL);
    IS(PMIX_Allgather("v", buffer), PMI2_FAIL);
    IS(PMI2_KVS_Put("k", "v"), PMI2_FAIL);
    IS(PMI2_KVS_Get(NULL, 0, "k", text, sizeof text, &found), PMI2_FAIL);
    IS(PMI2_Info_GetJobAttr("k", text, sizeof text, &found), PMI2_FAIL);
    IS(PMIX_Ring("v", &rank, &size, text, text + 8, 8), PMI2_FAIL);
    IS(PMI2_KVS_Fence(), PMI2_FAIL);
    IS(PMI2_Finalize(), PMI2_FAIL);
    IS(waitpid(child, NULL, 0), child);
}

static void with_pmi1(const char *last) {
    int spawned, child = started(1, last);
    char text[64];
    IS(PMI_Init(&spawned), PMI_SUCCESS);
    IS(PMI_Ibarrier(), PMI_SUCCESS);
    IS(PMI_Wait(), PMI_FAIL);
    IS(PMI_Ibarrier(), PMI_FAIL);
    IS(PMI_Barrier(), PMI_FAIL);
    IS(PMI_KVS_Get("kvs", "k", text, sizeof text), PMI_FAIL);
    IS(PMI_Get_appnum(&spawned), PMI_FAIL);
    IS(PMI_Finalize(), PMI_FAIL);
    IS(waitpid(child, NULL, 0), child);
}

/* The program has closed the descriptor and opened a file with the same number. */
static void with_a_file(const char *last) {
    int spawned, child = started(1, last), fd = atoi(getenv("PMI_FD")), file = memfd_create("file", 0);
    IS(PMI_Init(&spawned), PMI_SUCCESS);
    IS(dup2(file, fd), fd);
    IS(PMI_KVS_Put("kvs", "k", "v"), PMI_FAIL);
    IS(PMI_Barrier(), PMI_FAIL);
    IS(PMI_Finalize(), PMI_FAIL);
    IS(lseek(fd, 0, SEEK_END), 0);
    IS(waitpid(child, NULL, 0), child);
}

/* In a separate process, since a library takes the descriptor of PMI_FD only once. */
static void alone(void (*with)(const char *), const char *last) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        with(last);
        exit(0);
    }
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
}

int main(void) {
    int spawned, size, rank, appnum;
    const char *nonsense[] = {"", "\n", "      ", "    -1", "cmd", "cmd=;;;;\n", "    14cmd=something;", "999999x", "\xff\xff\xff\n"};
    for (size_t at = 0; at < sizeof nonsense / sizeof *nonsense; at++) {
        alone(with_pmi2, nonsense[at]);
        alone(with_pmi1, nonsense[at]);
    }
    alone(with_a_file, "");
    /* An invalid descriptor; then a rank outside of the job. */
    setenv("PMI_FD", "1000", 1);
    setenv("PMI_RANK", "0", 1);
    setenv("PMI_SIZE", "2", 1);
    IS(PMI2_Init(&spawned, &size, &rank, &appnum), PMI2_FAIL);
    IS(PMI_Init(&spawned), PMI_FAIL);
    setenv("PMI_RANK", "2", 1);
    IS(PMI2_Init(&spawned, &size, &rank, &appnum), PMI2_FAIL);
    IS(PMI2_Initialized(), 0);
    printf("0 of 1: all right\n");
    return 0;
}
