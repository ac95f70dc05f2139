/*
 * raise USER: starts the account phase of sshd for a user, and answers its first message with an exception, as a
 * program in C++ may. If nobody would catch that, it aborts.
 */
#include <security/pam_appl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unwind.h>

static int converse(int count, const struct pam_message **message, struct pam_response **reply,
                    void *data)
{
    static struct _Unwind_Exception exception = {.exception_class = 0x7465737474657374};
    (void)count, (void)reply, (void)data;
    printf("%s\n", message[0]->msg);
    _Unwind_RaiseException(&exception);
    abort();
}

int main(int argc, char **argv)
{
    struct pam_conv conversation = {converse, NULL};
    pam_handle_t *handle = NULL;
    setvbuf(stdout, NULL, _IONBF, 0);
    if (argc < 2 || pam_start("sshd", argv[1], &conversation, &handle) != PAM_SUCCESS)
        return 125;
    printf("account returns %d\n", pam_acct_mgmt(handle, 0));
    return 0;
}
