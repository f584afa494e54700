/* impostor [NAME]: answers in place of a job's agent to libraries that join it by a name. It takes NAME, if it is given and free, and also sends
 * an answer to every Unix datagram socket of the machine that the kernel has named, which is how a library that joins is named. Each answer says
 * "joined", and carries one end of a pair of sockets; what a library says over it is printed. Ends with the input: exit code 0 if no library
 * has said anything. Prints "bound" or "taken" first, and "tried NAME" for each socket. */
#define _GNU_SOURCE
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PAIRS 512
#define NAMES 512

static struct pollfd heard[PAIRS];
static int pairs;
static char tried[NAMES][8];
static int names;

/* Sends "joined" with one end of a pair to an address. */
static void answer(int own, const struct sockaddr_un *to, socklen_t len)
{
    int ends[2];
    char joined = 0;
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec part = {&joined, 1};
    struct msghdr message = {(void *)to, len, &part, 1, control.room, sizeof control.room, 0};

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return;
    control.header.cmsg_level = SOL_SOCKET, control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.header), &ends[1], sizeof(int));
    sendmsg(own, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    close(ends[1]);
    if (pairs == PAIRS)
        close(heard[--pairs].fd);
    heard[pairs++] = (struct pollfd){ends[0], POLLIN, 0};
}

static socklen_t abstract(struct sockaddr_un *address, const char *name)
{
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    strncpy(address->sun_path + 1, name, sizeof address->sun_path - 2);
    return offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name);
}

/* The kernel names a socket by five hexadecimal digits. */
static void answer_all(int own)
{
    char line[512], name[256];
    unsigned kind;
    FILE *list = fopen("/proc/net/unix", "r");

    while (list && fgets(line, sizeof line, list)) {
        struct sockaddr_un to;
        if (sscanf(line, "%*s %*s %*s %*s %x %*s %*s @%255s", &kind, name) != 2 || kind != 2 || strlen(name) != 5)
            continue;
        answer(own, &to, abstract(&to, name));
        int at = 0;
        while (at < names && strcmp(tried[at], name) != 0)
            at++;
        if (at == names && names < NAMES) {
            strcpy(tried[names++], name);
            printf("tried %s\n", name);
            fflush(stdout);
        }
    }
    if (list)
        fclose(list);
}

int main(int argc, char **argv)
{
    struct sockaddr_un address;
    int own = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), was_heard = 0;
    const char *name = argc > 1 ? argv[1] : NULL;

    if (own < 0)
        return 2;
    if (name) {
        socklen_t len = abstract(&address, name);
        printf("%s\n", bind(own, (struct sockaddr *)&address, len) == 0 ? "bound" : "taken");
        fflush(stdout);
    }
    for (;;) {
        struct pollfd input = {STDIN_FILENO, POLLIN, 0};
        char bytes[256];
        socklen_t len = sizeof address;

        if (poll(&input, 1, 1) > 0)
            return was_heard;
        if (name && recvfrom(own, bytes, sizeof bytes, MSG_DONTWAIT, (struct sockaddr *)&address, &len) > 0)
            answer(own, &address, len);
        else
            answer_all(own);
        poll(heard, pairs, 0);
        for (int at = 0; at < pairs; at++) {
            ssize_t got = heard[at].revents ? recv(heard[at].fd, bytes, sizeof bytes - 1, MSG_DONTWAIT) : -1;
            if (got > 0) {
                printf("HEARD %.*s\n", (int)got, bytes);
                fflush(stdout);
                was_heard = 1;
            }
        }
    }
}
