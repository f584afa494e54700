// misbehave NUMBER: a rank whose end depends on its number. Of 20 consecutive ones, 16 exit properly; one each exits
// with 3, is killed by SIGSEGV, aborts, and leaves a sleeping child behind.
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int number = argc > 1 ? atoi(argv[1]) : 0;
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    switch (number % 20) {
    case 4:
        _exit(3);
    case 9:
        raise(SIGSEGV);
        _exit(0);
    case 14:
        abort();
    case 19:
        if (fork() == 0) {
            // Detached from its rank's session and output, as processes left behind by mistake often are.
            setsid();
            for (int fd = 0; fd < 3; fd++) close(fd);
            sleep(100000);
        }
        _exit(0);
    default:
        _exit(0);
    }
}
