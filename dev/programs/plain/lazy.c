/* Two ranks that implement PMI-1 themselves. Rank 1 enters its fence only after rank 0's fence was answered; rank 0 then creates the file
 * that the argument names. With fences that wait for all ranks the job hangs. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <fcntl.h>

static FILE *server;

/* Sends one line and reads the answer into `reply`. */
static const char *say(const char *line, char *reply, int size)
{
    dprintf(fileno(server), "%s\n", line);
    if (!fgets(reply, size, server)) {
        fprintf(stderr, "the server is gone after %s\n", line);
        exit(2);
    }
    return reply;
}

static void expect(const char *line, const char *wanted)
{
    char reply[2000];
    if (!strstr(say(line, reply, sizeof reply), wanted)) {
        fprintf(stderr, "%s is answered %s", line, reply);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    const char *fd = getenv("PMI_FD"), *rank = getenv("PMI_RANK");
    if (argc < 2 || !fd || !rank)
        return 2;
    server = fdopen(atoi(fd), "r+");
    setvbuf(server, NULL, _IONBF, 0);
    expect("cmd=init pmi_version=1 pmi_subversion=1", "rc=0");
    if (atoi(rank) == 0) {
        expect("cmd=put kvsname= key=a value=of-0", "rc=0");
        expect("cmd=barrier_in", "cmd=barrier_out");
        close(open(argv[1], O_CREAT | O_WRONLY, 0600));
        expect("cmd=get kvsname= key=b", "value=of-1");
    } else {
        expect("cmd=put kvsname= key=b value=of-1", "rc=0");
        while (access(argv[1], F_OK) != 0)
            usleep(1000);
        expect("cmd=barrier_in", "cmd=barrier_out");
        expect("cmd=get kvsname= key=a", "value=of-0");
        expect("cmd=get kvsname= key=c", "rc=-1");
    }
    /* Nothing was put since the last fence, so this one is a barrier. */
    expect("cmd=barrier_in", "cmd=barrier_out");
    expect("cmd=finalize", "cmd=finalize_ack");
    return 0;
}
