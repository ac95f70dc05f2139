/*
 * Plays a helper that misbehaves. What it does stands in a file beside it, FAKE.play, since it is
 * executed by descriptor with an empty environment: one verb per line, carried out in order.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
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

static FILE *beside(const char *suffix)
{
    char path[4200];
    snprintf(path, sizeof path, "%s.%s", self, suffix);
    return fopen(path, "re");
}

/* Reads the request. A second question has the text of a unit in it. */
static void hear(void)
{
    static char request[65536];
    static const char key[] = "\0unit\0s", none[] = "\0unit\0s\0", phase[] = "\0phase\0ssession";
    size_t length = fread(request, 1, sizeof request, stdin);
    second = memmem(request, length, key, sizeof key - 1) &&
             !memmem(request, length, none, sizeof none - 1);
    session = memmem(request, length, phase, sizeof phase) != NULL;
}

/*
 * Copies FAKE.reply to standard output, all at once or byte by byte with a pause; FAKE.again for a
 * second question.
 */
static void reply(unsigned pause_us)
{
    FILE *file = beside(second ? "again" : "reply");
    for (int byte; file && (byte = fgetc(file)) != EOF;) {
        fputc(byte, stdout);
        if (pause_us) {
            fflush(stdout);
            usleep(pause_us);
        }
    }
    fflush(stdout);
}

static void flood(long bytes)
{
    while (bytes-- > 0)
        fputc('x', stdout);
    fflush(stdout);
}

static void tell_lines(const char *path)
{
    char line[512];
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        syslog(LOG_DEBUG, "helper: %s", line);
    if (file)
        fclose(file);
}

/* How long a process runs before another has its turn, in nanoseconds; 0 before Linux 6.12. */
static unsigned long long slice(pid_t pid)
{
    struct { unsigned numbers[6]; unsigned long long runtime, deadline, period; } how = {0};
    syscall(SYS_sched_getattr, pid, &how, sizeof how, 0);
    return how.runtime;
}

/* Tells the log what this process looks like from inside: it may write no file. */
static void describe(void)
{
    extern char **environ;
    for (int fd = 0; fd < FDS; fd++)
        if (inherited[fd])
            syslog(LOG_DEBUG, "helper: fd %d", fd);
    syslog(LOG_DEBUG, "helper: nice %d", getpriority(PRIO_PROCESS, 0));
    syslog(LOG_DEBUG, "helper: slice %llu of %llu", slice(0), slice(1));
    setpriority(PRIO_PROCESS, 0, 0);
    setpriority(PRIO_PROCESS, 0, -1);
    syslog(LOG_DEBUG, "helper: then nice %d", getpriority(PRIO_PROCESS, 0));
    tell_lines("/proc/self/status");
    tell_lines("/proc/self/limits");
    for (char **entry = environ; *entry; entry++)
        syslog(LOG_DEBUG, "helper: env %s", *entry);
    syslog(LOG_DEBUG, "helper: end");
}

/* A child that keeps standard output open after its parent is gone. */
static void linger(void)
{
    if (fork() == 0) {
        pause();
        _exit(0);
    }
}

/* Takes what is to end it out of the way, as far as a process can. */
static void undying(void)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    prctl(PR_SET_PDEATHSIG, 0);
}

/* Stops whatever it may, over and over. */
static void stop_others(void)
{
    for (;;)
        kill(-1, SIGSTOP);
}

static void play(const char *verb, long number)
{
    if (!strcmp(verb, "read"))
        hear();
    else if (!strcmp(verb, "reply"))
        reply((unsigned)number);
    else if (!strcmp(verb, "flood"))
        flood(number);
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
        linger();
    else if (!strcmp(verb, "undying"))
        undying();
    else if (!strcmp(verb, "stop-others"))
        stop_others();
    else if (!strcmp(verb, "describe"))
        describe();
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
    FILE *script = beside("play");
    char verb[32];
    long number;
    while (script && fscanf(script, "%31s %ld", verb, &number) == 2)
        play(verb, number);
    return 0;
}
