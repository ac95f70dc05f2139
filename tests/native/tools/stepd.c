/*
 * stepd PATH UID STATE: plays a Slurm step daemon, where STATE is a number of its protocol, or "mute". Reports
 * that owner and state. It answers an order to add a process with success, and does not move the process.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static int read_int(int fd, int32_t *number)
{
    return recv(fd, number, sizeof *number, MSG_WAITALL) == sizeof *number;
}

static void write_int(int fd, int32_t number)
{
    if (send(fd, &number, sizeof number, MSG_NOSIGNAL) < 0)
        exit(1);
}

static void serve(int fd, int32_t uid, int32_t state)
{
    int32_t word;

    if (!read_int(fd, &word))
        return;
    write_int(fd, 38 << 8);
    while (read_int(fd, &word)) {
        if (word == 20)
            write_int(fd, uid);
        else if (word == 5)
            write_int(fd, state);
        else if (word == 22 && read_int(fd, &word))
            write_int(fd, 0);
        else if (word == 23) /* the display: none, and no file of keys */
            write_int(fd, 0), write_int(fd, 0);
        else if (word == 26) /* the namespaces: none */
            write_int(fd, 0);
        else
            return;
    }
}

int main(int argc, char **argv)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (argc != 4 || strlen(argv[1]) >= sizeof address.sun_path)
        return 2;
    strcpy(address.sun_path, argv[1]);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 64)
        || chmod(argv[1], 0777)) {
        perror(argv[1]);
        return 1;
    }
    signal(SIGCHLD, SIG_IGN);
    while (strcmp(argv[3], "mute") == 0)
        pause();
    for (;;) {
        int fd = accept(listener, NULL, NULL);

        if (fd >= 0 && fork() == 0) {
            serve(fd, atoi(argv[2]), atoi(argv[3]));
            return 0;
        }
        close(fd);
    }
}
