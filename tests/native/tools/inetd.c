/*
 * Listens at a TCP port and runs a program on each connection, which is its standard input and
 * output, as inetd(8) does. At :: it takes IPv4 too, whose addresses are then mapped ones.
 *
 *   inetd ADDRESS PORT PROGRAM [ARGUMENT...]
 *
 * Makes the file /run/inetd-PORT when it listens.
 */
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static int listening(const char *address, uint16_t port)
{
	struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	int is_four = inet_pton(AF_INET, address, &four.sin_addr) == 1;
	if (!is_four && inet_pton(AF_INET6, address, &six.sin6_addr) != 1)
		errx(2, "%s is no address", address);
	struct sockaddr *end = is_four ? (struct sockaddr *)&four : (struct sockaddr *)&six;
	int fd = socket(end->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1, no = 0;
	if (fd < 0)
		err(1, "socket");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
	if (!is_four)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
	if (bind(fd, end, is_four ? sizeof four : sizeof six))
		err(1, "bind %s", address);
	if (listen(fd, 64))
		err(1, "listen");
	return fd;
}

int main(int argc, char **argv)
{
	if (argc < 4)
		errx(2, "usage: inetd ADDRESS PORT PROGRAM [ARGUMENT...]");
	int listener = listening(argv[1], (uint16_t)atoi(argv[2]));
	char ready[64];
	snprintf(ready, sizeof ready, "/run/inetd-%s", argv[2]);
	int file = open(ready, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	if (file < 0)
		err(1, "%s", ready);
	close(file);
	signal(SIGCHLD, SIG_IGN);
	for (;;) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0)
			continue;
		if (fork() == 0) {
			signal(SIGCHLD, SIG_DFL);
			dup2(fd, 0);
			dup2(fd, 1);
			execvp(argv[3], argv + 3);
			_exit(127);
		}
		close(fd);
	}
}
