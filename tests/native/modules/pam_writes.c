/*
 * A PAM module that appends the name of each of its calls to /tmp/written, as modules do that write as root to
 * a place that users can make: also of the call that frees its data. With the argument once, its setcred fails in
 * another process than the first one.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <security/pam_modules.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void append(const char *call)
{
    int fd = open("/tmp/written", O_WRONLY | O_CREAT | O_APPEND, 0600);
    dprintf(fd, "%s\n", call);
    close(fd);
}

static void clean_up(pam_handle_t *handle, void *data, int status)
{
    (void)handle, (void)data, (void)status;
    append("cleanup");
}

/* Several copies of this file may be in one stack, each with data of its own. */
static int write_call(pam_handle_t *handle, const char *call)
{
    static char any;
    const void *data;
    Dl_info file;
    append(call);
    if (dladdr(&any, &file) && pam_get_data(handle, file.dli_fname, &data) != PAM_SUCCESS)
        pam_set_data(handle, file.dli_fname, &any, clean_up);
    return PAM_IGNORE;
}

static void free_pid(pam_handle_t *handle, void *data, int status)
{
    (void)handle;
    (void)status;
    free(data);
}

static int require_first_process(pam_handle_t *handle)
{
    const void *data = NULL;
    if (pam_get_data(handle, "pam_writes", &data) == PAM_SUCCESS)
        return *(const pid_t *)data == getpid() ? PAM_IGNORE : PAM_CRED_ERR;
    pid_t *pid = malloc(sizeof *pid);
    *pid = getpid();
    return pam_set_data(handle, "pam_writes", pid, free_pid) == PAM_SUCCESS ? PAM_IGNORE : PAM_BUF_ERR;
}

int pam_sm_setcred(pam_handle_t *handle, int flags, int count, const char **arguments)
{
    write_call(handle, flags & PAM_DELETE_CRED         ? "delete"
                       : flags & PAM_REINITIALIZE_CRED ? "reinitialize"
                                                       : "setcred");
    return count > 0 && !strcmp(arguments[0], "once") ? require_first_process(handle) : PAM_IGNORE;
}

/* Defines an entry point that does nothing else. */
#define WRITE_CALL(function, call)                                                                                    \
    int function(pam_handle_t *handle, int flags, int count, const char **arguments)                                  \
    {                                                                                                                 \
        (void)flags, (void)count, (void)arguments;                                                                    \
        return write_call(handle, call);                                                                              \
    }

WRITE_CALL(pam_sm_authenticate, "authenticate")
WRITE_CALL(pam_sm_acct_mgmt, "account")
WRITE_CALL(pam_sm_open_session, "open")
WRITE_CALL(pam_sm_close_session, "close")
WRITE_CALL(pam_sm_chauthtok, "chauthtok")
