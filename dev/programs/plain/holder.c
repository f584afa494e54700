/* holder SECONDS: leaves a daemon behind (two forks, its own session) that keeps stdout and stderr open for that time;
 * prints the daemon's pid and exits with 0. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int ends[2];
    char told;
    unsigned seconds = argc > 1 ? (unsigned)atoi(argv[1]) : 1000;

    if (pipe(ends) != 0)
        return 2;
    pid_t middle = fork();
    if (middle == 0) {
        setsid();
        if (fork() == 0) {
            signal(SIGHUP, SIG_IGN);
            signal(SIGTERM, SIG_IGN);
            printf("daemon %d\n", (int)getpid());
            fflush(stdout);
            if (write(ends[1], "x", 1) != 1)
                _exit(2);
            sleep(seconds);
        }
        _exit(0);
    }
    waitpid(middle, NULL, 0);
    return read(ends[0], &told, 1) == 1 ? 0 : 2;
}
