/*
 * faults UID PROGRAM [ARGUMENT...]: runs a program as that account, waits for it and its children, and prints the
 * number of page faults that needed no disk. vfork(2) copies no memory, so that the faults are the program's own.
 */
#define _GNU_SOURCE
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct rusage usage;
    int status;
    if (argc < 3)
        return 2;
    uid_t uid = (uid_t)atoi(argv[1]);
    pid_t pid = vfork();
    if (!pid) {
        if (setgroups(0, NULL) || setresgid(uid, uid, uid) || setresuid(uid, uid, uid))
            _exit(126);
        execv(argv[2], argv + 2);
        _exit(127);
    }
    if (pid < 0 || wait4(pid, &status, 0, &usage) != pid || status)
        return 1;
    fprintf(stderr, "faults %ld\n", usage.ru_minflt);
    return 0;
}
