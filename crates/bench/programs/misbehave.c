// misbehave NUMBER: a rank that ends as its number says. Of 20 in sequence 16 leave as they should, and one each exits with 3, is killed
// by SIGSEGV, aborts, and leaves a child behind that sleeps on.
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
            // Away from its rank's session and its output, as what is left behind by mistake often is.
            setsid();
            for (int fd = 0; fd < 3; fd++) close(fd);
            sleep(100000);
        }
        _exit(0);
    default:
        _exit(0);
    }
}
