// spawn_baseline COUNT SPAWNERS PROGRAM [ARG..]: starts COUNT processes with inherited stdio and waits for them,
// nothing else; with more than one spawner the work is divided among forked processes.
#include "spawn.h"

extern char **environ;

static int spawn_all(int count, char **argv) {
    for (int i = 0; i < count; i++) spawn(argv, environ, NULL, -1);
    return reap(count);
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: spawn_baseline COUNT SPAWNERS PROGRAM [ARG..]\n");
        return 2;
    }
    int count = atoi(argv[1]), spawners = atoi(argv[2]), failed;
    if (spawners <= 1) {
        failed = spawn_all(count, argv + 3);
    } else {
        for (int i = 0; i < spawners; i++) {
            int share = count / spawners + (i < count % spawners);
            pid_t pid = fork();
            if (pid == 0) _exit(spawn_all(share, argv + 3));
            if (pid < 0) {
                perror("fork");
                return 1;
            }
        }
        failed = reap(spawners);
    }
    return failed;
}
