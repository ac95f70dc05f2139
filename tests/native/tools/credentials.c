/*
 * credentials USER OTHER: opens a session of USER and then, each time in a child as sshd does it,
 * asks for credentials: with every flag for USER, and for OTHER. Prints the groups of the child.
 */
#include <grp.h>
#include <security/pam_appl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static int converse(int count, const struct pam_message **messages,
                    struct pam_response **responses, void *data)
{
    (void)count, (void)messages, (void)responses, (void)data;
    return PAM_CONV_ERR;
}

static void ask(pam_handle_t *handle, const char *what, int flag, const char *user)
{
    gid_t groups[64] = {2001, 5044};
    pid_t child = fork();
    if (child > 0) {
        waitpid(child, NULL, 0);
        return;
    }
    setgroups(2, groups);
    pam_set_item(handle, PAM_USER, user);
    int result = pam_setcred(handle, flag);
    printf("%s %d:", what, result);
    int count = getgroups(64, groups);
    for (int i = 0; i < count; i++)
        printf(" %u", groups[i]);
    printf("\n");
    fflush(stdout);
    pam_end(handle, result | PAM_DATA_SILENT);
    _exit(0);
}

int main(int argc, char **argv)
{
    struct pam_conv conversation = {converse, NULL};
    pam_handle_t *handle = NULL;
    if (argc != 3 || pam_start("sshd", argv[1], &conversation, &handle) != PAM_SUCCESS)
        return 2;
    setvbuf(stdout, NULL, _IONBF, 0);
    ask(handle, "early", PAM_ESTABLISH_CRED, argv[1]);
    int result = pam_open_session(handle, 0);
    printf("session %d\n", result);
    ask(handle, "establish", PAM_ESTABLISH_CRED, argv[1]);
    ask(handle, "reinitialize", PAM_REINITIALIZE_CRED | PAM_SILENT, argv[1]);
    ask(handle, "refresh", PAM_REFRESH_CRED, argv[1]);
    ask(handle, "delete", PAM_DELETE_CRED, argv[1]);
    ask(handle, "other", PAM_ESTABLISH_CRED, argv[2]);
    ask(handle, "root", PAM_ESTABLISH_CRED, "root");
    return pam_end(handle, result) == PAM_SUCCESS ? 0 : 1;
}
