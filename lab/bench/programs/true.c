// The smallest rank: it exits at once. With a file name it first appends one byte to that file, so that a warm-up run
// can check that every rank was started.
#include <fcntl.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc > 1) {
        int fd = open(argv[1], O_WRONLY | O_APPEND | O_CLOEXEC);
        if (fd < 0 || write(fd, ".", 1) != 1) _exit(1);
    }
    _exit(0);
}
