/*
 * Plays a helper that misbehaves, or a keeper that describes itself. It is executed by descriptor with an empty environment, so its actions
 * stand in a file beside it, FAKE.play: one verb per line, in order.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <syslog.h>
#include <unistd.h>

enum { FDS = 4096 };

static char self[4096];
static char inherited[FDS];
static int second, session;

static FILE *open_beside(const char *suffix)
{
    char path[4200];
    snprintf(path, sizeof path, "%s.%s", self, suffix);
    return fopen(path, "re");
}

/* Reads the request. A second request has the text of a unit. */
static void read_request(void)
{
    static char request[65536];
    static const char key[] = "\0unit\0s", none[] = "\0unit\0s\0", phase[] = "\0phase\0ssession";
    size_t length = fread(request, 1, sizeof request, stdin);
    second = memmem(request, length, key, sizeof key - 1) &&
             !memmem(request, length, none, sizeof none - 1);
    session = memmem(request, length, phase, sizeof phase) != NULL;
}

/*
 * Copies FAKE.reply to standard output, at once or byte by byte with a pause. A second request gets
 * FAKE.again.
 */
static void write_reply(unsigned pause_us)
{
    FILE *file = open_beside(second ? "again" : "reply");
    for (int byte; file && (byte = fgetc(file)) != EOF;) {
        fputc(byte, stdout);
        if (pause_us) {
            fflush(stdout);
            usleep(pause_us);
        }
    }
    fflush(stdout);
}

static void write_bytes(long bytes)
{
    while (bytes-- > 0)
        fputc('x', stdout);
    fflush(stdout);
}

static void log_lines(const char *path)
{
    char line[512];
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        syslog(LOG_DEBUG, "helper: %s", line);
    if (file)
        fclose(file);
}

/* Returns the scheduling slice of a process in nanoseconds, 0 before Linux 6.12. */
static unsigned long long scheduling_slice(pid_t pid)
{
    struct { unsigned numbers[6]; unsigned long long runtime, deadline, period; } how = {0};
    syscall(SYS_sched_getattr, pid, &how, sizeof how, 0);
    return how.runtime;
}

/* Logs the name of the session keyring, and its number of keys. */
static void log_keyring(void)
{
    char text[256] = "";
    syscall(SYS_keyctl, KEYCTL_DESCRIBE, KEY_SPEC_SESSION_KEYRING, text, sizeof text - 1);
    const char *name = strrchr(text, ';');
    long bytes = syscall(SYS_keyctl, KEYCTL_READ, KEY_SPEC_SESSION_KEYRING, NULL, 0);
    syslog(LOG_DEBUG, "helper: keyring %s of %ld keys", name ? name + 1 : "", bytes / 4);
}

/* Logs a description of this process from inside, since it may write no file. */
static void log_description(void)
{
    extern char **environ;
    for (int fd = 0; fd < FDS; fd++)
        if (inherited[fd])
            syslog(LOG_DEBUG, "helper: fd %d", fd);
    syslog(LOG_DEBUG, "helper: nice %d", getpriority(PRIO_PROCESS, 0));
    syslog(LOG_DEBUG, "helper: slice %llu of %llu", scheduling_slice(0), scheduling_slice(1));
    setpriority(PRIO_PROCESS, 0, 0);
    setpriority(PRIO_PROCESS, 0, -1);
    syslog(LOG_DEBUG, "helper: then nice %d", getpriority(PRIO_PROCESS, 0));
    log_keyring();
    log_lines("/proc/self/status");
    log_lines("/proc/self/limits");
    for (char **entry = environ; *entry; entry++)
        syslog(LOG_DEBUG, "helper: env %s", *entry);
    syslog(LOG_DEBUG, "helper: end");
}

/* Starts a child that keeps standard output open after its parent is gone. */
static void leave_child(void)
{
    if (fork() == 0) {
        pause();
        _exit(0);
    }
}

/* Disables everything that would end the process, as far as a process can. */
static void resist_end(void)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    prctl(PR_SET_PDEATHSIG, 0);
}

/* Stops every process that it may, over and over. */
static void stop_others(void)
{
    for (;;)
        kill(-1, SIGSTOP);
}

static void perform(const char *verb, long number)
{
    if (!strcmp(verb, "read"))
        read_request();
    else if (!strcmp(verb, "reply"))
        write_reply((unsigned)number);
    else if (!strcmp(verb, "flood"))
        write_bytes(number);
    else if (!strcmp(verb, "sleep"))
        sleep((unsigned)number);
    else if (!strcmp(verb, "deaf"))
        signal(SIGTERM, SIG_IGN);
    else if (!strcmp(verb, "crash"))
        *(volatile int *)number = 0;
    else if (!strcmp(verb, "raise"))
        raise((int)number);
    else if (!strcmp(verb, "close"))
        fclose(stdout);
    else if (!strcmp(verb, "linger"))
        leave_child();
    else if (!strcmp(verb, "undying"))
        resist_end();
    else if (!strcmp(verb, "stop-others"))
        stop_others();
    else if (!strcmp(verb, "describe"))
        log_description();
    else if (!strcmp(verb, "account-only") && session)
        exit(1);
    else if (!strcmp(verb, "account-only"))
        return;
    else if (!strcmp(verb, "exit"))
        exit((int)number);
    else
        exit(99);
}

int main(void)
{
    for (int fd = 0; fd < FDS; fd++)
        inherited[fd] = fcntl(fd, F_GETFD) >= 0;
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        return 98;
    FILE *script = open_beside("play");
    char verb[32];
    long number;
    while (script && fscanf(script, "%31s %ld", verb, &number) == 2)
        perform(verb, number);
    return 0;
}
