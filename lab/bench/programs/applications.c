// applications KERNEL SCHEME SETUP_NS LIBRARY STAMPS
//
// A rank of a whole application: one of the NAS kernels EP, CG, IS and MG over connections that it makes itself
// (`applications/peers.h`). It gives its address to the other ranks by SCHEME (fence, allgather, ifence, iallgather) of
// LIBRARY, a libpmi2 with the startup extensions; is busy with something else for SETUP_NS, asleep; and computes. The
// results are compared with those that NAS has published. Then it appends its line to the file STAMPS: its rank, and
// the clock when its exchange starts, when the call that starts it returns, when the kernel first needs another rank,
// when it has the addresses, and when the kernel has finished.
#define _GNU_SOURCE
#include <math.h>
#include <string.h>

#include "applications/peers.h"

static void verify(const char *what, double result, double published, double tolerance) {
    if (fabs(result - published) <= tolerance * fabs(published)) return;
    fprintf(stderr, "%s is %.15g, not %.15g\n", what, result, published);
    fail("a wrong result", rank);
}

// NAS's random numbers: x' = 5^13 x mod 2^46.
static const uint64_t FACTOR = 1220703125, MODULUS_MASK = (1ull << 46) - 1;

static inline double draw(uint64_t *x) {
    *x = *x * FACTOR & MODULUS_MASK;
    return *x * 0x1p-46;
}

// The state after `count` numbers.
static uint64_t skip(uint64_t x, uint64_t count) {
    for (uint64_t power = FACTOR; count; count >>= 1, power *= power)
        if (count & 1) x *= power;
    return x & MODULUS_MASK;
}

#include "applications/cg.h"
#include "applications/ep.h"
#include "applications/is.h"
#include "applications/mg.h"

static const struct {
    const char *name;
    void (*run)(void);
} KERNELS[] = {{"ep", ep}, {"cg", cg}, {"is", is}, {"mg", mg}};

static void sleep_ns(uint64_t ns) {
    struct timespec left = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    while (nanosleep(&left, &left) && errno == EINTR) {}
}

int main(int argc, char **argv) {
    if (argc != 6) fail("usage: applications KERNEL SCHEME SETUP_NS LIBRARY STAMPS", argc);
    size_t at = 0;
    while (at < sizeof KERNELS / sizeof *KERNELS && strcmp(KERNELS[at].name, argv[1])) at++;
    if (at == sizeof KERNELS / sizeof *KERNELS) fail("there is no such kernel", at);
    complaint_about = argv[1];
    load_pmi2(argv[4]);
    peers_open(argv[2]);
    sleep_ns(strtoull(argv[3], NULL, 10));
    KERNELS[at].run();
    peers_close(argv[5]);
    return 0;
}
