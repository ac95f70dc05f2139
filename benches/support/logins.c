/* logins SERVICE account|session|both COUNT PAUSE_US   times PAM calls, each in its own process
 * logins bare CGROUP COUNT PAUSE_US                    times fork, exec of the helper and move
 * Prints for each the microseconds of the calls, and with pam_start, which loads the modules; and the page faults of
 * the calls and of the processes that they waited for. */
#include <fcntl.h>
#include <pwd.h>
#include <security/pam_appl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HELPER "/usr/libexec/job-adopt/helper"
/* The memory of sshd when a session opens (1.8 MB, OpenSSH 9.2): a fork must copy its page tables. */
#define BALLAST (9 << 18)

static int converse(int count, const struct pam_message **messages, struct pam_response **answers,
                    void *data)
{
    (void)messages, (void)data;
    *answers = calloc(count, sizeof **answers);
    return *answers ? PAM_SUCCESS : PAM_BUF_ERR;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

struct cost {
    double calls, whole, faults;
};

static double faults_so_far(void)
{
    struct rusage own, children;
    getrusage(RUSAGE_SELF, &own);
    getrusage(RUSAGE_CHILDREN, &children);
    return own.ru_minflt + children.ru_minflt;
}

static struct cost through_pam(const char *service, const char *phases)
{
    struct pam_conv conversation = {converse, NULL};
    pam_handle_t *handle;
    double begin = now();
    if (pam_start(service, "alice", &conversation, &handle) != PAM_SUCCESS)
        exit(2);
    double faults = faults_so_far(), start = now();
    if (strcmp(phases, "session") != 0 && pam_acct_mgmt(handle, PAM_SILENT) != PAM_SUCCESS)
        exit(3);
    if (strcmp(phases, "account") != 0 && pam_open_session(handle, PAM_SILENT) != PAM_SUCCESS)
        exit(4);
    double end = now();
    return (struct cost){end - start, end - begin, faults_so_far() - faults};
}

static struct cost bare(const char *cgroup)
{
    char buffer[4096];
    int ends[2];
    double start = now();
    if (pipe(ends))
        exit(2);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1);
        close(ends[0]), close(ends[1]);
        execl(HELPER, "helper", "--version", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    while (read(ends[0], buffer, sizeof buffer) > 0)
        ;
    waitpid(child, NULL, 0);
    snprintf(buffer, sizeof buffer, "%s/cgroup.procs", cgroup);
    int procs = open(buffer, O_WRONLY);
    if (write(procs, "0", 1) != 1)
        exit(3);
    close(procs);
    double cost = now() - start;
    return (struct cost){cost, cost, 0};
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    char *ballast = malloc(BALLAST);
    memset(ballast, 1, BALLAST);
    /* sshd has used the name service before a session opens, too. */
    getpwnam("alice");
    for (int left = atoi(argv[3]); left > 0; left--) {
        int ends[2];
        struct cost cost;
        if (pipe(ends))
            return 2;
        pid_t child = fork();
        if (child == 0) {
            if (strcmp(argv[1], "bare") == 0)
                cost = bare(argv[2]);
            else
                cost = through_pam(argv[1], argv[2]);
            _exit(write(ends[1], &cost, sizeof cost) == sizeof cost ? 0 : 2);
        }
        close(ends[1]);
        int status;
        ssize_t got = read(ends[0], &cost, sizeof cost);
        close(ends[0]);
        waitpid(child, &status, 0);
        if (status != 0 || got != sizeof cost)
            return fprintf(stderr, "login failed: status %d\n", status), 1;
        printf("%.1f %.1f %.0f\n", cost.calls, cost.whole, cost.faults);
        usleep(atoi(argv[4]));
    }
    return 0;
}
