/* Checks that end the program at the first wrong result. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IS(call, wanted)                                                                       \
    do {                                                                                       \
        long got_ = (long)(call), wanted_ = (long)(wanted);                                    \
        if (got_ != wanted_) {                                                                 \
            fprintf(stderr, "%s:%d: %s is %ld, not %ld\n", __FILE__, __LINE__, #call, got_, wanted_); \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

#define SAME(text, wanted)                                                                      \
    do {                                                                                        \
        if (strcmp(text, wanted) != 0) {                                                        \
            fprintf(stderr, "%s:%d: %s is \"%s\", not \"%s\"\n", __FILE__, __LINE__, #text, text, wanted); \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)
