// vfork and exec, the cheapest way to start another program.
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

// The child runs on the parent's stack until it execs: it may only adjust `keep_fd` and exec.
static inline pid_t spawn(char **argv, char **envp, void (*in_child)(int), int keep_fd) {
    pid_t pid = vfork();
    if (pid == 0) {
        if (in_child) in_child(keep_fd);
        execve(argv[0], argv, envp);
        _exit(127);
    }
    if (pid < 0) {
        perror("vfork");
        exit(1);
    }
    return pid;
}

// Reaps `count` children; the exit status is 1 if one of them failed.
static inline int reap(int count) {
    int failed = 0;
    for (int i = 0; i < count; i++) {
        int status;
        if (wait(&status) < 0) {
            perror("wait");
            return 1;
        }
        failed |= status != 0;
    }
    return failed;
}
