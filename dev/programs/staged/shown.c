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
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>

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

static void reads(void) {
    char text[16] = "";
    struct stat status;
    CHECK(opens_copy(at("data"), O_RDONLY));
    CHECK(opens_copy(at("data"), O_RDONLY | O_CREAT));
    FILE *file = fopen(at("data"), "r");
    CHECK(file && fgets(text, sizeof text, file) && !strcmp(text, "data\n"));
    if (file)
        fclose(file);
    CHECK(stat(at("data"), &status) == 0 && S_ISREG(status.st_mode) && status.st_size == 5);
    FAILS(stat(at("none"), &status), ENOENT);
    /* The copies have no write bits; the program is told those of the originals. */
    CHECK(stat(at("data"), &status) == 0 && (status.st_mode & 07777) == 0644);
    CHECK(stat(at("dir/"), &status) == 0 && (status.st_mode & 07777) == 0755);
    CHECK(stat(at("open"), &status) == 0 && (status.st_mode & 07777) == 0666);
    struct statx extended;
    CHECK(statx(AT_FDCWD, at("data"), 0, STATX_MODE, &extended) == 0 && (extended.stx_mode & 07777) == 0644);
    int bare = open(at("open"), O_RDONLY);
    CHECK(syscall(SYS_fstat, bare, &status) == 0 && (status.st_mode & 07777) == 0444);
    CHECK(fstat(bare, &status) == 0 && (status.st_mode & 07777) == 0666);
    CHECK(fstatat(bare, "", &status, AT_EMPTY_PATH) == 0 && (status.st_mode & 07777) == 0666);
    CHECK(statx(bare, "", AT_EMPTY_PATH, STATX_MODE, &extended) == 0 && (extended.stx_mode & 07777) == 0666);
    close(bare);
    bare = open(root, O_RDONLY | O_DIRECTORY);
    /* A program without the library, which has got this folder; root may do anything. */
    if (geteuid() != 0) {
        FAILS(syscall(SYS_openat, bare, "open", O_WRONLY), EACCES);
        FAILS(syscall(SYS_unlinkat, bare, "data", 0), EACCES);
        FAILS(syscall(SYS_unlinkat, bare, "../env", AT_REMOVEDIR), EACCES);
    }
    CHECK(syscall(SYS_fstat, bare, &status) == 0 && (status.st_mode & 0222) == 0);
    CHECK(fstat(bare, &status) == 0 && (status.st_mode & 07777) == 0755);
    close(bare);
    FAILS(access(at("none/none"), F_OK), ENOENT);
    CHECK(access(at("data"), R_OK) == 0);
    FAILS(access(at("data"), W_OK), EROFS);
    DIR *folder = opendir(at("dir"));
    CHECK(folder && is_copy_fd(dirfd(folder)));
    if (folder)
        closedir(folder);
    CHECK(chdir(root) == 0 && opens_copy("data", O_RDONLY) && opens_copy("./dir/sub/file", O_RDONLY));
    CHECK(!is_copy("/proc/self/cwd"));
    int fd = open(at("dir"), O_RDONLY | O_DIRECTORY);
    CHECK(is_copy_fd(fd) && fchdir(fd) == 0 && !is_copy("/proc/self/cwd") && opens_copy("sub/file", O_RDONLY));
    CHECK(chdir("/") == 0);
    close(fd);
}

static void changes(void) {
    struct stat status;
    struct timeval times[2] = {{0, 0}, {0, 0}};
    struct timespec precise[2] = {{0, 0}, {0, 0}};
    char name[64];
    FAILS(open(at("data"), O_WRONLY), EROFS);
    FAILS(open(at("data"), O_RDWR), EROFS);
    FAILS(open(at("data"), O_RDONLY | O_TRUNC), EROFS);
    FAILS(open(at("new"), O_CREAT | O_WRONLY, 0600), EROFS);
    FAILS(open(at("data"), O_CREAT | O_EXCL | O_RDWR, 0600), EEXIST);
    FAILS(open(at("none"), O_RDWR), ENOENT);
    FAILS(creat(at("data"), 0600), EROFS);
    CHECK(!fopen(at("data"), "w") && errno == EROFS);
    CHECK(!fopen(at("data"), "r+") && errno == EROFS);
    CHECK(!fopen(at("new"), "a") && errno == EROFS);
    CHECK(!freopen(at("data"), "r+", fopen("/dev/null", "r")) && errno == EROFS);
    CHECK(!freopen(at("none"), "r", fopen("/dev/null", "r")) && errno == ENOENT);
    FILE *stream = freopen(at("data"), "r", fopen("/dev/null", "r"));
    CHECK(stream && is_copy_fd(fileno(stream)));
    if (stream)
        fclose(stream);
    char made[PATH_MAX];
    FAILS(mkstemp(strcpy(made, at("newXXXXXX"))), EROFS);
    FAILS(mkostemp(strcpy(made, at("dir/newXXXXXX")), O_CLOEXEC), EROFS);
    FAILS(mkstemps(strcpy(made, at("newXXXXXX.c")), 2), EROFS);
    FAILS(mkostemps(strcpy(made, at("near/newXXXXXX.c")), 2, O_CLOEXEC), EROFS);
    CHECK(!mkdtemp(strcpy(made, at("newXXXXXX"))) && errno == EROFS);
    int temporary = mkstemp(strcpy(made, "/dev/shm/wireup-test-XXXXXX"));
    CHECK(temporary >= 0 && unlink(made) == 0);
    close(temporary);
    FAILS(truncate(at("data"), 0), EROFS);
    FAILS(unlink(at("data")), EROFS);
    FAILS(unlink(at("none")), ENOENT);
    FAILS(remove(at("data")), EROFS);
    FAILS(rmdir(at("dir")), EROFS);
    FAILS(mkdir(at("new"), 0700), EROFS);
    FAILS(mkdir(at("dir"), 0700), EEXIST);
    FAILS(mkfifo(at("new"), 0700), EROFS);
    FAILS(symlink("data", at("new")), EROFS);
    FAILS(link(at("data"), at("new")), EXDEV);
    FAILS(link(at("data"), "/dev/shm/wireup-test-link"), EXDEV);
    FAILS(rename(at("data"), at("new")), EROFS);
    FAILS(rename(at("data"), "/dev/shm/wireup-test-link"), EROFS);
    FAILS(chmod(at("data"), 0), EROFS);
    FAILS(chown(at("data"), 1, 1), EROFS);
    FAILS(utime(at("data"), NULL), EROFS);
    FAILS(utimes(at("data"), times), EROFS);
    FAILS(utimensat(AT_FDCWD, at("data"), precise, 0), EROFS);
    /* By open folders and files. */
    int folder = open(root, O_RDONLY | O_DIRECTORY);
    CHECK(is_copy_fd(folder));
    FAILS(openat(folder, "data", O_WRONLY), EROFS);
    FAILS(openat(folder, "data", O_RDWR | O_TRUNC), EROFS);
    FAILS(openat(folder, "new", O_CREAT | O_WRONLY, 0600), EROFS);
    FAILS(openat(folder, ".", O_TMPFILE | O_RDWR, 0600), EROFS);
    FAILS(unlinkat(folder, "data", 0), EROFS);
    FAILS(unlinkat(folder, "dir/sub", AT_REMOVEDIR), EROFS);
    FAILS(mkdirat(folder, "new", 0700), EROFS);
    FAILS(symlinkat("data", folder, "new"), EROFS);
    FAILS(linkat(folder, "data", folder, "new", 0), EXDEV);
    FAILS(linkat(folder, "data", AT_FDCWD, "/dev/shm/wireup-test-link", 0), EXDEV);
    FAILS(renameat(folder, "data", folder, "new"), EROFS);
    FAILS(renameat(AT_FDCWD, "/dev/null", folder, "new"), EROFS);
    FAILS(fchmodat(folder, "data", 0, 0), EROFS);
    FAILS(fchownat(folder, "data", 1, 1, 0), EROFS);
    FAILS(fchownat(folder, "", 1, 1, AT_EMPTY_PATH), EROFS);
    FAILS(utimensat(folder, "data", precise, 0), EROFS);
    FAILS(fchmod(folder, 0), EROFS);
    CHECK(fstatat(folder, "near/file", &status, 0) == 0 && S_ISREG(status.st_mode));
    int fd = open(at("data"), O_RDONLY);
    FAILS(fchmod(fd, 0), EROFS);
    FAILS(fchown(fd, 1, 1), EROFS);
    FAILS(futimens(fd, precise), EROFS);
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    FAILS(open(name, O_RDWR), EROFS);
    FAILS(open(name, O_RDONLY | O_TRUNC), EROFS);
    FAILS(truncate(name, 0), EROFS);
    FAILS(chmod(name, 0), EROFS);
    FAILS(linkat(AT_FDCWD, name, AT_FDCWD, "/dev/shm/wireup-test-link", AT_SYMLINK_FOLLOW), EXDEV);
    CHECK(fchdir(folder) == 0);
    FAILS(open("data", O_WRONLY), EROFS);
    FAILS(unlink("data"), EROFS);
    CHECK(chdir("/") == 0);
    close(fd);
    close(folder);
}

static void links(void) {
    struct stat status;
    char text[PATH_MAX];
    CHECK(opens_copy(at("near/file"), O_RDONLY));
    CHECK(opens_copy(at("dir/sub/../../data"), O_RDONLY));
    CHECK(opens_copy(at("near/../sub/file"), O_RDONLY));
    CHECK(lstat(at("near"), &status) == 0 && S_ISLNK(status.st_mode));
    FAILS(open(at("near"), O_RDONLY | O_NOFOLLOW), ELOOP);
    CHECK(readlink(at("near"), text, sizeof text) == 7 && !memcmp(text, "dir/sub", 7));
    CHECK(opens_original(at("out/secret")));
    CHECK(opens_original(at("absolute/secret")));
    CHECK(opens_original(at("out/../outside/secret")));
    CHECK(stat(at("out/secret"), &status) == 0 && status.st_size == 7);
    CHECK(opens_copy(at("out/../env/data"), O_RDONLY) || opens_original(at("out/../env/data")));
    FAILS(open(at("none/../data"), O_RDONLY), ENOENT);
    FAILS(open(at("data/../data"), O_RDONLY), ENOTDIR);
    FAILS(open(at("loop"), O_RDONLY), ELOOP);
    int folder = open(root, O_RDONLY | O_DIRECTORY), fd = openat(folder, "out/secret", O_RDONLY);
    CHECK(fd >= 0 && !is_copy_fd(fd));
    close(fd);
    close(folder);
    /* Slashes at the end. */
    FAILS(stat(at("data/"), &status), ENOTDIR);
    FAILS(open(at("data/"), O_RDONLY), ENOTDIR);
    CHECK(stat(at("dir/"), &status) == 0 && S_ISDIR(status.st_mode));
    CHECK(lstat(at("near/"), &status) == 0 && S_ISDIR(status.st_mode));
    DIR *opened = opendir(at("dir/"));
    CHECK(opened != NULL);
    if (opened)
        closedir(opened);
    CHECK(!opendir(at("data/")) && errno == ENOTDIR);
    /* Names of what runs, and without links. */
    char own[PATH_MAX];
    strcpy(own, at("bin/shown"));
    CHECK(realpath(at("near/./file"), text) && !strcmp(text, at("dir/sub/file")));
    CHECK(!realpath(at("none"), text) && errno == ENOENT);
    CHECK(realpath("/proc/self/exe", text) && !strcmp(text, own));
    memset(text, 0, sizeof text);
    CHECK(readlink("/proc/self/exe", text, sizeof text) == (long)strlen(own) && !strcmp(text, own));
    CHECK(is_copy("/proc/self/exe"));
    /* Libraries. */
    void *library = dlopen(at("lib/libone.so"), RTLD_NOW);
    CHECK(library != NULL);
    Dl_info info;
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
    reads();
    changes();
    links();
    locks();
    cancels();
    programs();
    elsewhere();
    stack();
    puts(failed ? "failed" : "as it should be");
    return failed;
}
