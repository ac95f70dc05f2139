/*
 * cycles USER N [DEVICE...]: runs account, credentials and session N times in one process, as sshd does, each
 * time with a fresh pam_start, and fails if the process has changed: descriptors, signal dispositions and mask,
 * umask, working directory, environment, threads, credentials, children, scheduling, namespace of mounts, or the
 * dumpable flag. A child of each session sets its credentials, as the process of sshd does that becomes the
 * user, and prints its namespace of mounts. Then it executes the probe of these devices. The calls that inject.c
 * counts mark its phases.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <security/pam_appl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Marks for inject.c: numbers that no system call has. */
enum { COUNT = 100000, PAUSE = 100001 };

extern char **environ;

static int converse(int count, const struct pam_message **message, struct pam_response **reply,
                    void *data)
{
    (void)data;
    syscall(PAUSE);
    for (int i = 0; i < count; i++)
        printf("message %d: %s\n", message[i]->msg_style, message[i]->msg);
    *reply = calloc((size_t)count, sizeof **reply);
    syscall(COUNT);
    return *reply ? PAM_SUCCESS : PAM_BUF_ERR;
}

static void list_folder(FILE *out, const char *path)
{
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char link[4096], target[4096];
        snprintf(link, sizeof link, "%s/%s", path, entry->d_name);
        ssize_t length = readlink(link, target, sizeof target);
        if (atoi(entry->d_name) == dirfd(folder) && entry->d_name[0] != '.')
            continue;
        fprintf(out, "%s %.*s\n", link, (int)(length > 0 ? length : 0), target);
    }
    if (folder)
        closedir(folder);
}

static void list_status(FILE *out)
{
    static const char *keys[] = {"Uid", "Gid", "Groups", "Threads", "SigPnd", "SigBlk", "SigIgn",
                                 "SigCgt", "ShdPnd", "Cap",
                                 "NoNewPrivs", "Seccomp:", "Umask"};
    char line[512];
    FILE *status = fopen("/proc/self/status", "re");
    while (status && fgets(line, sizeof line, status))
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
            if (!strncmp(line, keys[i], strlen(keys[i])))
                fputs(line, out);
    if (status)
        fclose(status);
}

static void copy_file(FILE *out, const char *path)
{
    char line[512];
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        fputs(line, out);
    if (file)
        fclose(file);
}

/* Prints struct sched_attr of sched_setattr(2), with policy, nice value and slice. */
static void list_scheduling(FILE *out)
{
    unsigned words[12] = {0};
    if (syscall(SYS_sched_getattr, 0, words, sizeof words, 0) == 0)
        for (int i = 0; i < 12; i++)
            fprintf(out, "scheduling %u\n", words[i]);
}

/* Prints the namespace of mounts and the root. */
static void list_place(FILE *out)
{
    char name[64] = "";
    struct stat root = {0};
    if (readlink("/proc/self/ns/mnt", name, sizeof name - 1) >= 0 && stat("/", &root) == 0)
        fprintf(out, "place %s %lu:%lu\n", name, (unsigned long)root.st_dev, (unsigned long)root.st_ino);
}

/* Returns a description of all that a guest must not change. */
static char *describe_process(void)
{
    char *text = NULL, folder[4096];
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    list_folder(out, "/proc/self/fd");
    list_status(out);
    list_scheduling(out);
    list_place(out);
    copy_file(out, "/proc/self/limits");
    copy_file(out, "/proc/self/attr/exec");
    fprintf(out, "dumpable %d\n", prctl(PR_GET_DUMPABLE));
    siginfo_t child;
    fprintf(out, "children %d\n", waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) == 0);
    fprintf(out, "cwd %s\n", getcwd(folder, sizeof folder));
    for (char **entry = environ; *entry; entry++)
        fprintf(out, "env %s\n", *entry);
    for (int number = 1; number < NSIG; number++) {
        struct sigaction action = {0};
        if (sigaction(number, NULL, &action) == 0)
            fprintf(out, "signal %d %p %x\n", number, (void *)action.sa_handler, action.sa_flags);
    }
    fclose(out);
    return text;
}

static int pam_setcred_established(pam_handle_t *handle, int flags)
{
    return pam_setcred(handle, flags | PAM_ESTABLISH_CRED);
}

static int run_phase(const char *name, int (*run)(pam_handle_t *, int), pam_handle_t *handle)
{
    struct timespec began, ended;
    clock_gettime(CLOCK_MONOTONIC, &began);
    syscall(COUNT);
    int result = run(handle, 0);
    syscall(PAUSE);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    long took = (ended.tv_sec - began.tv_sec) * 1000 + (ended.tv_nsec - began.tv_nsec) / 1000000;
    printf("%s %d after %ld ms\n", name, result, took);
    return result;
}

/* Runs the process that becomes the user. Returns whether it was not killed. */
static int run_user(pam_handle_t *handle)
{
    pid_t child = fork();
    if (child == 0) {
        run_phase("user", pam_setcred_established, handle);
        list_place(stdout);
        _exit(0);
    }
    int status = 0;
    return waitpid(child, &status, 0) == child && !WIFSIGNALED(status);
}

static int run_cycle(const char *user)
{
    struct pam_conv conversation = {converse, NULL};
    pam_handle_t *handle = NULL;
    if (pam_start("sshd", user, &conversation, &handle) != PAM_SUCCESS ||
        pam_putenv(handle, "SSH_CONNECTION=UNKNOWN 65535 UNKNOWN 65535") != PAM_SUCCESS)
        return 1;
    pam_set_item(handle, PAM_RHOST, "127.0.0.1");
    int result = run_phase("account", pam_acct_mgmt, handle);
    if (result == PAM_SUCCESS) {
        run_phase("credentials", pam_setcred_established, handle);
        result = run_phase("session", pam_open_session, handle);
    }
    if (result == PAM_SUCCESS) {
        if (!run_user(handle))
            printf("the user's process was killed\n");
        run_phase("close", pam_close_session, handle);
    }
    pam_end(handle, result);
    return result;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    setvbuf(stdout, NULL, _IONBF, 0);
    umask(027);
    /* Only sshd forks a process that becomes the user. */
    prctl(PR_SET_NAME, "sshd-cycles");
    setenv("GUEST", "untouched", 1);
    signal(SIGPIPE, SIG_IGN);
    int worst = 0;
    for (int i = 0; i < atoi(argv[2]); i++) {
        char *before = describe_process();
        int result = run_cycle(argv[1]);
        char *after = describe_process();
        if (result)
            worst = 10;
        if (strcmp(before, after)) {
            printf("CHANGED\n--- before\n%s--- after\n%s--- end\n", before, after);
            worst = 3;
            break;
        }
        free(before);
        free(after);
    }
    copy_file(stdout, "/proc/self/cgroup");
    if (argc > 3)
        execvp("probe", argv + 2);
    return worst;
}
