/* A library whose initialization waits for a byte. */
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void waits(void) {
    const char *from = getenv("SHOWN_WAITS_FOR");
    char byte;
    if (from && read(atoi(from), &byte, 1) != 1)
        abort();
}
