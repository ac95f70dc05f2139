/* grow time COUNT SECONDS COMMAND...   runs the command COUNT times, or until SECONDS are over, but at least once;
 *                                      prints the microseconds of each run
 * grow mounts FOLDER FIRST END         mounts END - FIRST file systems below the folder
 * grow journal COUNT MESSAGE           sends the message COUNT times to the journal
 * A command may exit with 1: `strays` and `check` report so that they have found something. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static int measure(int count, double seconds, char **command)
{
    double begin = now();
    for (int run = 0; run < count && (run < 1 || now() - begin < seconds * 1e6); run++) {
        int status;
        double start = now();
        pid_t child = fork();
        if (child == 0) {
            int null = open("/dev/null", O_RDWR);
            dup2(null, 1), dup2(null, 2);
            execvp(command[0], command);
            _exit(127);
        }
        waitpid(child, &status, 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status) > 1)
            return fprintf(stderr, "%s failed: status %d\n", command[0], status), 1;
        printf("%.1f\n", now() - start);
    }
    return 0;
}

static int make_mounts(const char *folder, int first, int end)
{
    char path[4096];
    mkdir(folder, 0755);
    for (int number = first; number < end; number++) {
        snprintf(path, sizeof path, "%s/%d", folder, number);
        if (mkdir(path, 0755) || mount("growth", path, "tmpfs", 0, "size=4k"))
            return perror(path), 1;
    }
    return 0;
}

static int fill_journal(int count, const char *message)
{
    struct sockaddr_un journal = {.sun_family = AF_UNIX, .sun_path = "/run/systemd/journal/socket"};
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    char entry[4096];
    if (fd < 0 || connect(fd, (struct sockaddr *)&journal, sizeof journal))
        return perror(journal.sun_path), 1;
    while (count-- > 0) {
        /* One that differs, as user and port do in each line of sshd's. */
        int size = snprintf(entry, sizeof entry,
                            "MESSAGE=%s job=%d\nPRIORITY=6\nSYSLOG_FACILITY=10\nSYSLOG_IDENTIFIER=sshd\n",
                            message, count);
        if (send(fd, entry, size, 0) != size)
            return perror("send"), 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 4 && strcmp(argv[1], "time") == 0)
        return measure(atoi(argv[2]), atof(argv[3]), argv + 4);
    if (argc == 5 && strcmp(argv[1], "mounts") == 0)
        return make_mounts(argv[2], atoi(argv[3]), atoi(argv[4]));
    if (argc == 4 && strcmp(argv[1], "journal") == 0)
        return fill_journal(atoi(argv[2]), argv[3]);
    return 2;
}
