// startup BOARD LIBRARY READY GO
//
// A rank of a startup benchmark. It joins its job by LIBRARY, a libpmi2 with the startup extensions, and then runs the
// steps that the benchmark writes onto the BOARD: puts and fences, by hand-written PMI-2 text or by the library;
// allgathers; rings; each blocking, or started before a piece of work and completed after it. Every value that is read
// is compared with the one that its rank must have put. READY and GO are fifos by which rank 0 and the benchmark take
// turns. The benchmark ends the job by a step of its own.
#include <stdbool.h>

#include "board.h"
#include "libraries.h"

// The numbers are those in `src/startup/scheme.rs`.
enum operation {
    LEAVE, WORK, TEXT_FENCE, FENCE, IFENCE, ALLGATHER_COPY, ALLGATHER, IALLGATHER_COPY, IALLGATHER, RING,
    FENCE_ALONE,
};
enum work_kind { NO_WORK, SLEEP, SPIN };
enum { VALUE_ROOM = 1088, KEY_ROOM = 64, SPIN_TURNS = 20000 };

// Hand-written PMI-2 on PMI_FD, as used by clients without extensions: one message and its answer at a time, one get
// for each key.
static int text_fd = -1;

// Sends one request; its answer must be `expect` with rc=0. The answer is valid until the next call.
__attribute__((format(printf, 2, 3))) static char *text_ask(const char *expect, const char *format, ...) {
    static char text[8192];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(text + 6, sizeof text - 6, format, args);
    va_end(args);
    char first = text[6];
    snprintf(text, 7, "%6d", len);
    text[6] = first;
    ssize_t n;
    for (int sent = 0; sent < len + 6; sent += n > 0 ? n : 0)
        if ((n = write(text_fd, text + sent, len + 6 - sent)) <= 0 && errno != EINTR)
            fail("cannot write to the server", errno);
    size_t got = 0, wanted = 6;
    while (got < wanted) {
        n = read(text_fd, text + got, sizeof text - 1 - got);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) fail("the server closed the link, or its answer is too long", errno);
        text[got += n] = 0;
        if (got >= 6 && wanted == 6) wanted += atoi(memcpy((char[7]){0}, text, 6));
    }
    if (got != wanted) fail("more than one answer", got);
    if (strncmp(text + 6, expect, strlen(expect)) || !strstr(text, ";rc=0;")) {
        fprintf(stderr, "startup: expected %s, got %s\n", expect, text + 6);
        fail(complaint_about, 0);
    }
    return text + 6;
}

static void text_get(const char *key, char *value, size_t room) {
    char *answer = text_ask("cmd=kvs-get-response;", "cmd=kvs-get;key=%s;", key), *at = strstr(answer, ";value=");
    if (!at) fail("an answer without a value", 0);
    at += strlen(";value=");
    at[strcspn(at, ";")] = 0;
    if (strlen(at) >= room) fail("too long a value", strlen(at));
    strcpy(value, at);
}

static int rank, size;
static uint32_t salt;
static volatile uint64_t spun;

// Rank `of`'s value in the step with this salt: hexadecimal digits, of the step's length. Made without printf, since it
// is made for every value read.
static void value_of(int of, char *value) {
    uint64_t bits = ((uint64_t)(uint32_t)of << 32) | (salt * 2654435761u + (uint32_t)of);
    int len = board->value_len;
    for (int i = 0; i < len; i++) value[i] = "0123456789abcdef"[bits >> (60 - 4 * (i % 16)) & 15];
    value[len] = 0;
}

// Its key: the rank as a number, padded with zeros to the step's key length.
static void key_of(int of, char *key) {
    char digits[16];
    int count = 0, len = board->key_len;
    do digits[count++] = '0' + of % 10;
    while ((of /= 10) > 0);
    while (count < len) digits[count++] = '0';
    while (count > 0) *key++ = digits[--count];
    *key = 0;
}

static void check(int of, const char *value) {
    char expected[VALUE_ROOM];
    value_of(of, expected);
    if (memcmp(value, expected, board->value_len) != 0) fail("a wrong value of rank", of);
}

// Checks any rank's value of this step: its first eight digits are the rank.
static void check_some(const char *value) {
    char digits[9] = {0};
    memcpy(digits, value, 8);
    check(strtol(digits, NULL, 16), value);
}

// Which ranks' values are read: none, the two neighbours', or all.
static int reads(void) { return board->gets > 2 ? size : (int)board->gets; }

static int read_rank(int number) {
    if (board->gets > 2) return number;
    return number == 0 ? (rank + size - 1) % size : (rank + 1) % size;
}

static void gets(bool by_text) {
    char key[KEY_ROOM], value[VALUE_ROOM];
    int len;
    for (int i = 0; i < reads(); i++) {
        key_of(read_rank(i), key);
        if (by_text) text_get(key, value, sizeof value);
        else must(lib.PMI2_KVS_Get(NULL, PMI2_ID_NULL, key, value, sizeof value, &len), "PMI2_KVS_Get");
        check(read_rank(i), value);
    }
}

static void look(const char *rows) {
    for (int i = 0; i < reads(); i++) check(read_rank(i), rows + (size_t)read_rank(i) * board->value_len);
}

static void work(void) {
    uint64_t ns = board->work_ns;
    if (board->work_kind == SLEEP) {
        uint64_t until = now_ns() + ns;
        struct timespec ts = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR) {}
    } else if (board->work_kind == SPIN) {
        // A fixed amount of CPU time, not of wall time: it takes longer if other processes use the core.
        uint64_t until = clock_ns(CLOCK_THREAD_CPUTIME_ID) + ns;
        while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < until)
            for (int i = 0; i < SPIN_TURNS; i++) spun += i;
    }
}

static void ready(void) { slot->ready_ns = now_ns(); }

static void do_once(void) {
    enum operation operation = board->operation;
    bool copies = operation == ALLGATHER_COPY || operation == IALLGATHER_COPY;
    bool later = operation == IFENCE || operation == IALLGATHER || operation == IALLGATHER_COPY;
    char key[KEY_ROOM], value[VALUE_ROOM], left[VALUE_ROOM], right[VALUE_ROOM], *buffer = NULL;
    size_t bytes = (size_t)size * board->value_len;
    const void *shared = NULL;
    PMIX_Request request = NULL;
    int len = board->value_len, ring_rank = 0, ranks = size;
    key_of(rank, key);
    value_of(rank, value);
    if (copies) {
        // As a real program has it: allocated, but not touched yet.
        buffer = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (buffer == MAP_FAILED) fail("no memory", errno);
    }
    if (!later) work();
    if (operation == TEXT_FENCE) text_ask("cmd=kvs-put-response;", "cmd=kvs-put;key=%s;value=%s;", key, value);
    if (operation == FENCE || operation == IFENCE) must(lib.PMI2_KVS_Put(key, value), "PMI2_KVS_Put");
    uint64_t cpu_before = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    switch (operation) {
    case LEAVE: case WORK: break;
    case TEXT_FENCE: text_ask("cmd=kvs-fence-response;", "cmd=kvs-fence;"); break;
    case FENCE: case FENCE_ALONE: must(lib.PMI2_KVS_Fence(), "PMI2_KVS_Fence"); break;
    case IFENCE: must(lib.PMIX_KVS_Ifence(&request), "PMIX_KVS_Ifence"); break;
    case ALLGATHER_COPY: must(lib.PMIX_Allgather_len(value, len, buffer), "PMIX_Allgather_len"); break;
    case ALLGATHER: must(lib.PMIX_Allgather_shared(value, len, &shared), "PMIX_Allgather_shared"); break;
    case IALLGATHER_COPY: must(lib.PMIX_Iallgather_len(value, len, buffer, &request), "PMIX_Iallgather_len"); break;
    case IALLGATHER: must(lib.PMIX_Iallgather_shared(value, len, &shared, &request), "PMIX_Iallgather_shared"); break;
    case RING: must(lib.PMIX_Ring(value, &ring_rank, &ranks, left, right, sizeof left), "PMIX_Ring"); break;
    }
    slot->start_cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_before;
    slot->begun_ns = now_ns();
    if (later) {
        work();
        ready();
        must(lib.PMIX_Wait(request), "PMIX_Wait");
    }
    if (operation == TEXT_FENCE || operation == FENCE || operation == IFENCE) gets(operation == TEXT_FENCE);
    else if (copies || shared) look(copies ? buffer : shared);
    else if (operation == RING) {
        // The server decides which ranks are neighbours; the values tell which they are.
        if (ring_rank < 0 || ring_rank >= size || ranks != size) fail("a wrong place in the ring", ring_rank);
        check_some(left);
        check_some(right);
    }
    if (!later) ready();
    slot->end_ns = now_ns();
    if (shared) must(lib.PMIX_Release_shared(shared), "PMIX_Release_shared");
    if (copies) munmap(buffer, bytes);
}

static void do_step(void) {
    salt = board->salt;
    slot->start_cpu_ns = 0;
    slot->start_ns = now_ns();
    for (uint32_t i = 0; i < board->repeat; i++, salt++) do_once();
}

int main(int argc, char **argv) {
    if (argc != 5) fail("usage: startup BOARD LIBRARY READY GO", argc);
    text_fd = number("PMI_FD");
    rank = number("PMI_RANK");
    size = number("PMI_SIZE");
    board_join(rank, size, argv + 1);
    load_pmi2(argv[2]);

    int spawned, joined_size, joined_rank, appnum;
    slot->join_begin_ns = now_ns();
    must(lib.PMI2_Init(&spawned, &joined_size, &joined_rank, &appnum), "PMI2_Init");
    slot->join_end_ns = now_ns();
    if (joined_size != size || joined_rank != rank) fail("the library says another rank", joined_rank);
    board_serve(rank, do_step);
    must(lib.PMI2_Finalize(), "PMI2_Finalize");
    _exit(0);
}
