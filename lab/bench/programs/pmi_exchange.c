// pmi_exchange SIZE
//
// A client of PMI-1: init, barrier, finalize, and nothing else.
//
// pmi_exchange SIZE all STAMPS [--unchecked]
//
// Puts one value of 32 bytes, fences, gets the values of all ranks and appends one line of clock readings to STAMPS:
//
//   rank size pair_bytes fence_enter fence_leave gets_begin gets_end      (CLOCK_MONOTONIC, ns)
//
// The line is written after finalize, so that writing it delays no other rank. With --unchecked the values are not
// compared: the echo server has none.
#include <string.h>

#include "stamps.h"

enum { VALUE_LEN = 32 };

// PMI-1 over PMI_FD in its simplest form: one write per request, one line per reply.
static int pmi_fd = -1;

// Sends one request and reads its reply, of which `expect` is the command word; the reply is valid until the next call.
__attribute__((format(printf, 2, 3))) static char *pmi_ask(const char *expect, const char *fmt, ...) {
    static char text[4096];
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(text, sizeof text, fmt, args), done = 0;
    va_end(args);
    for (ssize_t n; done < len; done += n > 0 ? n : 0)
        if ((n = write(pmi_fd, text + done, len - done)) <= 0 && errno != EINTR)
            fail("cannot write to the server", errno);
    // A server that is asked once sends one line.
    for (done = 0; done == 0 || text[done - 1] != '\n';) {
        ssize_t n = read(pmi_fd, text + done, sizeof text - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) fail("the server closed the link, or its line is too long", n);
        done += n;
    }
    text[done - 1] = 0;
    char *rc = strstr(text, " rc=");
    size_t word = strlen(expect);
    int is_expected = !strncmp(text, "cmd=", 4) && !strncmp(text + 4, expect, word) && strchr(" ", text[4 + word]);
    if (!is_expected || (rc && atoi(rc + 4))) {
        fprintf(stderr, "pmi client: expected %s, got: %s\n", expect, text);
        _exit(EXIT_FAILED);
    }
    return text;
}

// The value behind `mark`, such as " value=", in a reply, cut at the next blank; modifies the reply.
static char *pmi_value(char *reply, const char *mark) {
    char *at = strstr(reply, mark);
    if (!at) fail("the reply lacks a field", 0);
    at += strlen(mark);
    at[strcspn(at, " ")] = 0;
    return at;
}

// Returns the rank.
static int pmi_init(int expected_size) {
    pmi_fd = number("PMI_FD");
    // A launcher that starts singletons must not look like one that wired up a job.
    if (number("PMI_SIZE") != expected_size) fail("another job size than expected", expected_size);
    pmi_ask("response_to_init", "cmd=init pmi_version=1 pmi_subversion=1\n");
    return number("PMI_RANK");
}

static void pmi_barrier(void) { pmi_ask("barrier_out", "cmd=barrier_in\n"); }

static void pmi_finalize(void) { pmi_ask("finalize_ack", "cmd=finalize\n"); }

static void value_of(int rank, char *out) { sprintf(out, "%024x%08x", rank * 2654435761u, rank); }

int main(int argc, char **argv) {
    complaint_about = "pmi client";
    if (argc != 2 && argc < 4) fail("usage: pmi_exchange SIZE [all STAMPS [--unchecked]]", argc);
    int size = atoi(argv[1]), is_checked = argc < 5, rank = pmi_init(size);
    if (argc == 2) {
        pmi_barrier();
        pmi_finalize();
        _exit(0);
    }
    char kvsname[1024], value[VALUE_LEN + 1];
    pmi_ask("maxes", "cmd=get_maxes\n");
    snprintf(kvsname, sizeof kvsname, "%s", pmi_value(pmi_ask("my_kvsname", "cmd=get_my_kvsname\n"), " kvsname="));
    value_of(rank, value);
    pmi_ask("put_result", "cmd=put kvsname=%s key=bench-%d value=%s\n", kvsname, rank, value);

    uint64_t enter = now_ns();
    pmi_barrier();
    uint64_t leave = now_ns();
    for (int other = 0; other < size; other++) {
        char *got = pmi_value(pmi_ask("get_result", "cmd=get kvsname=%s key=bench-%d\n", kvsname, other), " value=");
        value_of(other, value);
        if (strcmp(got, value) != 0 && is_checked) fail("got a wrong value", other);
    }
    uint64_t end = now_ns();

    pmi_finalize();
    int pair_bytes = snprintf(kvsname, sizeof kvsname, "bench-%d", rank) + VALUE_LEN;
    if (!append(argv[3], "%d %d %d %llu %llu %llu %llu\n", rank, size, pair_bytes, (ull)enter, (ull)leave, (ull)leave,
                (ull)end))
        fail("cannot append to the stamps", errno);
    _exit(0);
}
