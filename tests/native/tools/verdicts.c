/*
 * verdicts: for each line of standard input, runs account and session of the service sshd in a new PAM
 * transaction and prints both results; "-1 -1" if libpam cannot read the service's files. It dies if libpam
 * takes 300 ms of the processor for one.
 */
#define _GNU_SOURCE
#include <security/pam_appl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <syslog.h>

/* libpam logs each broken line. These take the place of the C library's functions. */
void syslog(int priority, const char *format, ...)
{
    (void)priority, (void)format;
}

void __syslog_chk(int priority, int flag, const char *format, ...);
void __syslog_chk(int priority, int flag, const char *format, ...)
{
    (void)priority, (void)flag, (void)format;
}

static int converse(int count, const struct pam_message **message, struct pam_response **reply,
                    void *data)
{
    (void)message, (void)data;
    *reply = calloc((size_t)count, sizeof **reply);
    return *reply ? PAM_SUCCESS : PAM_BUF_ERR;
}

int main(void)
{
    static const struct pam_conv conversation = {converse, NULL};
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (getchar() == '\n') {
        static const struct itimerval limit = {.it_value = {.tv_usec = 300000}};
        setitimer(ITIMER_PROF, &limit, NULL);
        pam_handle_t *handle = NULL;
        int account = -1, session = -1;
        int code = pam_start("sshd", "alice", &conversation, &handle);
        if (code == PAM_SUCCESS) {
            account = pam_acct_mgmt(handle, 0);
            session = pam_open_session(handle, 0);
            pam_end(handle, session);
        }
        printf("%d %d\n", account, session);
    }
    return 0;
}
