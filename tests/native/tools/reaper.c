/*
 * reaper USER MODE: runs account and session in a process with its own treatment of SIGCHLD: "default",
 * "ignored", "nowait" (SA_NOCLDWAIT), "handler" (one that reaps every child), "blocked", "child" (the handler,
 * and a child that ends with status 7 after a moment) or "thread" (another thread reaps every child). Prints the
 * results of the phases, the children that the handler saw, whether the disposition is unchanged, and whether a
 * SIGCHLD is pending.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <security/pam_appl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t called, reaped, last;

static void reap_child(int number)
{
    (void)number;
    called++;
    for (int status; waitpid(-1, &status, WNOHANG) > 0; last = WEXITSTATUS(status))
        reaped++;
}

static void *reap_all(void *none)
{
    while (waitpid(-1, NULL, 0) > 0)
        ;
    return none;
}

static int converse(int count, const struct pam_message **message, struct pam_response **reply,
                    void *data)
{
    (void)data;
    for (int i = 0; i < count; i++)
        printf("%s\n", message[i]->msg);
    *reply = calloc((size_t)count, sizeof **reply);
    return *reply ? PAM_SUCCESS : PAM_BUF_ERR;
}

static pid_t start_child(useconds_t after)
{
    pid_t pid = fork();
    if (pid)
        return pid;
    usleep(after);
    _exit(7);
}

/* Prepares the mode. Returns a child that main must end. */
static pid_t prepare_mode(const char *mode)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    pthread_t thread;
    sigset_t set;
    pid_t sleeper = 0;
    if (!strcmp(mode, "ignored"))
        action.sa_handler = SIG_IGN;
    if (!strcmp(mode, "nowait"))
        action.sa_flags = SA_NOCLDWAIT;
    if (!strcmp(mode, "handler") || !strcmp(mode, "child"))
        action.sa_handler = reap_child;
    sigaction(SIGCHLD, &action, NULL);
    if (!strcmp(mode, "blocked")) {
        sigemptyset(&set);
        sigaddset(&set, SIGCHLD);
        sigprocmask(SIG_BLOCK, &set, NULL);
    }
    if (!strcmp(mode, "child"))
        start_child(300000);
    if (!strcmp(mode, "thread")) {
        sleeper = start_child(60000000);
        pthread_create(&thread, NULL, reap_all, NULL);
    }
    return sleeper;
}

int main(int argc, char **argv)
{
    struct pam_conv conversation = {converse, NULL};
    pam_handle_t *handle;
    struct sigaction before, after;
    sigset_t pending;
    if (argc != 3)
        return 2;
    pid_t sleeper = prepare_mode(argv[2]);
    sigaction(SIGCHLD, NULL, &before);
    if (pam_start("sshd", argv[1], &conversation, &handle) != PAM_SUCCESS)
        return 2;
    int account = pam_acct_mgmt(handle, 0);
    int session = pam_open_session(handle, 0);
    pam_end(handle, session);
    sigaction(SIGCHLD, NULL, &after);
    sigpending(&pending);
    int same = before.sa_handler == after.sa_handler && before.sa_flags == after.sa_flags;
    if (reaped)
        printf("child %d\n", (int)last);
    printf("account %d session %d called %d reaped %d same %d pending %d\n", account, session,
           (int)called, (int)reaped, same, sigismember(&pending, SIGCHLD));
    if (sleeper)
        kill(sleeper, SIGKILL);
    return account || session;
}
