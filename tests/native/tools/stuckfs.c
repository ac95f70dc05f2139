/*
 * stuckfs PATH [silent]: a FUSE file system whose root answers stat(2), unless it is silent, and whose file "data" can
 * be opened. It answers nothing else: it reads a request and never answers, so the caller sleeps and cannot be killed.
 * Its root is a directory or a file, as PATH is.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define DATA_NODE 2

static char request[1 << 17];

/* Sends an answer; returns whether the kernel accepted it. */
static int send_answer(int fd, const void *body, size_t length)
{
    char reply[sizeof(struct fuse_out_header) + 256] = {0};
    struct fuse_out_header header = {.len = (__u32)(sizeof header + length)};
    header.unique = ((struct fuse_in_header *)request)->unique;
    memcpy(reply, &header, sizeof header);
    memcpy(reply + sizeof header, body, length);
    return write(fd, reply, header.len) == (ssize_t)header.len;
}

int main(int argc, char **argv)
{
    char options[128];
    struct stat covered;
    int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (argc < 2 || fd < 0 || stat(argv[1], &covered))
        return 2;
    mode_t type = covered.st_mode & S_IFMT;
    snprintf(options, sizeof options, "fd=%d,rootmode=%o,user_id=0,group_id=0,allow_other", fd, type);
    if (mount("stuck", argv[1], "fuse", MS_NODEV | MS_NOSUID, options)) {
        perror("mount");
        return 2;
    }
    while (read(fd, request, sizeof request) > 0) {
        struct fuse_in_header *header = (struct fuse_in_header *)request;
        __u32 opcode = header->opcode;
        struct fuse_init_out init = {.major = 7, .minor = 31, .max_write = 4096};
        struct fuse_attr_out attr = {.attr_valid = 1000};
        attr.attr = (struct fuse_attr){.ino = 1, .mode = type | 0755, .nlink = 2};
        struct fuse_attr data = {.ino = DATA_NODE, .size = 4096, .mode = S_IFREG | 0755, .nlink = 1};
        if (header->nodeid == DATA_NODE)
            attr.attr = data;
        struct fuse_entry_out entry = {.nodeid = DATA_NODE, .entry_valid = 1000, .attr_valid = 1000, .attr = data};
        /* Without the page cache read(2) waits for the answer itself, which no signal ends. */
        struct fuse_open_out opened = {.open_flags = FOPEN_DIRECT_IO};
        if (opcode == FUSE_INIT && !send_answer(fd, &init, sizeof init))
            return 1;
        if (opcode == FUSE_GETATTR && argc == 2 && !send_answer(fd, &attr, sizeof attr))
            return 1;
        if (opcode == FUSE_LOOKUP && !strcmp((char *)(header + 1), "data") && !send_answer(fd, &entry, sizeof entry))
            return 1;
        if (opcode == FUSE_OPEN && header->nodeid == DATA_NODE && !send_answer(fd, &opened, sizeof opened))
            return 1;
    }
    return 0;
}
