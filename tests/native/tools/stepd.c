/* Plays a step daemon of Slurm's: "stepd PATH UID STATE", where STATE is a number of its protocol,
 * or "mute". Owner and state are as told; to a process it says that it took it, and leaves it
 * where it is. */
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

static int take(int fd, int32_t *number)
{
    return recv(fd, number, sizeof *number, MSG_WAITALL) == sizeof *number;
}

static void give(int fd, int32_t number)
{
    if (send(fd, &number, sizeof number, MSG_NOSIGNAL) < 0)
        exit(1);
}

static void serve(int fd, int32_t uid, int32_t state)
{
    int32_t word;

    if (!take(fd, &word))
        return;
    give(fd, 38 << 8);
    while (take(fd, &word)) {
        if (word == 20)
            give(fd, uid);
        else if (word == 5)
            give(fd, state);
        else if (word == 22 && take(fd, &word))
            give(fd, 0);
        else if (word == 23) /* no display, and no file of keys for it */
            give(fd, 0), give(fd, 0);
        else if (word == 26) /* no namespace to join */
            give(fd, 0);
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
