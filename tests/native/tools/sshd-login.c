/*
 * sshd-login USER PROGRAM [again]: runs a PAM transaction in the order of sshd (OpenSSH 9.2) for a user with a key:
 * account, credentials and session in this process, then credentials again in a child. The child executes the
 * program as root, with the variables of the transaction; with the word again it renews the credentials before. At
 * the end this process renews them, closes the session, deletes them, and prints its namespace of mounts. The exit
 * status is that of the child; 128 and the signal that killed it; or 2 if the account is refused.
 */
#include <security/pam_appl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int converse(int count, const struct pam_message **message, struct pam_response **reply,
                    void *data)
{
    (void)data;
    for (int i = 0; i < count; i++)
        printf("%s\n", message[i]->msg);
    *reply = calloc((size_t)count, sizeof **reply);
    return *reply ? PAM_SUCCESS : PAM_BUF_ERR;
}

static int report(const char *phase, int code)
{
    printf("%s %s\n", phase, code == PAM_SUCCESS ? "succeeds" : "fails");
    return code;
}

int main(int argc, char **argv)
{
    struct pam_conv conversation = {converse, NULL};
    pam_handle_t *handle = NULL;
    setvbuf(stdout, NULL, _IONBF, 0);
    if (argc < 3 || pam_start("sshd", argv[1], &conversation, &handle) != PAM_SUCCESS)
        return 125;
    pam_set_item(handle, PAM_RHOST, "127.0.0.1");
    pam_putenv(handle, "SSH_CONNECTION=UNKNOWN 65535 UNKNOWN 65535");
    if (report("account", pam_acct_mgmt(handle, 0)) != PAM_SUCCESS)
        return 2;
    report("setcred", pam_setcred(handle, PAM_ESTABLISH_CRED));
    int opened = report("session", pam_open_session(handle, 0));
    pid_t child = fork();
    if (child == 0) {
        report("setcred", pam_setcred(handle, PAM_ESTABLISH_CRED));
        if (argc > 3)
            report("renewal", pam_setcred(handle, PAM_REINITIALIZE_CRED));
        execle(argv[2], argv[2], NULL, pam_getenvlist(handle));
        _exit(127);
    }
    int status = 0;
    waitpid(child, &status, 0);
    report("renewal", pam_setcred(handle, PAM_REINITIALIZE_CRED));
    if (opened == PAM_SUCCESS)
        report("close", pam_close_session(handle, PAM_SILENT));
    report("delete", pam_setcred(handle, PAM_DELETE_CRED));
    char name[64] = "";
    if (readlink("/proc/self/ns/mnt", name, sizeof name - 1) > 0)
        printf("monitor in %s\n", name);
    pam_end(handle, PAM_SUCCESS);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
