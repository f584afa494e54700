/* What a staged program sees where no mounts can be made: shown ROOT [what]. A line for each thing that is not as it should be. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static char root[PATH_MAX];
static int failed;

#define CHECK(what)                                                                  \
    do {                                                                             \
        errno = 0;                                                                   \
        if (!(what)) {                                                               \
            printf("line %d: not so: %s (errno %d)\n", __LINE__, #what, errno);      \
            failed = 1;                                                              \
        }                                                                            \
    } while (0)
#define FAILS(call, number) CHECK((call) == -1 && errno == (number))

/* A path below the staged folder; four may be in use. */
static const char *at(const char *name) {
    static char paths[4][PATH_MAX];
    static int next;
    next = (next + 1) % 4;
    snprintf(paths[next], PATH_MAX, "%s/%s", root, name);
    return paths[next];
}

/* Where the kernel says that a descriptor, the program or the working folder is. */
static int is_copy(const char *name) {
    char target[PATH_MAX] = "";
    long len = syscall(SYS_readlinkat, AT_FDCWD, name, target, sizeof target - 1);
    return len > 0 && strstr(target, "/sets/") && strstr(target, "/tree/");
}

static int is_copy_fd(int fd) {
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    return fd >= 0 && is_copy(name);
}

static int opens_copy(const char *path, int flags) {
    int fd = open(path, flags, 0600);
    int found = is_copy_fd(fd);
    if (fd >= 0)
        close(fd);
    return found;
}

static int opens_original(const char *path) {
    int fd = open(path, O_RDONLY);
    int found = fd >= 0 && !is_copy_fd(fd);
    if (fd >= 0)
        close(fd);
    return found;
}

/* That the loader has put each kind of call into this process; what each call does is tested in the library's crate. */
static void is_in_place(void) {
    char text[PATH_MAX] = "", own[PATH_MAX];
    struct stat status;
    CHECK(opens_copy(at("data"), O_RDONLY) && opens_copy(at("near/file"), O_RDONLY));
    CHECK(opens_original(at("out/secret")));
    FILE *file = fopen(at("data"), "r");
    CHECK(file && is_copy_fd(fileno(file)) && fgets(text, sizeof text, file) && !strcmp(text, "data\n"));
    file = freopen(at("data"), "r", file);
    CHECK(file && is_copy_fd(fileno(file)) && fclose(file) == 0);
    DIR *folder = opendir(at("dir"));
    CHECK(folder && is_copy_fd(dirfd(folder)) && closedir(folder) == 0);
    /* The copies have no write bits; the program is told those of the originals. */
    int fd = open(at("open"), O_RDONLY);
    CHECK(syscall(SYS_fstat, fd, &status) == 0 && (status.st_mode & 07777) == 0444);
    CHECK(fstat(fd, &status) == 0 && (status.st_mode & 07777) == 0666);
    CHECK(stat(at("open"), &status) == 0 && (status.st_mode & 07777) == 0666);
    FAILS(access(at("data"), W_OK), EROFS);
    FAILS(open(at("data"), O_RDWR), EROFS);
    FAILS(fchmod(fd, 0), EROFS);
    FAILS(unlink(at("data")), EROFS);
    FAILS(rename(at("data"), at("new")), EROFS);
    FAILS(mkstemp(strcpy(text, at("newXXXXXX"))), EROFS);
    close(fd);
    /* A program without the library, which has got this folder; root may do anything. */
    fd = open(root, O_RDONLY | O_DIRECTORY);
    if (geteuid() != 0) {
        FAILS(syscall(SYS_openat, fd, "open", O_WRONLY), EACCES);
        FAILS(syscall(SYS_unlinkat, fd, "data", 0), EACCES);
        FAILS(syscall(SYS_unlinkat, fd, "../env", AT_REMOVEDIR), EACCES);
    }
    CHECK(fchdir(fd) == 0 && !is_copy("/proc/self/cwd") && opens_copy("./data", O_RDONLY));
    CHECK(chdir(root) == 0 && !is_copy("/proc/self/cwd") && chdir("/") == 0);
    close(fd);
    /* What the kernel says of the program that runs. */
    strcpy(own, at("bin/shown"));
    CHECK(realpath("/proc/self/exe", text) && !strcmp(text, own));
    memset(text, 0, sizeof text);
    CHECK(readlink("/proc/self/exe", text, sizeof text) == (long)strlen(own) && !strcmp(text, own));
    CHECK(is_copy("/proc/self/exe"));
}

static void libraries(void) {
    Dl_info info;
    void *library = dlopen(at("lib/libone.so"), RTLD_NOW);
    CHECK(library != NULL);
    void *function = library ? dlsym(library, "one") : NULL;
    CHECK(function && dladdr(function, &info) && !strcmp(info.dli_fname, at("lib/libone.so")));
    CHECK(chdir(root) == 0 && dlopen("$ORIGIN/../lib/libone.so", RTLD_NOW) && chdir("/") == 0);
    /* The first one of this name in LD_LIBRARY_PATH is for another processor. */
    CHECK(dlopen("libtwice.so", RTLD_NOW));
}

static int ends[2];

static void *calls_when_locked(void *unused) {
    (void)unused;
    usleep(200000);
    /* Nothing has called it before. */
    eaccess(at("data"), R_OK);
    return write(ends[1], "x", 1) == 1 ? ends : NULL;
}

/* The loader holds its lock while a library is initialized, which here waits for another thread. */
static void locks(void) {
    char number[16];
    pthread_t thread;
    if (pipe(ends))
        exit(1);
    snprintf(number, sizeof number, "%d", ends[0]);
    setenv("SHOWN_WAITS_FOR", number, 1);
    alarm(20);
    pthread_create(&thread, NULL, calls_when_locked, NULL);
    CHECK(dlopen(at("lib/libwaits.so"), RTLD_NOW));
    pthread_join(thread, NULL);
    alarm(0);
}

static int unwound;

static void note(int *value) {
    unwound = *value;
}

static void *opens_for_ever(void *name) {
    int value __attribute__((cleanup(note))) = 1;
    open(name, O_RDONLY);
    return NULL;
}

/* A thread that is cancelled in a call does what is to be done at the end of its functions. */
static void cancels(void) {
    char name[] = "/dev/shm/wireup-test-XXXXXX";
    pthread_t thread;
    void *result = NULL;
    CHECK(mkdtemp(name) && rmdir(name) == 0 && mkfifo(name, 0600) == 0);
    pthread_create(&thread, NULL, opens_for_ever, name);
    usleep(100000);
    alarm(20);
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
    alarm(0);
    CHECK(result == PTHREAD_CANCELED && unwound == 1);
    unlink(name);
}

static char output[1 << 16];

/* What a process has written. */
static const char *said(int pipe_end, pid_t pid) {
    size_t len = 0;
    long read_now;
    while ((read_now = read(pipe_end, output + len, sizeof output - 1 - len)) > 0)
        len += read_now;
    output[len] = 0;
    close(pipe_end);
    int status;
    waitpid(pid, &status, 0);
    return output;
}

#define SAYS(expected, ...)                                                                          \
    do {                                                                                             \
        int ends[2];                                                                                 \
        if (pipe(ends))                                                                              \
            exit(1);                                                                                 \
        fflush(stdout);                                                                              \
        pid_t pid = fork();                                                                          \
        if (pid == 0) {                                                                              \
            dup2(ends[1], 1);                                                                        \
            close(ends[0]);                                                                          \
            close(ends[1]);                                                                          \
            __VA_ARGS__;                                                                             \
            printf("errno %d\n", errno);                                                             \
            fflush(stdout);                                                                          \
            _exit(1);                                                                                \
        }                                                                                            \
        close(ends[1]);                                                                              \
        const char *expects = (expected), *got = said(ends[0], pid);                                 \
        if (strcmp(got, expects)) {                                                                  \
            printf("line %d: %s\n  said: %s  not: %s\n", __LINE__, #__VA_ARGS__, got, expects);      \
            failed = 1;                                                                              \
        }                                                                                            \
    } while (0)

static const char *line(const char *format, const char *path) {
    static char lines[4][PATH_MAX];
    static int next;
    next = (next + 1) % 4;
    snprintf(lines[next], PATH_MAX, format, path);
    return lines[next];
}

static void programs(void) {
    char *none[] = {NULL};
    char child[PATH_MAX], still[PATH_MAX], script[PATH_MAX], plain[PATH_MAX], own_script[PATH_MAX];
    strcpy(child, at("bin/shown"));
    strcpy(still, at("bin/still"));
    strcpy(script, at("bin/script"));
    strcpy(own_script, at("bin/own-script"));
    strcpy(plain, at("bin/plain"));
    char *child_words[] = {"a name", root, "child", NULL};
    const char *from_copy = "copy a name\n";
    /* With the library, whatever the environment. */
    SAYS(from_copy, execv(child, child_words));
    SAYS(from_copy, execve(child, child_words, none));
    char *few[] = {"LD_PRELOAD=", "A=b", NULL};
    SAYS(from_copy, execve(child, child_words, few));
    SAYS(from_copy, execl(child, "a name", root, "child", NULL));
    SAYS(from_copy, execle(child, "a name", root, "child", NULL, none));
    SAYS(from_copy, execv("/proc/self/exe", child_words));
    SAYS(from_copy, fexecve(open(child, O_RDONLY | O_CLOEXEC), child_words, environ));
    SAYS(from_copy, chdir(root); execv("bin/shown", child_words));
    SAYS(from_copy, chdir(at("bin")); execv("./shown", child_words));
    SAYS(from_copy, setenv("PATH", line("/none:/etc:%s/bin", root), 1); execvp("shown", child_words));
    SAYS(from_copy, setenv("PATH", line("/none:%s/bin", root), 1); execlp("shown", "a name", root, "child", NULL));
    SAYS(from_copy, if (vfork() == 0) { execv(child, child_words); _exit(1); } wait(NULL); _exit(0));
    /* The original of a static program: it cannot have the library. */
    char *still_words[] = {"still", NULL};
    const char *is_original = "original\n";
    SAYS(is_original, execv(still, still_words));
    SAYS(is_original, fexecve(open(still, O_RDONLY | O_CLOEXEC), still_words, environ));
    SAYS(is_original, setenv("PATH", line("%s/bin", root), 1); execvp("still", still_words));
    /* Without a variable PATH the system's folders are searched, not the working folder. */
    SAYS("errno 2\n", chdir(at("bin")); unsetenv("PATH"); execvp("shown", child_words));
    SAYS("errno 2\n", chdir(at("bin")); unsetenv("PATH"); errno = posix_spawnp(&(pid_t){0}, "shown", NULL, NULL, child_words, none));
    /* Scripts. */
    char *script_words[] = {"ignored", "one", "two words", NULL};
    SAYS(line("script %s one two words\n", script), execv(script, script_words));
    SAYS("script bin/script one two words\n", chdir(root); execv("bin/script", script_words));
    SAYS(line("script %s/bin/script one two words\n", root), setenv("PATH", line("%s/bin", root), 1); execvp("script", script_words));
    SAYS("copy of-script\n", execve(own_script, script_words, none));
    char *many[5002];
    for (int i = 0; i < 5000; i++)
        many[i] = "x";
    many[0] = "ignored", many[5000] = NULL;
    SAYS("4999\n", execv(at("bin/count"), many));
    /* A file without a first line: an error, or a script of the shell. */
    SAYS("errno 8\n", execv(plain, script_words));
    SAYS(line("plain %s one\n", plain), execvp(plain, script_words));
    SAYS("errno 13\n", execv(at("data"), script_words));
    SAYS("errno 2\n", execv(at("bin/none"), script_words));
    SAYS("errno 2\n", setenv("PATH", line("%s/bin", root), 1); execvp("none", script_words));
    SAYS("errno 13\n", setenv("PATH", root, 1); execvp("data", script_words));
    /* posix_spawn. */
    pid_t spawned;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    SAYS(from_copy, posix_spawn(&spawned, child, NULL, NULL, child_words, none); wait(NULL); _exit(0));
    SAYS(from_copy, posix_spawn(&spawned, child, &actions, NULL, child_words, environ); wait(NULL); _exit(0));
    SAYS(from_copy, chdir(root); posix_spawn(&spawned, "bin/shown", NULL, NULL, child_words, environ); wait(NULL); _exit(0));
    SAYS("original a name\n", chdir(root); posix_spawn(&spawned, "bin/shown", &actions, NULL, child_words, none); wait(NULL); _exit(0));
    SAYS(from_copy, setenv("PATH", line("/none:%s/bin", root), 1); posix_spawnp(&spawned, "shown", &actions, NULL, child_words, environ); wait(NULL); _exit(0));
    SAYS(is_original, posix_spawn(&spawned, still, NULL, NULL, still_words, environ); wait(NULL); _exit(0));
    CHECK(posix_spawn(&spawned, at("bin/none"), NULL, NULL, child_words, environ) == ENOENT);
    setenv("PATH", "/usr/bin:/bin", 1);
    CHECK(posix_spawnp(&spawned, "none-of-this-name", NULL, NULL, child_words, environ) == ENOENT);
    /* By a shell, with variables whose names are odd. */
    char command[2 * PATH_MAX];
    snprintf(command, sizeof command, "%s %s child; true", child, root);
    SAYS(line("copy %s\n", child), execl("/bin/sh", "sh", "-c", command, NULL));
    SAYS(line("copy %s\n", child), _exit(system(command)));
    SAYS("odd\n", printf("%s\n", getenv("odd.name-1")); fflush(stdout); _exit(0));
    /* The original for a program that has cleared everything and is not staged. */
    SAYS(line("original %s\n", child), execle("/bin/sh", "sh", "-c", command, NULL, none));
}

/* With other mounts the same names may mean other files. */
static void elsewhere(void) {
    char command[2 * PATH_MAX];
    snprintf(command, sizeof command, "unshare -Urm true 2>/dev/null || { echo original; exit; }; unshare -Urm %s %s child", at("bin/shown"), root);
    SAYS("original\n", char text[PATH_MAX] = ""; FILE *from = popen(command, "r"); if (fgets(text, sizeof text, from)) puts(strncmp(text, "original", 8) ? text : "original"); fflush(stdout); _exit(0));
    SAYS("original a name\n", if (chroot("/")) { puts("original a name"); fflush(stdout); _exit(0); } printf("%s a name\n", opens_copy(at("data"), O_RDONLY) ? "copy" : "original"); fflush(stdout); _exit(0));
}

static void *opens_much(void *unused) {
    struct stat status;
    (void)unused;
    for (int i = 0; i < 3; i++) {
        int fd = open(at("dir/sub/../../near/file"), O_RDONLY);
        if (fd >= 0)
            close(fd);
        stat(at("near/file"), &status);
        access(at("none"), R_OK);
        open(at("data"), O_WRONLY);
    }
    return NULL;
}

static void *opens_little(void *unused) {
    (void)unused;
    at("dir/sub/../../near/file");
    syscall(SYS_getpid);
    return NULL;
}

static void *spawns(void *unused) {
    char *words[] = {"count", NULL};
    pid_t pid;
    posix_spawn_file_actions_t silent;
    (void)unused;
    posix_spawn_file_actions_init(&silent);
    posix_spawn_file_actions_addopen(&silent, 1, "/dev/null", O_WRONLY, 0);
    if (posix_spawnp(&pid, "count", &silent, NULL, words, environ) == 0)
        waitpid(pid, NULL, 0);
    posix_spawn_file_actions_destroy(&silent);
    return NULL;
}

/* How much of its stack a thread has used. */
static size_t used_by(void *(*function)(void *)) {
    static unsigned char stack[1 << 17] __attribute__((aligned(4096)));
    memset(stack, 0xa5, sizeof stack);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stack, sizeof stack);
    pthread_t thread;
    pthread_create(&thread, &attributes, function, NULL);
    pthread_join(thread, NULL);
    size_t left = 0;
    while (left < sizeof stack && stack[left] == 0xa5)
        left++;
    return sizeof stack - left;
}

static void stack(void) {
    opens_much(NULL);
    size_t less = used_by(opens_little), more = used_by(opens_much);
    if (more > less + 3584) {
        printf("an open uses %zu bytes of the stack\n", more - less);
        failed = 1;
    }
    setenv("PATH", at("bin"), 1);
    spawns(NULL);
    more = used_by(spawns);
    if (more > less + 16384) {
        printf("posix_spawnp uses %zu bytes of the stack\n", more - less);
        failed = 1;
    }
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

/* What an open costs, in nanoseconds of this thread, with the library and without. */
static void cost(void) {
    char path[PATH_MAX], copy[PATH_MAX] = "";
    const int times = 200000;
    strcpy(path, at("dir/sub/file"));
    int fd = open(path, O_RDONLY);
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    syscall(SYS_readlinkat, AT_FDCWD, name, copy, sizeof copy - 1);
    double begin = now();
    for (int i = 0; i < times; i++)
        close(open(path, O_RDONLY));
    double with = now();
    for (int i = 0; i < times; i++)
        syscall(SYS_close, syscall(SYS_openat, AT_FDCWD, copy, O_RDONLY));
    double without = now();
    for (int i = 0; i < times; i++)
        close(open("/etc/passwd", O_RDONLY));
    double elsewhere = now();
    for (int i = 0; i < times; i++)
        syscall(SYS_close, syscall(SYS_openat, AT_FDCWD, "/etc/passwd", O_RDONLY));
    double end = now();
    printf("staged %.0f, bare %.0f; not staged %.0f, bare %.0f\n", (with - begin) / times, (without - with) / times,
           (elsewhere - without) / times, (end - elsewhere) / times);
}

int main(int count, char **words) {
    if (count < 2)
        return 2;
    strcpy(root, words[1]);
    if (count > 2 && !strcmp(words[2], "child")) {
        printf("%s %s\n", opens_copy(at("data"), O_RDONLY) ? "copy" : "original", words[0]);
        return 0;
    }
    if (count > 2 && !strcmp(words[2], "cost")) {
        cost();
        return 0;
    }
    if (count > 2 && strstr(words[2], "own-script")) {
        printf("%s of-script\n", opens_copy(at("data"), O_RDONLY) ? "copy" : "original");
        return 0;
    }
    is_in_place();
    libraries();
    locks();
    cancels();
    programs();
    elsewhere();
    stack();
    puts(failed ? "failed" : "as it should be");
    return failed;
}
