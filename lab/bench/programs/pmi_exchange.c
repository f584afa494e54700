// pmi-exchange SIZE all|neighbours STAMPS [--unchecked] [--hold FIFO]
//
// Puts one value of 32 bytes, fences, gets the values of all ranks (or of the two neighbours) and appends one line of
// clock readings to STAMPS:
//
//   rank size pair_bytes fence_enter fence_leave gets_begin gets_end      (CLOCK_MONOTONIC, ns)
//
// The line is written after finalize, so that writing it delays no other rank. With --hold it is written after the
// gets, and the rank then waits until the last writer of FIFO has closed it. With --unchecked the values are not
// compared: the echo server has none.
#include <fcntl.h>
#include <stdbool.h>

#include "clock.h"
#include "pmi1.h"

enum { VALUE_LEN = 32 };

static void value_of(int rank, char *out) { sprintf(out, "%024x%08x", rank * 2654435761u, rank); }

static void get_one(const char *kvsname, int rank, bool checked) {
    char expected[VALUE_LEN + 1];
    char *value = pmi_value(pmi_ask("get_result", "cmd=get kvsname=%s key=bench-%d\n", kvsname, rank), "value");
    value_of(rank, expected);
    if (strcmp(value, expected) != 0 && checked) pmi_die(EXIT_PMI_ERROR, "got a wrong value");
}

static void append_line(const char *path, const char *line, int len) {
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0 || write(fd, line, len) != len) pmi_die(1, "cannot append to the stamps");
    close(fd);
}

int main(int argc, char **argv) {
    if (argc < 4) pmi_die(2, "usage: pmi-exchange SIZE all|neighbours STAMPS [--unchecked] [--hold FIFO]");
    int size = atoi(argv[1]), hold = -1;
    bool all = strcmp(argv[2], "all") == 0, checked = true;
    for (int i = 4; i < argc; i++) {
        if (strcmp(argv[i], "--unchecked") == 0) checked = false;
        if (strcmp(argv[i], "--hold") == 0 && i + 1 < argc && (hold = open(argv[i + 1], O_RDONLY | O_CLOEXEC)) < 0)
            pmi_die(1, "cannot open the fifo");
    }

    int rank = pmi_init(size);
    char kvsname[1024], value[VALUE_LEN + 1];
    pmi_ask("maxes", "cmd=get_maxes\n");
    snprintf(kvsname, sizeof kvsname, "%s", pmi_value(pmi_ask("my_kvsname", "cmd=get_my_kvsname\n"), "kvsname"));
    value_of(rank, value);
    pmi_ask("put_result", "cmd=put kvsname=%s key=bench-%d value=%s\n", kvsname, rank, value);

    unsigned long long fence_enter = now_ns();
    pmi_barrier();
    unsigned long long fence_leave = now_ns(), gets_begin = fence_leave;
    if (all) {
        for (int i = 0; i < size; i++) get_one(kvsname, i, checked);
    } else {
        get_one(kvsname, (rank + size - 1) % size, checked);
        get_one(kvsname, (rank + 1) % size, checked);
    }
    unsigned long long gets_end = now_ns();

    char line[256];
    int pair_bytes = snprintf(line, sizeof line, "bench-%d", rank) + VALUE_LEN;
    int len = snprintf(line, sizeof line, "%d %d %d %llu %llu %llu %llu\n", rank, size, pair_bytes, fence_enter,
                       fence_leave, gets_begin, gets_end);
    if (hold >= 0) {
        char byte;
        append_line(argv[3], line, len);
        while (read(hold, &byte, 1) < 0 && errno == EINTR) {}
    }
    pmi_finalize();
    if (hold < 0) append_line(argv[3], line, len);
    _exit(0);
}
