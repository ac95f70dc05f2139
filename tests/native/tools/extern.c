/*
 * Stands in for the daemon of a Slurm job's extern step on cgroup v2: listens at SPOOL/NODE_JOB.4294967292 and
 * takes processes into JOBDIR/step_extern/user/task_special, itself in JOBDIR/step_extern/slurm.
 *   extern SPOOL NODE JOB UID JOBDIR [FAULT...]
 * Says "ready" when it listens. At SIGTERM it ends the step as Slurm does: kills, leaves, and
 * removes the cgroups that it knows of; the status says whether all of them went.
 * Faults, in what it says and does:
 *   version N    greets with this version          state N   is in this state
 *   then-state N is in this state from an add on   then-uid N  the job is this user's after one
 *   refuse       answers an add with -1            lie       says it added, and did not
 *   elsewhere    adds to another cgroup            hang      never answers
 *   hang-add     never answers an add              hang-then never answers after an add
 *   close-add    hangs up at an add                exit-add  ends at an add
 *   user N       listens as this user              no-user   makes "user" with the first add only
 *   lie-later    lies of every add but the first   exit-then ends after an add
 *   aside        is itself in no step's cgroup
 *   accounted    moves on to "task_3", removing "task_special", as with jobacct_gather/cgroup
 *   pids         numbers processes on its own
 *   display N    has this X11 display            keys PATH  and this file of keys to it
 *   ns PATH      hands over this namespace        ns2 PATH   and this one
 *   kind N       says that they are of this kind  count N    says that they are so many
 *   no-ns        hands over a byte and no descriptor
 *   twice        hands over each twice, at once   hang-ns    never hands over any
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/nsfs.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STATE = 5, UID = 20, ADD = 22, X11 = 23, NS = 26, NSS = 28, SEVERAL = 44 << 8 };

static int listener;
static int32_t owner;
static const char *job_dir;
static char **faults;
static volatile sig_atomic_t ended, asked_to_add;
static char socket_path[4096];

static void die(const char *what)
{
    perror(what);
    exit(1);
}

/* Value of a fault; NULL without it. */
static const char *fault(const char *name)
{
    for (char **at = faults; at && *at; at++)
        if (!strcmp(*at, name))
            return at[1] ? at[1] : "";
    return NULL;
}

static int32_t number(const char *name, int32_t otherwise)
{
    const char *value = fault(name);
    return value ? atoi(value) : otherwise;
}

static void below(char *path, size_t size, const char *rest)
{
    snprintf(path, size, "%s%s", job_dir, rest);
}

static void make(const char *rest)
{
    char path[4096];
    below(path, sizeof path, rest);
    if (mkdir(path, 0755) && errno != EEXIST)
        die(path);
}

static int put(const char *rest, const char *text)
{
    char path[4096];
    below(path, sizeof path, rest);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int result = fd < 0 || write(fd, text, strlen(text)) < 0 ? -1 : 0;
    if (fd >= 0)
        close(fd);
    return result;
}

static void add(int32_t pid)
{
    char digits[16];
    snprintf(digits, sizeof digits, "%d", pid);
    static int adds;
    if (fault("lie") || (adds++ && fault("lie-later")))
        return;
    make("/step_extern/user");
    const char *leaf = fault("elsewhere") ? "/step_extern/user/other" : "/step_extern/user/task_special";
    char procs[64];
    make(leaf);
    snprintf(procs, sizeof procs, "%s/cgroup.procs", leaf);
    put(procs, digits);
    if (fault("accounted")) {
        make("/step_extern/user/task_3");
        put("/step_extern/user/task_3/cgroup.procs", digits);
        char path[4096];
        below(path, sizeof path, leaf);
        rmdir(path);
    }
}

static void hang(void)
{
    for (;;)
        pause();
}

static int get(int fd, int32_t *value)
{
    return recv(fd, value, sizeof *value, MSG_WAITALL) == sizeof *value;
}

static void say(int fd, int32_t value)
{
    send(fd, &value, sizeof value, MSG_NOSIGNAL);
}

/* Answers the order to add a process; whether the conversation goes on. */
static int ordered(int fd, int32_t pid)
{
    asked_to_add = 1;
    if (fault("exit-add")) {
        unlink(socket_path);
        _exit(0);
    }
    if (fault("hang-add"))
        hang();
    if (fault("close-add"))
        return 0;
    if (fault("refuse")) {
        say(fd, -1);
        return 1;
    }
    add(pid);
    say(fd, 0);
    return 1;
}

/* Sends a byte with a descriptor, or two of it. */
static void hand(int socket, int fd, int times)
{
    char byte = 0, room[CMSG_SPACE(2 * sizeof fd)] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (times) {
        message.msg_control = room;
        message.msg_controllen = CMSG_SPACE(times * sizeof fd);
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(times * sizeof fd);
        for (int at = 0; at < times; at++)
            memcpy(CMSG_DATA(head) + at * sizeof fd, &fd, sizeof fd);
    }
    sendmsg(socket, &message, MSG_NOSIGNAL);
}

/* As Slurm from 25.11 on with `several`: how many, and each with its kind in front. Before it tells the
 * number of its own descriptor. */
static void namespaces(int socket, int several)
{
    const char *paths[] = {fault("ns"), fault("ns2")};
    int count = !!paths[0] + !!paths[1];
    if (fault("hang-ns"))
        hang();
    if (several || !count || fault("count"))
        say(socket, number("count", count));
    for (int at = 0; at < count; at++) {
        int fd = open(paths[at], O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            die(paths[at]);
        if (several) {
            int kind = ioctl(fd, NS_GET_NSTYPE);
            say(socket, number("kind", kind));
        } else if (!fault("count")) {
            say(socket, fd);
        }
        hand(socket, fd, fault("no-ns") ? 0 : fault("twice") ? 2 : 1);
        close(fd);
    }
}

static void display(int fd)
{
    const char *keys = fault("keys");
    int32_t length = keys ? (int32_t)strlen(keys) + 1 : 0;
    say(fd, number("display", 0));
    say(fd, length);
    if (keys)
        send(fd, keys, (size_t)length, MSG_NOSIGNAL);
}

static void *talk(void *argument)
{
    int fd = (int)(intptr_t)argument;
    int32_t word, added = 0;
    if (fault("hang"))
        hang();
    if (get(fd, &word)) {
        say(fd, number("version", 38 << 8));
        while (get(fd, &word)) {
            if (added && fault("hang-then"))
                hang();
            if (added && fault("exit-then")) {
                unlink(socket_path);
                _exit(0);
            }
            if (word == UID) {
                say(fd, added ? number("then-uid", owner) : owner);
            } else if (word == STATE) {
                int32_t state = number("state", 2);
                say(fd, asked_to_add ? number("then-state", state) : state);
            } else if (word == X11) {
                display(fd);
            } else if (word == NS || word == NSS) {
                int several = number("version", 0) >= SEVERAL;
                if ((word == NSS) != several)
                    break;
                namespaces(fd, several);
            } else if (word != ADD || !get(fd, &added) || !ordered(fd, added)) {
                break;
            }
        }
    }
    close(fd);
    return NULL;
}

static void listen_at(const char *spool, const char *node, const char *job)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(socket_path, sizeof socket_path, "%s/%s_%s.4294967292", spool, node, job);
    if (length >= (int)sizeof address.sun_path)
        exit(2);
    memcpy(address.sun_path, socket_path, (size_t)length);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    unlink(socket_path);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || chmod(socket_path, 0777))
        die(socket_path);
    /* Who listens is what the other end is told by the kernel, not who bound it. */
    const char *user = fault("user");
    if (user && (setgid((gid_t)atoi(user)) || setuid((uid_t)atoi(user))))
        die("setuid");
    if (listen(listener, 128))
        die("listen");
}

static void serve(void)
{
    struct pollfd call = {.fd = listener, .events = POLLIN};
    while (!ended) {
        pthread_t thread;
        if (poll(&call, 1, 1000) <= 0)
            continue;
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            continue;
        if (pthread_create(&thread, NULL, talk, (void *)(intptr_t)fd))
            close(fd);
        else
            pthread_detach(thread);
    }
}

static void end(int signal)
{
    (void)signal;
    ended = 1;
}

/* Removes what it knows of, the innermost first, once the killed are gone. */
static int leave(void)
{
    static const char *const known[] = {"/step_extern/user/task_special", "/step_extern/user/other",
                                        "/step_extern/user/task_3",
                                        "/step_extern/user", "/step_extern/slurm", "/step_extern", ""};
    int left = 0;
    unlink(socket_path);
    put("/step_extern/user/cgroup.kill", "1");
    put("/../cgroup.procs", "0");
    for (size_t at = 0; at < sizeof known / sizeof *known; at++) {
        char path[4096];
        int result = -1;
        below(path, sizeof path, known[at]);
        for (int tries = 0; tries < 400 && result; tries++) {
            result = rmdir(path) && errno != ENOENT;
            if (result)
                usleep(5000);
        }
        left |= result;
    }
    return left;
}

/* Goes on in a child that is the first process of a namespace of its own. */
static void renumber(void)
{
    int status = 0;
    pid_t child = unshare(CLONE_NEWPID) ? -1 : fork();
    if (child < 0)
        die("unshare");
    if (child > 0) {
        waitpid(child, &status, 0);
        _exit(WEXITSTATUS(status));
    }
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = end};
    if (argc < 6)
        return 2;
    sigaction(SIGTERM, &action, NULL);
    owner = (int32_t)strtoul(argv[4], NULL, 10);
    job_dir = argv[5];
    faults = argv + 6;
    if (fault("pids"))
        renumber();
    make("");
    make("/step_extern");
    make("/step_extern/slurm");
    if (!fault("no-user"))
        make("/step_extern/user");
    if (put(fault("aside") ? "/../cgroup.procs" : "/step_extern/slurm/cgroup.procs", "0"))
        die("cgroup.procs");
    listen_at(argv[1], argv[2], argv[3]);
    puts("ready");
    fflush(stdout);
    serve();
    return leave();
}
