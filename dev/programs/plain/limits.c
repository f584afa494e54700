/* Prints the soft limit of open files, the umask, and the inherited descriptors above 2. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>

int main(void)
{
    struct rlimit files;

    getrlimit(RLIMIT_NOFILE, &files);
    printf("nofile %lu umask %03o fds", (unsigned long)files.rlim_cur, (unsigned)umask(0));
    for (int fd = 3; fd < 256; fd++)
        if (fcntl(fd, F_GETFD) != -1)
            printf(" %d", fd);
    printf("\n");
    return 0;
}
