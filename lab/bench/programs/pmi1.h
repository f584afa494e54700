// PMI-1 over PMI_FD in its simplest form: one write per request, one buffered line per reply.
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Exit status of a client that found no PMI, or another job size than it expects: a launcher that starts singletons
// must not look like one that wired up a job.
enum { EXIT_NO_PMI = 3, EXIT_PMI_ERROR = 4 };

static int pmi_fd = -1;
static char pmi_buf[4096];
static size_t pmi_start, pmi_end;

static inline void pmi_die(int status, const char *what) {
    fprintf(stderr, "pmi client: %s\n", what);
    _exit(status);
}

// The next reply line, without its newline; valid until the next call.
static inline char *pmi_line(void) {
    for (;;) {
        char *newline = memchr(pmi_buf + pmi_start, '\n', pmi_end - pmi_start);
        if (newline) {
            char *line = pmi_buf + pmi_start;
            *newline = 0;
            pmi_start = newline + 1 - pmi_buf;
            return line;
        }
        memmove(pmi_buf, pmi_buf + pmi_start, pmi_end - pmi_start);
        pmi_end -= pmi_start;
        pmi_start = 0;
        if (pmi_end == sizeof pmi_buf) pmi_die(EXIT_PMI_ERROR, "reply line too long");
        ssize_t n = read(pmi_fd, pmi_buf + pmi_end, sizeof pmi_buf - pmi_end);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) pmi_die(EXIT_PMI_ERROR, "server closed the link");
        pmi_end += n;
    }
}

static inline void pmi_send(const char *text, size_t len) {
    while (len > 0) {
        ssize_t n = write(pmi_fd, text, len);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) pmi_die(EXIT_PMI_ERROR, "cannot write to the server");
        text += n;
        len -= n;
    }
}

// Sends one request and reads one reply; `expect` is the reply's command word.
__attribute__((format(printf, 2, 3))) static inline char *pmi_ask(const char *expect, const char *fmt, ...) {
    char request[2048];
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(request, sizeof request, fmt, args);
    va_end(args);
    pmi_send(request, len);
    char *reply = pmi_line();
    size_t word = strlen(expect);
    if (strncmp(reply, "cmd=", 4) || strncmp(reply + 4, expect, word) || (reply[4 + word] && reply[4 + word] != ' ')) {
        fprintf(stderr, "pmi client: expected %s, got: %s\n", expect, reply);
        _exit(EXIT_PMI_ERROR);
    }
    char *rc = strstr(reply, " rc=");
    if (rc && atoi(rc + 4) != 0) {
        fprintf(stderr, "pmi client: refused: %s\n", reply);
        _exit(EXIT_PMI_ERROR);
    }
    return reply;
}

// The value of ` name=` in a reply, cut at the next blank; modifies the reply.
static inline char *pmi_value(char *reply, const char *name) {
    for (char *at = reply; (at = strstr(at, name)); at++) {
        size_t len = strlen(name);
        if (at > reply && at[-1] == ' ' && at[len] == '=') {
            char *value = at + len + 1;
            value[strcspn(value, " ")] = 0;
            return value;
        }
    }
    pmi_die(EXIT_PMI_ERROR, "reply lacks a field");
    return NULL;
}

static inline int pmi_env(const char *name) {
    const char *text = getenv(name);
    if (!text) pmi_die(EXIT_NO_PMI, "no PMI in the environment");
    return atoi(text);
}

// Returns the rank.
static inline int pmi_init(int expected_size) {
    pmi_fd = pmi_env("PMI_FD");
    int rank = pmi_env("PMI_RANK");
    if (pmi_env("PMI_SIZE") != expected_size) pmi_die(EXIT_NO_PMI, "another job size than expected");
    pmi_ask("response_to_init", "cmd=init pmi_version=1 pmi_subversion=1\n");
    return rank;
}

static inline void pmi_barrier(void) { pmi_ask("barrier_out", "cmd=barrier_in\n"); }

static inline void pmi_finalize(void) { pmi_ask("finalize_ack", "cmd=finalize\n"); }
