/* stepds FOLDER NODE FIRST COUNT UID   plays the extern step daemons of COUNT jobs of a user, from job
 * FIRST on: a process and a socket for each, as in Slurm. Exits at the end of its standard input. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define PROTOCOL (38 << 8)
#define RUNNING 2

static int32_t uid;

static int take(int fd, int32_t *number)
{
    return recv(fd, number, sizeof *number, MSG_WAITALL) == sizeof *number;
}

static int give(int fd, int32_t number)
{
    return send(fd, &number, sizeof number, MSG_NOSIGNAL) == sizeof number;
}

static void answer(int fd)
{
    int32_t word;
    if (!take(fd, &word) || !give(fd, PROTOCOL))
        return;
    while (take(fd, &word))
        if (!(word == 20 ? give(fd, uid) : word == 5 && give(fd, RUNNING)))
            return;
}

static int listener(const char *folder, const char *node, int job)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int room = sizeof address.sun_path;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (snprintf(address.sun_path, room, "%s/%s_%d.4294967292", folder, node, job) >= room
        || bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 64)
        || chmod(address.sun_path, 0777))
        exit(3);
    return fd;
}

int main(int argc, char **argv)
{
    if (argc != 6)
        return 2;
    uid = atoi(argv[5]);
    for (int left = atoi(argv[4]), job = atoi(argv[3]); left > 0; left--, job++) {
        int socket = listener(argv[1], argv[2], job);
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;) {
                int fd = accept(socket, NULL, NULL);
                answer(fd);
                close(fd);
            }
        }
        close(socket);
    }
    puts("ready");
    fflush(stdout);
    while (read(0, &uid, sizeof uid) > 0)
        ;
    return 0;
}
