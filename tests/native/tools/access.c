/*
 * access: asks the kernel for each argument and prints "ARGUMENT ok" or "ARGUMENT ERRNO-NAME".
 *
 *   r:PATH, w:PATH, rw:PATH   opens the path
 *   mc:MAJOR:MINOR            makes a node of a character device, and removes it
 *   mb:MAJOR:MINOR            makes a node of a block device, and removes it
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define MADE "/dev/made-by-access"

static int make(const char *request)
{
    char type;
    unsigned int major_number, minor_number;
    if (sscanf(request, "m%c:%u:%u", &type, &major_number, &minor_number) != 3) {
        errno = EINVAL;
        return -1;
    }
    int result = mknod(MADE, type == 'c' ? S_IFCHR : S_IFBLK, makedev(major_number, minor_number));
    if (result == 0)
        unlink(MADE);
    return result;
}

static int open_path(const char *request)
{
    const char *path = strchr(request, ':');
    if (!path) {
        errno = EINVAL;
        return -1;
    }
    int mode = O_RDWR;
    if (path == request + 1)
        mode = *request == 'r' ? O_RDONLY : O_WRONLY;
    int fd = open(path + 1, mode | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    close(fd);
    return 0;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        int result = *argv[i] == 'm' ? make(argv[i]) : open_path(argv[i]);
        printf("%s %s\n", argv[i], result == 0 ? "ok" : strerrorname_np(errno));
    }
    return 0;
}
