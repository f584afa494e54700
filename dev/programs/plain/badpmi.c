/* badpmi HOW [RANK]: a PMI client that breaks the protocol in one rank (RANK, by default 1).
 *
 * Every rank initialises properly (PMI-1, or PMI-2 if HOW needs it) and then waits in a fence; RANK first does HOW:
 *   garbage    random bytes instead of a request
 *   half       half a request, then closes
 *   endless    a line without an end, up to 64 MiB
 *   length     PMI-2: a length that is not a number
 *   toolong    PMI-2: a length far beyond what follows, then closes
 *   closefence enters the fence, then closes and runs on for a second, before the others enter the fence
 *   leave      exits with 0 without entering the fence
 *   unknown    an unknown request, then continues properly
 * A rank whose fence completes prints "rank N through" and finalizes; one whose connection was closed by the server
 * prints "rank N closed" and exits with 5. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fd, rank;

static void closed(void)
{
    printf("rank %d closed\n", rank);
    exit(5);
}

static int send_bytes(const void *bytes, size_t count)
{
    const char *at = bytes;
    while (count > 0) {
        ssize_t done = write(fd, at, count);
        if (done <= 0)
            return -1;
        at += done;
        count -= (size_t)done;
    }
    return 0;
}

static void say(const char *text)
{
    if (send_bytes(text, strlen(text)) != 0)
        closed();
}

/* One PMI-1 reply. */
static void hear_line(char *line, size_t size)
{
    size_t length = 0;
    while (length + 1 < size) {
        if (read(fd, line + length, 1) != 1)
            closed();
        if (line[length++] == '\n')
            break;
    }
    line[length] = 0;
}

static void say2(const char *body)
{
    char head[16];
    snprintf(head, sizeof head, "%6u", (unsigned)strlen(body));
    say(head);
    say(body);
}

/* One PMI-2 reply. */
static void hear2(char *body, size_t size)
{
    char head[7] = {0};
    for (int i = 0; i < 6; i++)
        if (read(fd, head + i, 1) != 1)
            closed();
    size_t length = (size_t)atol(head);
    for (size_t i = 0; i < length && i + 1 < size; i++)
        if (read(fd, body + i, 1) != 1)
            closed();
}

int main(int argc, char **argv)
{
    static char line[4096];
    const char *how = argc > 1 ? argv[1] : "";
    const char *fd_text = getenv("PMI_FD"), *rank_text = getenv("PMI_RANK");
    int second = strcmp(how, "length") == 0 || strcmp(how, "toolong") == 0;

    if (!fd_text || !rank_text || argc < 2)
        return 2;
    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IONBF, 0);
    fd = atoi(fd_text);
    rank = atoi(rank_text);
    int bad = rank == (argc > 2 ? atoi(argv[2]) : 1);

    say(second ? "cmd=init pmi_version=2 pmi_subversion=0\n" : "cmd=init pmi_version=1 pmi_subversion=1\n");
    hear_line(line, sizeof line);
    if (second) {
        snprintf(line, sizeof line, "cmd=fullinit;pmijobid=x;pmirank=%d;threaded=FALSE;", rank);
        say2(line);
        hear2(line, sizeof line);
    }
    if (bad) {
        if (strcmp(how, "garbage") == 0) {
            srand(1);
            for (size_t i = 0; i < sizeof line; i++)
                line[i] = (char)rand();
            line[sizeof line - 1] = '\n';
            send_bytes(line, sizeof line);
        } else if (strcmp(how, "half") == 0) {
            say("cmd=put kvsname=x ke");
            close(fd);
            sleep(1000);
        } else if (strcmp(how, "endless") == 0) {
            memset(line, 'x', sizeof line);
            for (int i = 0; i < 16384; i++)
                if (send_bytes(line, sizeof line) != 0)
                    closed();
        } else if (strcmp(how, "length") == 0) {
            say("hello!cmd=kvs-fence;");
        } else if (strcmp(how, "toolong") == 0) {
            say("999999cmd=kvs-fence;");
            close(fd);
            sleep(1000);
        } else if (strcmp(how, "closefence") == 0) {
            say("cmd=barrier_in\n");
            close(fd);
            sleep(1);
            return 0;
        } else if (strcmp(how, "leave") == 0) {
            return 0;
        } else if (strcmp(how, "unknown") == 0) {
            say("cmd=make_coffee sugar=2\n");
            hear_line(line, sizeof line);
            printf("rank %d answer %s", rank, line);
        } else {
            return 2;
        }
    }
    if (strcmp(how, "closefence") == 0)
        usleep(300000);
    if (second) {
        say2("cmd=kvs-fence;");
        hear2(line, sizeof line);
        printf("rank %d through\n", rank);
        say2("cmd=finalize;");
        hear2(line, sizeof line);
    } else {
        say("cmd=barrier_in\n");
        hear_line(line, sizeof line);
        printf("rank %d through\n", rank);
        say("cmd=finalize\n");
        hear_line(line, sizeof line);
    }
    return 0;
}
