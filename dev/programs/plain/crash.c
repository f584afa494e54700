/* crash [RANK]: a segmentation fault in that rank, or in all ranks without RANK; the others sleep. */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    const char *rank = getenv("WIREUP_RANK");
    volatile int *nowhere = NULL;
    struct rlimit none = {0, 0};

    setrlimit(RLIMIT_CORE, &none);
    if (argc < 2 || (rank && strcmp(rank, argv[1]) == 0))
        *nowhere = 1;
    sleep(1000);
    return 0;
}
