// groups BOARD LIBRARY READY GO ENGINE PPN
//
// A rank of a benchmark of groups. It opens LIBRARY, a libwireup, with ENGINE (peers, agents, auto), and then runs the
// steps that the benchmark writes onto the BOARD: collectives of the whole job, splits into nodes of PPN ranks,
// searches for addresses, messages. Every result is checked. In its slot it leaves what it has sent in the step, and
// what it holds. READY, GO and the end are as in startup.c.
#define _GNU_SOURCE
#include <sched.h>
#include <stdbool.h>

#include "board.h"
#include "libraries.h"
#include "loopback.h"

// The numbers are those in `src/startup/scheme.rs`.
enum operation {
    LEAVE = 0, BARRIER = 32, ALLGATHER, ALLTOALL, ALLREDUCE, BROADCAST, SHIFT, SPLIT, LOCATE, TALK, TALK_TO_ALL, BARE,
};
// The two sums of an allreduce; who searches in a step, each in a group of its own (`src/startup/groups/scheme.rs`).
enum { NUMBERS = 2, ASKERS = 16 };

static uint32_t rank, size, ppn, salt;
static wu_group *world;
static unsigned char *mine, *all;

// Fills a value of rank `of`.
static void fill(unsigned char *value, uint32_t of) {
    for (uint32_t i = 0; i < board->value_len; i++) value[i] = (of * 31 + salt + i) & 255;
}

static void check(const unsigned char *value, uint32_t of) {
    for (uint32_t i = 0; i < board->value_len; i++)
        if (value[i] != ((of * 31 + salt + i) & 255)) fail("a wrong value of rank", of);
}

static void check_all(void) {
    for (uint32_t of = 0; of < size; of++) check(all + (size_t)of * board->value_len, of);
}

// As `peers` and `distance` in `dev/sim/src/rank_network/peers.rs`.
static uint32_t spread(uint32_t nth) { return (uint64_t)((nth + 1) * 2654435761u) * size >> 32; }

static uint32_t distance(uint32_t nth) { return nth == 0 ? size / 3 : spread(nth); }

static uint32_t log_size(void) {
    uint32_t log = 0;
    while ((1ull << log) < size) log++;
    return log;
}

static void split(void) {
    wu_group *node;
    wu_group_info_t info = {.struct_size = sizeof info};
    well(wu.wu_group_split(world, rank / ppn, 0, &node, NULL), "wu_group_split");
    well(wu.wu_group_info(node, &info), "wu_group_info");
    uint32_t first = rank / ppn * ppn;
    if (info.rank != rank - first || info.size != (size - first < ppn ? size - first : ppn)) fail("a wrong group", info.rank);
    well(wu.wu_group_free(node), "wu_group_free");
}

// Ranks answer questions for addresses only inside the library, so all stay there until all have finished.
static void stay(void) { well(wu.wu_barrier(world, NULL), "wu_barrier"); }

static void locate(void) {
    wu_group *twins[ASKERS];
    uint32_t count = size < ASKERS ? size : ASKERS;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t from = (uint64_t)i * size / count, to = (from + distance(i)) % size;
        well(wu.wu_group_dup(world, &twins[i]), "wu_group_dup");
        if (from == to) continue;
        if (rank == from) well(wu.wu_send(twins[i], to, 0, NULL, 0, NULL), "wu_send");
        if (rank == to) well(wu.wu_recv(twins[i], from, 0, NULL, 0, NULL, NULL), "wu_recv");
    }
    stay();
    for (uint32_t i = 0; i < count; i++) well(wu.wu_group_free(twins[i]), "wu_group_free");
}

// An empty message to the rank that is `shift` to the right.
static void talk_to(uint32_t shift) {
    wu_req *sent;
    well(wu.wu_send(world, (rank + shift) % size, 0, NULL, 0, &sent), "wu_send");
    well(wu.wu_recv(world, (rank + size - shift) % size, 0, NULL, 0, NULL, NULL), "wu_recv");
    well(wu.wu_wait(sent, -1), "wu_wait");
}

static void talk(void) {
    uint64_t shifts[32], count = log_size();
    for (uint32_t i = 0; i < count; i++) shifts[i] = spread(i);
    qsort(shifts, count, sizeof *shifts, by_number);
    for (uint32_t i = 0; i < count; i++)
        if (shifts[i] != 0 && (i == 0 || shifts[i] != shifts[i - 1])) talk_to(shifts[i]);
    stay();
}

// A TCP connection between ranks 0 and 1, without the library.
static int bare = -1;

static void bare_open(void) {
    in_port_t port;
    int listening = tcp_listen(&port);
    // The ranks are connected then: rank 0 does not wait for the broadcast to arrive.
    well(wu.wu_barrier(world, NULL), "wu_barrier");
    well(wu.wu_bcast(world, &port, sizeof port, 0, NULL), "wu_bcast");
    bare = rank == 0 ? tcp_accept(listening) : tcp_connect(port);
    close(listening);
}

// Both send 8 bytes and wait for 8 bytes.
static void bare_exchange(void) {
    uint64_t sent = salt, got = 0;
    if (write(bare, &sent, sizeof sent) != sizeof sent) fail("cannot write", errno);
    for (size_t have = 0; have < sizeof got;) {
        ssize_t n = read(bare, (char *)&got + have, sizeof got - have);
        if (n <= 0) fail("cannot read", errno);
        have += n;
    }
    if (got != sent) fail("wrong bytes", got);
}

static void do_once(void) {
    size_t len = board->value_len;
    uint64_t numbers[NUMBERS] = {rank, 1}, sums[NUMBERS];
    fill(mine, rank);
    switch ((enum operation)board->operation) {
    case LEAVE: break;
    case BARRIER: well(wu.wu_barrier(world, NULL), "wu_barrier"); break;
    case ALLGATHER:
        well(wu.wu_allgather(world, mine, len, all, NULL), "wu_allgather");
        check_all();
        break;
    case ALLTOALL:
        for (uint32_t to = 0; to < size; to++) fill(all + to * len, rank);
        well(wu.wu_alltoall(world, all, len, all, NULL), "wu_alltoall");
        check_all();
        break;
    case ALLREDUCE:
        well(wu.wu_allreduce(world, numbers, sums, NUMBERS, WU_U64, WU_SUM, NULL), "wu_allreduce");
        if (sums[0] != (uint64_t)size * (size - 1) / 2 || sums[1] != size) fail("a wrong sum", sums[0]);
        break;
    case BROADCAST:
        well(wu.wu_bcast(world, mine, len, 0, NULL), "wu_bcast");
        check(mine, 0);
        break;
    case SHIFT:
        well(wu.wu_shift(world, mine, len, mine, NULL), "wu_shift");
        check(mine, (rank + size - 1) % size);
        break;
    case SPLIT: split(); break;
    case LOCATE: locate(); break;
    case TALK: talk(); break;
    case TALK_TO_ALL:
        for (uint32_t shift = 1; shift < size; shift++) talk_to(shift);
        stay();
        break;
    case BARE: bare_exchange(); break;
    }
}

static wu_counts_t counts_now(void) {
    wu_counts_t counts = {.struct_size = sizeof counts};
    well(wu.wu_counts(ctx, &counts), "wu_counts");
    return counts;
}

// What was done since `before`, and what is held.
static void leave_counts(const wu_counts_t *before) {
    wu_counts_t now = counts_now();
    slot->messages = now.messages - before->messages;
    slot->bytes = now.bytes - before->bytes;
    slot->rounds = now.rounds - before->rounds;
    slot->questions = now.questions - before->questions;
    slot->connections = now.connections;
    slot->addresses = now.addresses;
    slot->address_len = now.address_len;
}

static void do_step(void) {
    if (board->operation == BARE && bare < 0) bare_open();
    wu_counts_t before = counts_now();
    salt = board->salt;
    slot->start_ns = now_ns();
    for (uint32_t i = 0; i < board->repeat; i++, salt++) do_once();
    slot->begun_ns = slot->ready_ns = slot->end_ns = now_ns();
    slot->start_cpu_ns = 0;
    leave_counts(&before);
}

// As on two hosts, each of the two ranks has a core of its own.
static void stay_on_a_core(void) {
    cpu_set_t allowed, own;
    CPU_ZERO(&own);
    if (sched_getaffinity(0, sizeof allowed, &allowed)) fail("sched_getaffinity", errno);
    for (uint32_t cpu = 0, left = rank; cpu < CPU_SETSIZE && CPU_COUNT(&own) == 0; cpu++)
        if (CPU_ISSET(cpu, &allowed) && left-- == 0) CPU_SET(cpu, &own);
    if (CPU_COUNT(&own) && sched_setaffinity(0, sizeof own, &own)) fail("sched_setaffinity", errno);
}

int main(int argc, char **argv) {
    if (argc != 7) fail("usage: groups BOARD LIBRARY READY GO ENGINE PPN", argc);
    rank = number("PMI_RANK");
    size = number("PMI_SIZE");
    ppn = strtoul(argv[6], NULL, 10);
    board_join(rank, size, argv + 1);
    if (size == 2 && ppn == 1) stay_on_a_core();
    load_wireup(argv[2]);
    // The graph of ranks and its questions for addresses are what is counted.
    wu_open_params params = {.struct_size = sizeof params, .field_mask = WU_OPEN_ENGINE | WU_OPEN_START, .start = WU_START_ALLGATHER};
    params.engine = !strcmp(argv[5], "peers") ? WU_ENGINE_PEERS : !strcmp(argv[5], "agents") ? WU_ENGINE_AGENTS : WU_ENGINE_AUTO;

    slot->join_begin_ns = now_ns();
    well(wu.wu_open(WU_API, &params, &ctx), "wu_open");
    slot->join_end_ns = now_ns();
    well(wu.wu_group_world(ctx, &world), "wu_group_world");
    leave_counts(&(wu_counts_t){0});
    enum { VALUE_LEN_MAX = 1024 };
    mine = malloc(VALUE_LEN_MAX);
    all = malloc((size_t)size * VALUE_LEN_MAX);
    if (!mine || !all) fail("no memory", errno);
    board_serve(rank, do_step);
    well(wu.wu_group_free(world), "wu_group_free");
    well(wu.wu_close(ctx), "wu_close");
    _exit(0);
}
