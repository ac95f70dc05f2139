/*
 * A PAM module with a thread, which starts when the module is loaded, as those that are written in Go have several.
 */
#include <pthread.h>
#include <security/pam_modules.h>
#include <unistd.h>

static void *wait_for_ever(void *unused)
{
    (void)unused;
    while (pause() == -1)
        continue;
    return NULL;
}

__attribute__((constructor)) static void start_thread(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, wait_for_ever, NULL);
}

/* Defines an entry point that does nothing. */
#define IGNORE_CALL(function)                                                                                         \
    int function(pam_handle_t *handle, int flags, int count, const char **arguments)                                  \
    {                                                                                                                 \
        (void)handle, (void)flags, (void)count, (void)arguments;                                                      \
        return PAM_IGNORE;                                                                                            \
    }

IGNORE_CALL(pam_sm_setcred)
IGNORE_CALL(pam_sm_authenticate)
IGNORE_CALL(pam_sm_acct_mgmt)
IGNORE_CALL(pam_sm_open_session)
IGNORE_CALL(pam_sm_close_session)
