/*
 * steps USER STEP...: one PAM transaction of service sshd. A step is "account" or "session", whose result is
 * printed; "user=", "rhost=" or "connection=", which sets the input of later phases; "fork", after which a child
 * continues; "sh=", which runs a command; or "sleep=" a number of milliseconds.
 */
#define _GNU_SOURCE
#include <security/pam_appl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int converse(int count, const struct pam_message **message, struct pam_response **reply,
                    void *data)
{
    (void)message, (void)data;
    *reply = calloc((size_t)count, sizeof **reply);
    return *reply ? PAM_SUCCESS : PAM_BUF_ERR;
}

static int set_connection(pam_handle_t *handle, const char *value)
{
    char text[512];
    snprintf(text, sizeof text, "SSH_CONNECTION=%s", value);
    return pam_putenv(handle, text);
}

static int run_step(pam_handle_t *handle, const char *step)
{
    const char *value = strchr(step, '=');
    value = value ? value + 1 : "";
    if (!strcmp(step, "account"))
        return printf("account %d\n", pam_acct_mgmt(handle, 0)), 0;
    if (!strcmp(step, "session"))
        return printf("session %d\n", pam_open_session(handle, 0)), 0;
    if (!strncmp(step, "user=", 5))
        return pam_set_item(handle, PAM_USER, value);
    if (!strncmp(step, "rhost=", 6))
        return pam_set_item(handle, PAM_RHOST, value);
    if (!strncmp(step, "connection=", 11))
        return set_connection(handle, value);
    if (!strncmp(step, "sh=", 3))
        return system(value);
    if (!strncmp(step, "sleep=", 6))
        return usleep((useconds_t)atoi(value) * 1000);
    return 1;
}

int main(int argc, char **argv)
{
    struct pam_conv conversation = {converse, NULL};
    pam_handle_t *handle = NULL;
    setvbuf(stdout, NULL, _IONBF, 0);
    if (argc < 2 || pam_start("sshd", argv[1], &conversation, &handle) != PAM_SUCCESS)
        return 2;
    pam_set_item(handle, PAM_RHOST, "127.0.0.1");
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "fork")) {
            pid_t child = fork();
            int status = 0;
            if (child > 0)
                return waitpid(child, &status, 0) == child && status == 0 ? 0 : 4;
        } else if (run_step(handle, argv[i])) {
            return printf("step %s failed\n", argv[i]), 3;
        }
    }
    return pam_end(handle, PAM_SUCCESS);
}
