/*
 * listen ADDRESS PORT COMMAND...: listens there in the manner of systemd's sockets (on both families for ::), and
 * runs the command for each connection, which is its standard input, output and error. Prints "ready" once it
 * listens, and exits at the end of its standard input. The commands end with it, or after a minute.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

static int open_listener(const char *address, const char *port)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    int one = 1, zero = 0;
    int failed = getaddrinfo(address, port, &hints, &found);
    if (failed)
        errx(2, "%s %s: %s", address, port, gai_strerror(failed));
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        err(2, "socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (found->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    if (bind(fd, found->ai_addr, found->ai_addrlen) || listen(fd, 64))
        err(2, "%s %s", address, port);
    freeaddrinfo(found);
    return fd;
}

static void serve(int connection, char **command)
{
    pid_t child = fork();
    if (child)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(60);
    for (int fd = 0; fd < 3; fd++)
        dup2(connection, fd);
    execvp(*command, command);
    _exit(127);
}

int main(int argc, char **argv)
{
    if (argc < 4)
        errx(2, "usage: listen ADDRESS PORT COMMAND...");
    signal(SIGCHLD, SIG_IGN);
    struct pollfd ends[] = {{.fd = STDIN_FILENO}, {open_listener(argv[1], argv[2]), POLLIN, 0}};
    puts("ready");
    fflush(stdout);
    while (poll(ends, 2, -1) > 0 && !ends[0].revents) {
        int connection = accept4(ends[1].fd, NULL, NULL, SOCK_CLOEXEC);
        if (connection >= 0) {
            serve(connection, argv + 3);
            close(connection);
        }
    }
    return 0;
}
