/* exchange [ROUNDS [BYTES]]: put, commit, a fence that collects data, get of every rank; each round has new keys. */
#include "check.h"

int main(int argc, char **argv)
{
    uint32_t rounds = argc > 1 ? (uint32_t)atoi(argv[1]) : 1;
    size_t bytes = argc > 2 ? (size_t)atoi(argv[2]) : 32;
    double fences = 0, gets = 0;
    char key[64];

    begin();
    for (uint32_t round = 0; round < rounds; round++) {
        snprintf(key, sizeof key, "exchange.%u", round);
        put(key, round, bytes);
        MUST(PMIx_Commit());
        MUST(fence(false));
        double from = now();
        MUST(fence(true));
        double between = now();
        for (uint32_t i = 0; i < size; i++)
            get((me.rank + i) % size, key, round, bytes);
        fences += between - from;
        gets += now() - between;
    }
    if (getenv("CLOCK"))
        fprintf(stderr, "rank %u: fence %.6f get %.6f\n", me.rank, fences / rounds, gets / rounds);
    MUST(fence(false));
    if (me.rank == 0)
        printf("exchange over %u ranks: %u rounds of %zu bytes are right\n", size, rounds, bytes);
    finish();
    return 0;
}
