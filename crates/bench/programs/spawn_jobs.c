// spawn-jobs COUNT IN_FLIGHT [--any] PROGRAM [ARG..]: runs PROGRAM that many times, IN_FLIGHT of them at a time, stdio inherited.
//
// {i} in an argument becomes the number of the run, from 0. A run that does not end with 0 is an error, which is told; with --any it
// is counted. Prints how many ended with 0 and how many did not.
#include <stdbool.h>
#include <string.h>

#include "spawn.h"

extern char **environ;

// `argv` with the number in place of {i}; what it allocates is freed by nobody but the next call.
static char **numbered(char **argv, int number) {
    static char **words;
    static int count;
    for (int i = 0; i < count; i++) free(words[i]);
    for (count = 0; argv[count]; count++) continue;
    words = realloc(words, (count + 1) * sizeof *words);
    for (int i = 0; i < count; i++) {
        char *mark = strstr(argv[i], "{i}");
        int head = mark ? (int)(mark - argv[i]) : (int)strlen(argv[i]);
        size_t size = strlen(argv[i]) + 16;
        words[i] = malloc(size);
        if (mark) snprintf(words[i], size, "%.*s%d%s", head, argv[i], number, mark + 3);
        else memcpy(words[i], argv[i], head + 1);
    }
    words[count] = NULL;
    return words;
}

int main(int argc, char **argv) {
    bool any = argc > 3 && strcmp(argv[3], "--any") == 0;
    char **program = argv + 3 + any;
    if (argc < 4 + any) {
        fprintf(stderr, "usage: spawn-jobs COUNT IN_FLIGHT [--any] PROGRAM [ARG..]\n");
        return 2;
    }
    int count = atoi(argv[1]), in_flight = atoi(argv[2]), started = 0, good = 0, bad = 0;
    bool numbers = false;
    for (char **word = program; *word; word++) numbers |= strstr(*word, "{i}") != NULL;
    while (good + bad < count) {
        if (started < count && started - good - bad < in_flight) {
            spawn(numbers ? numbered(program, started) : program, environ, NULL, -1);
            started++;
            continue;
        }
        int status;
        if (wait(&status) < 0) {
            perror("wait");
            return 1;
        }
        if (status == 0) {
            good++;
            continue;
        }
        bad++;
        if (!any && bad == 1) fprintf(stderr, "spawn-jobs: a run ended with status 0x%x\n", status);
    }
    printf("%d %d\n", good, bad);
    return !any && bad > 0;
}
