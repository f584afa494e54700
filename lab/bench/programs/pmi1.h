// PMI-1 over PMI_FD in its simplest form: one write per request, one line per reply.
#include <string.h>

#include "stamps.h"

// Exit status of a client that found no PMI, or another job size than it expects: a launcher that starts singletons
// must not look like one that wired up a job.
enum { EXIT_NO_PMI = 3, EXIT_PMI_ERROR = 4 };

static int pmi_fd = -1;

static inline void pmi_die(int status, const char *what) {
    fprintf(stderr, "pmi client: %s\n", what);
    _exit(status);
}

// Sends one request and reads its reply, of which `expect` is the command word; the reply is valid until the next call.
__attribute__((format(printf, 2, 3))) static inline char *pmi_ask(const char *expect, const char *fmt, ...) {
    static char text[4096];
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(text, sizeof text, fmt, args), done = 0;
    va_end(args);
    for (ssize_t n; done < len; done += n > 0 ? n : 0)
        if ((n = write(pmi_fd, text + done, len - done)) <= 0 && errno != EINTR)
            pmi_die(EXIT_PMI_ERROR, "cannot write to the server");
    // A server that is asked once sends one line.
    for (done = 0; done == 0 || text[done - 1] != '\n';) {
        ssize_t n = read(pmi_fd, text + done, sizeof text - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) pmi_die(EXIT_PMI_ERROR, "the server closed the link, or its line is too long");
        done += n;
    }
    text[done - 1] = 0;
    char *rc = strstr(text, " rc=");
    size_t word = strlen(expect);
    int is_expected = !strncmp(text, "cmd=", 4) && !strncmp(text + 4, expect, word) && strchr(" ", text[4 + word]);
    if (!is_expected || (rc && atoi(rc + 4))) {
        fprintf(stderr, "pmi client: expected %s, got: %s\n", expect, text);
        _exit(EXIT_PMI_ERROR);
    }
    return text;
}

// The value behind `mark`, such as " value=", in a reply, cut at the next blank; modifies the reply.
static inline char *pmi_value(char *reply, const char *mark) {
    char *at = strstr(reply, mark);
    if (!at) pmi_die(EXIT_PMI_ERROR, "reply lacks a field");
    at += strlen(mark);
    at[strcspn(at, " ")] = 0;
    return at;
}

static inline int pmi_env(const char *name) {
    const char *text = getenv(name);
    if (!text) pmi_die(EXIT_NO_PMI, "no PMI in the environment");
    return atoi(text);
}

// Returns the rank.
static inline int pmi_init(int expected_size) {
    pmi_fd = pmi_env("PMI_FD");
    if (pmi_env("PMI_SIZE") != expected_size) pmi_die(EXIT_NO_PMI, "another job size than expected");
    pmi_ask("response_to_init", "cmd=init pmi_version=1 pmi_subversion=1\n");
    return pmi_env("PMI_RANK");
}

static inline void pmi_barrier(void) { pmi_ask("barrier_out", "cmd=barrier_in\n"); }

static inline void pmi_finalize(void) { pmi_ask("finalize_ack", "cmd=finalize\n"); }
