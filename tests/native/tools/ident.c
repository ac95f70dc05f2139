/* Listens on port 113 for five minutes at most, as inetd(8) does or as a service that cannot be trusted.
     run PROGRAM ARGUMENT...  starts it for every connection, on standard input and output
     id ID    answers every question with that job
     garbage  answers with bytes that are no line of the protocol
     silence  takes connections and says nothing
     drip     answers well, so slowly that nobody should wait for it
     flood    answers without end */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void say(int connection, const char *text, size_t size)
{
    while (size) {
        ssize_t sent = write(connection, text, size);
        if (sent <= 0)
            _exit(0);
        text += sent;
        size -= sent;
    }
}

/* Reads the line of the question and makes a good answer to it. */
static int answer(int connection, char *text, size_t size, const char *id)
{
    char line[256];
    size_t length = 0;
    while (length < sizeof line - 1 && read(connection, line + length, 1) == 1 && line[length] != '\n')
        length++;
    line[length] = 0;
    line[strcspn(line, "\r")] = 0;
    return snprintf(text, size, "%s : USERID : OTHER : %s\r\n", line, id);
}

static void serve(int connection, char **how)
{
    char text[512];
    const char *id = how[1];
    if (!strcmp(how[0], "run")) {
        dup2(connection, 0);
        dup2(connection, 1);
        close(connection);
        execvp(how[1], how + 1);
    } else if (!strcmp(how[0], "id")) {
        say(connection, text, answer(connection, text, sizeof text, id));
    } else if (!strcmp(how[0], "garbage")) {
        for (size_t i = 0; i < sizeof text; i++)
            text[i] = i * 37 + 128;
        text[sizeof text - 1] = '\n';
        say(connection, text, sizeof text);
    } else if (!strcmp(how[0], "drip")) {
        int length = answer(connection, text, sizeof text, id);
        for (int i = 0; i < length; i++) {
            usleep(100000);
            say(connection, text + i, 1);
        }
    } else if (!strcmp(how[0], "flood")) {
        memset(text, 'x', sizeof text);
        for (;;)
            say(connection, text, sizeof text);
    } else {
        pause();
    }
}

int main(int argc, char **argv)
{
    struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_port = htons(113) };
    int yes = 1, listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (argc < 2 || bind(listener, (struct sockaddr *)&any, sizeof any) || listen(listener, 128)) {
        perror("ident");
        return 1;
    }
    signal(SIGCHLD, SIG_IGN);
    alarm(300);
    puts("listening");
    fflush(stdout);
    for (;;) {
        int connection = accept(listener, NULL, NULL);
        if (connection >= 0 && !fork()) {
            close(listener);
            alarm(10);
            serve(connection, argv + 1);
            _exit(0);
        }
        close(connection);
    }
}
