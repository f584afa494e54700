// spawn-jobs COUNT IN_FLIGHT LIMIT PROGRAM [ARG..]: runs PROGRAM COUNT times, at most IN_FLIGHT of them at a time, with
// inherited stdio.
//
// `{i}` in an argument is replaced by the number of the run, from 0. A run that takes more than LIMIT seconds is
// killed. Prints one line
//
//   WELL BADLY HUNG SECONDS      runs that ended with 0, that ended otherwise, that were killed; time until the last one ended by itself
//
// and on standard error the status of the first run that ended badly.
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include "spawn.h"

extern char **environ;

struct run {
    pid_t pid;
    double begin;
    bool killed;
};

static double now(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec + ts.tv_nsec / 1e9;
}

// Only interrupts wait.
static void on_alarm(int signal) { (void)signal; }

static void kill_hung(struct run *runs, int count, double limit) {
    for (int i = 0; i < count; i++) {
        if (runs[i].pid == 0 || runs[i].killed || now() - runs[i].begin < limit) continue;
        runs[i].killed = kill(runs[i].pid, SIGKILL) == 0;
    }
}

// `argv` with the number in place of {i}; valid until the next call.
static char **numbered(char **argv, int number) {
    static char **words;
    int count = 0;
    while (argv[count]) count++;
    for (int i = 0; words && words[i]; i++) free(words[i]);
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
    if (argc < 5) {
        fprintf(stderr, "usage: spawn-jobs COUNT IN_FLIGHT LIMIT PROGRAM [ARG..]\n");
        return 2;
    }
    int count = atoi(argv[1]), in_flight = atoi(argv[2]), limit = atoi(argv[3]);
    int started = 0, running = 0, well = 0, badly = 0, hung = 0;
    char **program = argv + 4;
    bool has_numbers = false;
    for (char **word = program; *word; word++) has_numbers |= strstr(*word, "{i}") != NULL;
    struct run *runs = calloc(in_flight, sizeof *runs);
    struct sigaction action = {.sa_handler = on_alarm};
    struct itimerval second = {{1, 0}, {1, 0}};
    if (!runs || sigaction(SIGALRM, &action, NULL) < 0 || setitimer(ITIMER_REAL, &second, NULL) < 0) {
        perror("spawn-jobs");
        return 1;
    }
    double begin = now(), end = begin;
    while (well + badly + hung < count) {
        if (started < count && running < in_flight) {
            struct run *run = runs;
            while (run->pid) run++;
            *run = (struct run){.begin = now()};
            run->pid = spawn(has_numbers ? numbered(program, started) : program, environ, NULL, -1);
            started++;
            running++;
            continue;
        }
        int status;
        pid_t pid = wait(&status);
        if (pid < 0) {
            kill_hung(runs, in_flight, limit);
            continue;
        }
        struct run *run = runs;
        while (run < runs + in_flight && run->pid != pid) run++;
        if (run == runs + in_flight) continue;
        bool killed = run->killed;
        run->pid = 0;
        running--;
        if (killed) {
            hung++;
            continue;
        }
        end = now();
        if (status == 0) well++;
        else if (badly++ == 0) fprintf(stderr, "spawn-jobs: the first that ended badly: status 0x%x\n", status);
    }
    printf("%d %d %d %.6f\n", well, badly, hung, end - begin);
    return 0;
}
