// pmi_exchange SIZE all|neighbours STAMPS [--unchecked] [--hold FIFO]
//
// Puts one value of 32 bytes, fences, gets the values of all ranks (or of the two neighbours) and appends one line of
// clock readings to STAMPS:
//
//   rank size pair_bytes fence_enter fence_leave gets_begin gets_end      (CLOCK_MONOTONIC, ns)
//
// The line is written after finalize, so that writing it delays no other rank. With --hold it is written after the
// gets, and the rank then waits until the last writer of FIFO has closed it. With --unchecked the values are not
// compared: the echo server has none.
#include <stdbool.h>

#include "pmi1.h"

enum { VALUE_LEN = 32 };

static void value_of(int rank, char *out) { sprintf(out, "%024x%08x", rank * 2654435761u, rank); }

int main(int argc, char **argv) {
    if (argc < 4) pmi_die(2, "usage: pmi_exchange SIZE all|neighbours STAMPS [--unchecked] [--hold FIFO]");
    int size = atoi(argv[1]), hold = -1;
    bool all = strcmp(argv[2], "all") == 0, checked = true;
    for (int i = 4; i < argc; i++) {
        if (strcmp(argv[i], "--unchecked") == 0) checked = false;
        if (strcmp(argv[i], "--hold") == 0 && i + 1 < argc && (hold = open(argv[i + 1], O_RDONLY | O_CLOEXEC)) < 0)
            pmi_die(1, "cannot open the fifo");
    }
    int rank = pmi_init(size);
    char kvsname[1024], value[VALUE_LEN + 1], byte;
    pmi_ask("maxes", "cmd=get_maxes\n");
    snprintf(kvsname, sizeof kvsname, "%s", pmi_value(pmi_ask("my_kvsname", "cmd=get_my_kvsname\n"), " kvsname="));
    value_of(rank, value);
    pmi_ask("put_result", "cmd=put kvsname=%s key=bench-%d value=%s\n", kvsname, rank, value);

    uint64_t enter = now_ns();
    pmi_barrier();
    uint64_t leave = now_ns();
    for (int i = 0; i < (all ? size : 2); i++) {
        int other = all ? i : (rank + (i == 0 ? size - 1 : 1)) % size;
        char *got = pmi_value(pmi_ask("get_result", "cmd=get kvsname=%s key=bench-%d\n", kvsname, other), " value=");
        value_of(other, value);
        if (strcmp(got, value) != 0 && checked) pmi_die(EXIT_PMI_ERROR, "got a wrong value");
    }
    uint64_t end = now_ns();

    if (hold < 0) pmi_finalize();
    int pair_bytes = snprintf(kvsname, sizeof kvsname, "bench-%d", rank) + VALUE_LEN;
    if (!append(argv[3], "%d %d %d %llu %llu %llu %llu\n", rank, size, pair_bytes, (ull)enter, (ull)leave, (ull)leave,
                (ull)end))
        pmi_die(1, "cannot append to the stamps");
    while (hold >= 0 && read(hold, &byte, 1) < 0 && errno == EINTR) continue;
    if (hold >= 0) pmi_finalize();
    _exit(0);
}
