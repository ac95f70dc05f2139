/* crowd COUNT UID: COUNT processes of that user, which wait for nothing. It prints "ready" when all are there. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc != 3 || setgid(atoi(argv[2])) || setuid(atoi(argv[2])))
        return 2;
    for (int count = atoi(argv[1]); count > 1; count--) {
        pid_t child = fork();
        if (child == -1)
            return 1;
        while (child == 0)
            pause();
    }
    puts("ready");
    fflush(stdout);
    for (;;)
        pause();
}
