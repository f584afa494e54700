/* A static program: it says where the kernel has found it. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(void) {
    char target[4096] = "";
    if (readlink("/proc/self/exe", target, sizeof target - 1) < 0)
        return 1;
    puts(strstr(target, "/tree/") ? "copy" : "original");
    return 0;
}
