/* Plays a caller identity service that cannot be trusted, to one connection: its standard input and
   output.
     id ID    answers with that job
     garbage  answers with bytes that are no line of the protocol
     silence  says nothing
     drip ID  answers with that job, so slowly that nobody should wait for it
     flood    answers without end */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void say(const char *text, size_t size)
{
    while (size) {
        ssize_t sent = write(STDOUT_FILENO, text, size);
        if (sent <= 0)
            _exit(0);
        text += sent;
        size -= sent;
    }
}

/* Reads the line of the question and makes a good answer to it. */
static int answer(char *text, size_t size, const char *id)
{
    char line[256];
    size_t length = 0;
    while (length < sizeof line - 1 && read(STDIN_FILENO, line + length, 1) == 1 && line[length] != '\n')
        length++;
    line[length] = 0;
    line[strcspn(line, "\r")] = 0;
    return snprintf(text, size, "%s : USERID : OTHER : %s\r\n", line, id);
}

int main(int argc, char **argv)
{
    char text[512];
    const char *how = argc > 1 ? argv[1] : "", *id = argc > 2 ? argv[2] : "";
    if (!strcmp(how, "id")) {
        say(text, answer(text, sizeof text, id));
    } else if (!strcmp(how, "garbage")) {
        for (size_t i = 0; i < sizeof text; i++)
            text[i] = i * 37 + 128;
        text[sizeof text - 1] = '\n';
        say(text, sizeof text);
    } else if (!strcmp(how, "drip")) {
        int length = answer(text, sizeof text, id);
        for (int i = 0; i < length; i++) {
            usleep(100000);
            say(text + i, 1);
        }
    } else if (!strcmp(how, "flood")) {
        memset(text, 'x', sizeof text);
        for (;;)
            say(text, sizeof text);
    } else {
        pause();
    }
    return 0;
}
