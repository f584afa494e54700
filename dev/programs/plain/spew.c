/* spew bytes N | spew lines N LENGTH | spew zeros
 *
 * Writes N bytes (the letters of the alphabet in turn, no newline); or N numbered lines padded to LENGTH, with writes of
 * irregular sizes; or zero bytes until it is stopped. Each line contains WIREUP_RANK. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void put(const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t done = write(1, bytes, count);
        if (done < 0)
            exit(9);
        bytes += done;
        count -= (size_t)done;
    }
}

int main(int argc, char **argv)
{
    static char block[1 << 16];

    if (argc == 3 && strcmp(argv[1], "bytes") == 0) {
        long total = atol(argv[2]);
        for (long at = 0; at < total; at += (long)sizeof block) {
            long count = total - at < (long)sizeof block ? total - at : (long)sizeof block;
            for (long i = 0; i < count; i++)
                block[i] = (char)('a' + (at + i) % 26);
            put(block, (size_t)count);
        }
        return 0;
    }
    if (argc == 4 && strcmp(argv[1], "lines") == 0) {
        const char *rank = getenv("WIREUP_RANK");
        long lines = atol(argv[2]), length = atol(argv[3]), held = 0, cut = 1;
        char *line = malloc((size_t)length + 64);
        for (long i = 0; i < lines; i++) {
            int head = sprintf(line, "rank %s line %ld ", rank ? rank : "-", i);
            for (long j = head; j < length; j++)
                line[j] = (char)('a' + j % 26);
            long end = head > length ? head : length;
            line[end++] = '\n';
            for (long j = 0; j < end; j++) {
                block[held++] = line[j];
                if (held == cut) {
                    put(block, (size_t)held);
                    held = 0;
                    cut = cut % 4093 + 101;
                }
            }
        }
        put(block, (size_t)held);
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "zeros") == 0)
        for (;;)
            put(block, sizeof block);
    fprintf(stderr, "usage: spew bytes N | lines N LENGTH | zeros\n");
    return 2;
}
