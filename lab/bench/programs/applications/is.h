// IS, class W: the ranks of 2^20 keys below 2^16, ten times. Each rank has a range of values; all ranks send each other
// the keys of their ranges, and count.
enum { IS_KEYS = 1 << 20, IS_RANGE = 1 << 16, IS_TIMES = 10, IS_TESTS = 5 };

static int is_owner(uint32_t key) { return (uint64_t)key * size / IS_RANGE; }

// Sends all keys to the ranks that have their values; returns how many this rank has received.
static uint32_t is_redistribute(const uint32_t *keys, uint32_t count, uint32_t *sorted, uint32_t *received) {
    uint32_t begin[size + 1], next[size], got = 0;
    memset(begin, 0, sizeof begin);
    for (uint32_t i = 0; i < count; i++) begin[is_owner(keys[i]) + 1]++;
    for (int to = 0; to < size; to++) begin[to + 1] += begin[to], next[to] = begin[to];
    for (uint32_t i = 0; i < count; i++) sorted[next[is_owner(keys[i])]++] = keys[i];
    for (int shift = 1; shift < size; shift++) {
        int to = rank ^ shift;
        uint32_t length = begin[to + 1] - begin[to];
        send_to(to, &length, sizeof length);
        send_to(to, sorted + begin[to], length * sizeof *sorted);
    }
    memcpy(received, sorted + begin[rank], (got = begin[rank + 1] - begin[rank]) * sizeof *sorted);
    for (int shift = 1; shift < size; shift++) {
        uint32_t length;
        receive_from(rank ^ shift, &length, sizeof length);
        if (length > IS_KEYS - got) fail("too many keys", length);
        receive_from(rank ^ shift, received + got, length * sizeof *received);
        got += length;
    }
    return got;
}

// Sorts the received keys by their ranks; returns how many are in this rank's range and not below the key before.
static double is_in_order(const uint32_t *below, uint32_t range, const uint32_t *keys, uint32_t count) {
    uint32_t *ordered = memory(count * sizeof *ordered), *next = memory(range * sizeof *next), first = rank * range;
    double good = 0;
    memcpy(next, below, range * sizeof *next);
    for (uint32_t i = 0; i < count; i++) ordered[next[keys[i] - first]++] = keys[i];
    for (uint32_t i = 0; i < count; i++)
        good += is_owner(ordered[i]) == rank && (i == 0 || ordered[i - 1] <= ordered[i]);
    free(ordered);
    free(next);
    return good;
}

static void is(void) {
    static const uint32_t TEST_INDEX[IS_TESTS] = {357773, 934767, 875723, 898999, 404505};
    static const uint32_t TEST_RANK[IS_TESTS] = {1249, 11698, 1039987, 1043896, 1048018};
    uint32_t count = IS_KEYS / size, first_key = rank * count, range = IS_RANGE / size, got = 0;
    uint32_t *keys = memory(count * sizeof *keys), *sorted = memory(count * sizeof *sorted);
    uint32_t *received = memory(IS_KEYS * sizeof *received), *below = memory((range + 1) * sizeof *below);
    // Keys of the ranges of each rank, then the values of the tested keys.
    double totals[size + IS_TESTS], passed[2] = {0};
    uint64_t random = skip(314159265, 4ull * first_key);
    for (uint32_t i = 0; i < count; i++) {
        double sum = draw(&random);
        for (int more = 0; more < 3; more++) sum += draw(&random);
        keys[i] = IS_RANGE / 4 * sum;
    }
    for (int time = 1; time <= IS_TIMES; time++) {
        if (rank == 0) keys[time] = time, keys[time + IS_TIMES] = IS_RANGE - time;
        memset(totals, 0, sizeof totals);
        for (uint32_t i = 0; i < count; i++) totals[is_owner(keys[i])]++;
        for (int test = 0; test < IS_TESTS; test++)
            if (TEST_INDEX[test] / count == (uint32_t)rank) totals[size + test] = keys[TEST_INDEX[test] % count];
        add_up(totals, size + IS_TESTS);
        got = is_redistribute(keys, count, sorted, received);
        memset(below, 0, (range + 1) * sizeof *below);
        for (uint32_t i = 0; i < got; i++) below[received[i] - rank * range + 1]++;
        for (uint32_t i = 0; i < range; i++) below[i + 1] += below[i];
        double lesser = 0;
        for (int other = 0; other < rank; other++) lesser += totals[other];
        for (int test = 0; test < IS_TESTS; test++) {
            uint32_t key = totals[size + test], expected = TEST_RANK[test] + (test < 2 ? time - 2 : -time);
            if (is_owner(key) == rank) passed[0] += lesser + below[key - rank * range] == expected;
        }
    }
    passed[1] = is_in_order(below, range, received, got);
    add_up(passed, 2);
    verify("the number of right ranks of IS", passed[0], IS_TESTS * IS_TIMES, 0);
    verify("the number of keys of IS in order", passed[1], IS_KEYS, 0);
}
