/*
 * memory SERVICE USER: opens and closes a session of the service. Prints, in kibibytes, the private memory that this process
 * has more than before pam_start(3), while the session is open; and the largest resident memory of a child.
 */
#include <security/pam_appl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static int converse(int count, const struct pam_message **message, struct pam_response **reply,
                    void *data)
{
    (void)message;
    (void)data;
    *reply = calloc((size_t)count, sizeof **reply);
    return *reply ? PAM_SUCCESS : PAM_BUF_ERR;
}

/* The private memory of this process, as smaps_rollup counts it. */
static long private_kib(void)
{
    char line[256];
    long sum = 0;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    if (!file)
        exit(3);
    while (fgets(line, sizeof line, file)) {
        long value;
        if (sscanf(line, "Private_Clean: %ld", &value) == 1 ||
            sscanf(line, "Private_Dirty: %ld", &value) == 1)
            sum += value;
    }
    fclose(file);
    return sum;
}

int main(int argc, char **argv)
{
    struct pam_conv conversation = {converse, NULL};
    pam_handle_t *handle = NULL;
    if (argc != 3)
        return 2;
    private_kib();
    long before = private_kib();
    if (pam_start(argv[1], argv[2], &conversation, &handle) != PAM_SUCCESS)
        return 3;
    pam_set_item(handle, PAM_RHOST, "127.0.0.1");
    if (pam_acct_mgmt(handle, 0) != PAM_SUCCESS || pam_open_session(handle, 0) != PAM_SUCCESS)
        return 4;
    long after = private_kib();
    struct rusage children;
    getrusage(RUSAGE_CHILDREN, &children);
    printf("%ld %ld\n", after - before, children.ru_maxrss);
    pam_close_session(handle, 0);
    pam_end(handle, PAM_SUCCESS);
    return 0;
}
