// shells HOST,HOST.. [--gate] PROGRAM [ARG..]: runs PROGRAM once for each host, all at once, and waits for them.
//
// `{host}` in a word is replaced by the host, `{node}` by its number from 0. `shells n0,n1 ssh {host} true` is the bare
// parallel remote shell, the minimum for starting something on all hosts directly.
//
// With --gate each program gets pipes as stdin and stdout: when every one has written a byte, each is sent one. This is
// the barrier of the echo servers, a star over the remote shells.
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>

#include "spawn.h"

extern char **environ;

enum { WORDS_MAX = 64, WORD_LEN = 4096 };

struct gate {
    int in, out;
};

static void fail(const char *what) {
    perror(what);
    exit(1);
}

// `word` with every placeholder replaced.
static char *filled(const char *word, const char *host, int node) {
    char number[16], *out = malloc(WORD_LEN);
    size_t len = 0;
    if (!out) fail("malloc");
    snprintf(number, sizeof number, "%d", node);
    while (*word) {
        const char *put = NULL;
        if (strncmp(word, "{host}", 6) == 0) put = host, word += 6;
        else if (strncmp(word, "{node}", 6) == 0) put = number, word += 6;
        if (len + (put ? strlen(put) : 1) >= WORD_LEN) fail("a word is too long");
        if (put) len += sprintf(out + len, "%s", put);
        else out[len++] = *word++;
    }
    out[len] = 0;
    return out;
}

// vfork's child must not return, so the pipes are set up here and not by spawn().
static struct gate start(char **argv, int gated) {
    int to[2] = {-1, -1}, from[2] = {-1, -1};
    if (gated && (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC))) fail("pipe");
    pid_t pid = vfork();
    if (pid == 0) {
        if (gated) {
            dup2(to[0], 0);
            dup2(from[1], 1);
        }
        execvp(argv[0], argv);
        _exit(127);
    }
    if (pid < 0) fail("vfork");
    if (gated) {
        close(to[0]);
        close(from[1]);
    }
    return (struct gate){to[1], from[0]};
}

int main(int argc, char **argv) {
    int first = argc > 2 && strcmp(argv[2], "--gate") == 0 ? 3 : 2, gated = first == 3, count = 0;
    if (argc <= first || argc - first >= WORDS_MAX) {
        fprintf(stderr, "usage: shells HOST,HOST.. [--gate] PROGRAM [ARG..]\n");
        return 2;
    }
    struct gate *gates = calloc(strlen(argv[1]) + 1, sizeof *gates);
    if (!gates) fail("calloc");
    for (char *host = strtok(argv[1], ","); host; host = strtok(NULL, ","), count++) {
        char *words[WORDS_MAX] = {NULL};
        for (int i = first; i < argc; i++) words[i - first] = filled(argv[i], host, count);
        gates[count] = start(words, gated);
    }
    char byte;
    for (int i = 0; gated && i < count; i++)
        if (read(gates[i].out, &byte, 1) != 1) fprintf(stderr, "shells: %d of %d came to the gate\n", i, count), exit(1);
    for (int i = 0; gated && i < count; i++)
        if (write(gates[i].in, "g", 1) != 1) fail("gate");
    return reap(count);
}
