/*
 * reaper USER MODE: account and session in a process that has its own idea of SIGCHLD: "default",
 * "ignored", "nowait" (SA_NOCLDWAIT) or "handler" (one that reaps whatever it finds). Prints the
 * phases' results, what the handler saw, and whether the disposition is still the same.
 */
#define _GNU_SOURCE
#include <security/pam_appl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static volatile sig_atomic_t called, reaped;

static void reap(int number)
{
    (void)number;
    called++;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        reaped++;
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

static void prepare(const char *mode)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    if (!strcmp(mode, "ignored"))
        action.sa_handler = SIG_IGN;
    if (!strcmp(mode, "nowait"))
        action.sa_flags = SA_NOCLDWAIT;
    if (!strcmp(mode, "handler"))
        action.sa_handler = reap;
    sigaction(SIGCHLD, &action, NULL);
}

int main(int argc, char **argv)
{
    struct pam_conv conversation = {converse, NULL};
    pam_handle_t *handle;
    struct sigaction before, after;
    if (argc != 3)
        return 2;
    prepare(argv[2]);
    sigaction(SIGCHLD, NULL, &before);
    if (pam_start("sshd", argv[1], &conversation, &handle) != PAM_SUCCESS)
        return 2;
    int account = pam_acct_mgmt(handle, 0);
    int session = pam_open_session(handle, 0);
    pam_end(handle, session);
    sigaction(SIGCHLD, NULL, &after);
    int same = before.sa_handler == after.sa_handler && before.sa_flags == after.sa_flags;
    printf("account %d session %d called %d reaped %d same %d\n", account, session, (int)called,
           (int)reaped, same);
    return account || session;
}
