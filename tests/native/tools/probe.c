/* Opens each path for reading and writing and prints "PATH ok" or "PATH ERRNO-NAME". */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        int fd = open(argv[i], O_RDWR | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        printf("%s %s\n", argv[i], fd >= 0 ? "ok" : strerrorname_np(errno));
        if (fd >= 0)
            close(fd);
    }
    return 0;
}
