/*
 * stepds SPOOL NODE FIRST COUNT UID [JOBS]: plays the step daemons of COUNT jobs of that user, from that number on. They
 * answer, all in one process. With JOBS, the directory of a cgroup, they do not: each is a process in the cgroup of its
 * job, JOBS/job_N, beside a process of the user. Prints "ready" when all listen.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static int listen_at(const char *spool, const char *node, int job)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int length = snprintf(address.sun_path, sizeof address.sun_path, "%s/%s_%d.4294967292", spool, node, job);

    if (length >= (int)sizeof address.sun_path || bind(listener, (struct sockaddr *)&address, sizeof address)
        || chmod(address.sun_path, 0777) || listen(listener, 64)) {
        perror(address.sun_path);
        exit(1);
    }
    return listener;
}

/* Makes a cgroup and moves this process into it. */
static void enter(const char *jobs, int job, const char *rest)
{
    char path[4096];
    int end = snprintf(path, sizeof path, "%s/job_%d", jobs, job);

    mkdir(path, 0755);
    for (const char *name = strtok(strdup(rest), "/"); name; name = strtok(NULL, "/")) {
        end += snprintf(path + end, sizeof path - end, "/%s", name);
        mkdir(path, 0755);
    }
    strcat(path, "/cgroup.procs");
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "0", 1) != 1) {
        perror(path);
        exit(1);
    }
    close(fd);
}

/* Starts a child that ends with its parent; returns whether this is the child. */
static int start(void)
{
    pid_t child = fork();

    if (child < 0) {
        perror("fork");
        exit(1);
    }
    if (child == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return child == 0;
}

static void be_silent(const char *spool, const char *node, int job, int uid, const char *jobs, int ready)
{
    enter(jobs, job, "step_extern/slurm");
    listen_at(spool, node, job);
    if (start()) {
        enter(jobs, job, "step_0/user/task_0");
        if (setgid(uid) || setuid(uid))
            exit(1);
        /* setuid(2) clears it. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (write(ready, "", 1) != 1)
            exit(1);
        for (;;)
            pause();
    }
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    struct rlimit limit = {0, 0};
    int pipes[2];

    if (argc < 6 || pipe(pipes))
        return 2;
    int first = atoi(argv[3]), count = atoi(argv[4]), uid = atoi(argv[5]);
    struct pollfd *all = calloc(count, sizeof *all);
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    for (int at = 0; at < count; at++) {
        char byte;
        if (argc == 6)
            all[at] = (struct pollfd){.fd = listen_at(argv[1], argv[2], first + at), .events = POLLIN};
        else if (start())
            be_silent(argv[1], argv[2], first + at, uid, argv[6], pipes[1]);
        else if (read(pipes[0], &byte, 1) != 1)
            return 1;
    }
    puts("ready");
    fflush(stdout);
    while (argc == 6 && poll(all, count, -1) > 0) {
        for (int at = 0; at < count; at++) {
            int32_t question[3], answer[] = {38 << 8, uid, 2};
            if (!(all[at].revents & POLLIN))
                continue;
            int fd = accept4(all[at].fd, NULL, NULL, SOCK_CLOEXEC);
            if (recv(fd, question, sizeof question, MSG_WAITALL) == sizeof question)
                send(fd, answer, sizeof answer, MSG_NOSIGNAL);
            close(fd);
        }
    }
    for (;;)
        pause();
}
