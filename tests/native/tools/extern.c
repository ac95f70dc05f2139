/*
 * Stands in for the daemon of a Slurm job's extern step on cgroup v2: listens at SPOOL/NODE_JOB.4294967292,
 * moves processes into JOBDIR/step_extern/user/task_special, and itself into JOBDIR/step_extern/slurm.
 *   extern SPOOL NODE JOB UID JOBDIR [FAULT...]
 * Prints "ready" once it listens. At SIGTERM it ends the step in Slurm's way: it reports the state ENDING, kills,
 * leaves the cgroup, and removes the cgroups that it knows of; the status shows whether all of them are gone.
 * Faults, in its replies and its actions:
 *   version N    greets with this version          state N   reports this state
 *   then-state N reports this state after an add   then-uid N  reports this owner after an add
 *   refuse       answers an add with -1            lie       reports an add without adding
 *   elsewhere    adds to another cgroup            hang      never answers
 *   hang-add     never answers an add              hang-then never answers after an add
 *   close-add    hangs up at an add                exit-add  exits at an add
 *   user N       listens as this user              no-user   makes "user" with the first add only
 *   lie-later    lies about every add but the first  exit-then exits after an add
 *   aside        is itself in no step's cgroup
 *   accounted    moves on to "task_3" and removes "task_special", as with jobacct_gather/cgroup
 *   pids         has a PID namespace of its own
 *   channels DIR has another step, whose daemon has DIR in mounts of its own, with a "channel1"
 *   mounts DIR   and this one, empty               step-user N  as this user
 *   display N    reports this X11 display          keys PATH  and this file of keys for it
 *   slow-add N   adds only after N milliseconds     queue N   adds one after the other, each in N milliseconds
 *   hang-after N never answers an add after N of them
 *   ns PATH      passes this namespace             ns2 PATH   and this one
 *   kind N       reports this kind for them        count N    reports this number of them
 *   no-ns        passes a byte without a descriptor
 *   twice        passes each twice, at once        hang-ns    never passes any
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
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* States of a step and numbers of requests in slurmstepd's protocol. */
enum { RUNNING = 2, ENDING = 3 };
enum { STATE = 5, UID = 20, ADD = 22, X11 = 23, NS = 26, NSS = 28, SEVERAL = 44 << 8 };

static int listener;
static int32_t owner;
static const char *job_dir;
static char **faults;
static volatile sig_atomic_t ended, asked_to_add;
static pid_t step_daemon;
/* Held while a process is added. */
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;
/* Held until an add is answered, as slurmstepd does since 24.11. */
static pthread_mutex_t queue = PTHREAD_MUTEX_INITIALIZER;
static int adds_begun;
static char socket_path[4096];

static void die(const char *what)
{
    perror(what);
    exit(1);
}

/* Returns the value of a fault, NULL without it. */
static const char *fault_value(const char *name)
{
    for (char **at = faults; at && *at; at++)
        if (!strcmp(*at, name))
            return at[1] ? at[1] : "";
    return NULL;
}

static int32_t fault_number(const char *name, int32_t otherwise)
{
    const char *value = fault_value(name);
    return value ? atoi(value) : otherwise;
}

static void path_below(char *path, size_t size, const char *rest)
{
    snprintf(path, size, "%s%s", job_dir, rest);
}

static void make_cgroup(const char *rest)
{
    char path[4096];
    path_below(path, sizeof path, rest);
    if (mkdir(path, 0755) && errno != EEXIST)
        die(path);
}

static int write_file(const char *rest, const char *text)
{
    char path[4096];
    path_below(path, sizeof path, rest);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int result = fd < 0 || write(fd, text, strlen(text)) < 0 ? -1 : 0;
    if (fd >= 0)
        close(fd);
    return result;
}

static void add_one(int32_t pid)
{
    char digits[16];
    snprintf(digits, sizeof digits, "%d", pid);
    static int adds;
    if (fault_value("lie") || (adds++ && fault_value("lie-later")))
        return;
    make_cgroup("/step_extern/user");
    const char *leaf = fault_value("elsewhere") ? "/step_extern/user/other" : "/step_extern/user/task_special";
    char procs[64];
    make_cgroup(leaf);
    snprintf(procs, sizeof procs, "%s/cgroup.procs", leaf);
    write_file(procs, digits);
    if (fault_value("accounted")) {
        make_cgroup("/step_extern/user/task_3");
        write_file("/step_extern/user/task_3/cgroup.procs", digits);
        char path[4096];
        path_below(path, sizeof path, leaf);
        rmdir(path);
    }
}

/* Adds a process unless the step has ended: no cgroup is made while they are removed. */
static void add_process(int32_t pid)
{
    pthread_mutex_lock(&adding);
    if (!ended)
        add_one(pid);
    pthread_mutex_unlock(&adding);
}

static void hang(void)
{
    for (;;)
        pause();
}

static int read_int(int fd, int32_t *value)
{
    return recv(fd, value, sizeof *value, MSG_WAITALL) == sizeof *value;
}

static void write_int(int fd, int32_t value)
{
    send(fd, &value, sizeof value, MSG_NOSIGNAL);
}

/* Answers the order to add a process; returns whether the conversation goes on. */
static int answer_add(int fd, int32_t pid)
{
    asked_to_add = 1;
    if (fault_value("exit-add")) {
        unlink(socket_path);
        _exit(0);
    }
    if (fault_value("hang-add"))
        hang();
    if (fault_value("close-add"))
        return 0;
    if (fault_value("refuse")) {
        write_int(fd, -1);
        return 1;
    }
    usleep((useconds_t)fault_number("slow-add", 0) * 1000);
    pthread_mutex_lock(&queue);
    if (fault_value("hang-after") && adds_begun++ >= fault_number("hang-after", 0))
        hang();
    usleep((useconds_t)fault_number("queue", 0) * 1000);
    add_process(pid);
    pthread_mutex_unlock(&queue);
    write_int(fd, 0);
    return 1;
}

/* Sends a byte with one or two copies of a descriptor. */
static void pass_descriptor(int socket, int fd, int times)
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

/* Passes the namespaces. With `several`, in the form of Slurm 25.11 and later: their number, then each
 * behind its kind. Earlier versions send the number of their own descriptor. */
static void pass_namespaces(int socket, int several)
{
    const char *paths[] = {fault_value("ns"), fault_value("ns2")};
    int count = !!paths[0] + !!paths[1];
    if (fault_value("hang-ns"))
        hang();
    if (several || !count || fault_value("count"))
        write_int(socket, fault_number("count", count));
    for (int at = 0; at < count; at++) {
        int fd = open(paths[at], O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            die(paths[at]);
        if (several) {
            int kind = ioctl(fd, NS_GET_NSTYPE);
            write_int(socket, fault_number("kind", kind));
        } else if (!fault_value("count")) {
            write_int(socket, fd);
        }
        pass_descriptor(socket, fd, fault_value("no-ns") ? 0 : fault_value("twice") ? 2 : 1);
        close(fd);
    }
}

static void report_display(int fd)
{
    const char *keys = fault_value("keys");
    int32_t length = keys ? (int32_t)strlen(keys) + 1 : 0;
    write_int(fd, fault_number("display", 0));
    write_int(fd, length);
    if (keys)
        send(fd, keys, (size_t)length, MSG_NOSIGNAL);
}

static void *talk(void *argument)
{
    int fd = (int)(intptr_t)argument;
    int32_t word, added = 0;
    if (fault_value("hang"))
        hang();
    if (read_int(fd, &word)) {
        write_int(fd, fault_number("version", 38 << 8));
        while (read_int(fd, &word)) {
            if (added && fault_value("hang-then"))
                hang();
            if (added && fault_value("exit-then")) {
                unlink(socket_path);
                _exit(0);
            }
            if (word == UID) {
                write_int(fd, added ? fault_number("then-uid", owner) : owner);
            } else if (word == STATE) {
                int32_t state = fault_number("state", ended ? ENDING : RUNNING);
                write_int(fd, asked_to_add ? fault_number("then-state", state) : state);
            } else if (word == X11) {
                report_display(fd);
            } else if (word == NS || word == NSS) {
                int several = fault_number("version", 0) >= SEVERAL;
                if ((word == NSS) != several)
                    break;
                pass_namespaces(fd, several);
            } else if (word != ADD || !read_int(fd, &added) || !answer_add(fd, added)) {
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
    /* The kernel reports the credentials of the listener to the other end, not of the one who bound. */
    const char *user = fault_value("user");
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

/* Removes the cgroups that it knows of, the innermost first, after the killed processes are gone. It kills before
 * each try, as slurmstepd does: another thread may have added a process just before the end. */
static int remove_cgroups(void)
{
    static const char *const known[] = {"/step_extern/user/task_special", "/step_extern/user/other",
                                        "/step_extern/user/task_3",
                                        "/step_extern/user", "/step_extern/slurm", "/step_extern",
                                        "/step_0/slurm", "/step_0", ""};
    int left = 0;
    if (step_daemon) {
        kill(step_daemon, SIGKILL);
        waitpid(step_daemon, NULL, 0);
    }
    unlink(socket_path);
    pthread_mutex_lock(&adding);
    pthread_mutex_unlock(&adding);
    write_file("/../cgroup.procs", "0");
    for (size_t at = 0; at < sizeof known / sizeof *known; at++) {
        char path[4096];
        int result = -1;
        path_below(path, sizeof path, known[at]);
        for (int tries = 0; tries < 400 && result; tries++) {
            write_file("/step_extern/user/cgroup.kill", "1");
            result = rmdir(path) && errno != ENOENT;
            if (result)
                usleep(5000);
        }
        left |= result;
    }
    return left;
}

/* Continues in a child that is the first process of a new PID namespace. */
static void enter_pid_namespace(void)
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

/* Starts the daemon of another step, which mounts in a namespace of its own, as Slurm's switch/nvidia_imex does. The
 * channel is a null device. Returns when it is ready. */
static void start_step_with_channels(const char *dir)
{
    const char *other = fault_value("mounts"), *user = fault_value("step-user");
    char path[4096];
    int ready[2];
    if (pipe(ready) || (step_daemon = fork()) < 0)
        die("fork");
    close(ready[step_daemon ? 1 : 0]);
    if (step_daemon) {
        if (read(ready[0], path, 1) != 1)
            exit(1);
        close(ready[0]);
        return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    make_cgroup("/step_0");
    make_cgroup("/step_0/slurm");
    if (write_file("/step_0/slurm/cgroup.procs", "0"))
        die("cgroup.procs");
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_SLAVE | MS_REC, NULL)
        || mount("tmpfs", dir, "tmpfs", MS_NOSUID | MS_NOEXEC, "size=0,mode=0755")
        || (other && mount("tmpfs", other, "tmpfs", 0, "size=0,mode=0755")))
        die(dir);
    snprintf(path, sizeof path, "%s/channel1", dir);
    umask(0);
    if (mknod(path, S_IFCHR | 0666, makedev(1, 3)))
        die(path);
    if (user && setuid((uid_t)atoi(user)))
        die("setuid");
    if (write(ready[1], "", 1) != 1)
        exit(1);
    for (;;)
        pause();
}

/* Starts this program again with slurmstepd's title. */
static void take_title(char **argv)
{
    const char *program = argv[0];
    char title[64];
    if (strncmp(program, "slurmstepd: ", 12) == 0)
        return;
    snprintf(title, sizeof title, "slurmstepd: [%s.extern]", argv[3]);
    argv[0] = title;
    execv(program, argv);
    die("execv");
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = end};
    if (argc < 6)
        return 2;
    take_title(argv);
    sigaction(SIGTERM, &action, NULL);
    owner = (int32_t)strtoul(argv[4], NULL, 10);
    job_dir = argv[5];
    faults = argv + 6;
    if (fault_value("pids"))
        enter_pid_namespace();
    make_cgroup("");
    if (fault_value("channels"))
        start_step_with_channels(fault_value("channels"));
    make_cgroup("/step_extern");
    make_cgroup("/step_extern/slurm");
    if (!fault_value("no-user"))
        make_cgroup("/step_extern/user");
    if (write_file(fault_value("aside") ? "/../cgroup.procs" : "/step_extern/slurm/cgroup.procs", "0"))
        die("cgroup.procs");
    listen_at(argv[1], argv[2], argv[3]);
    puts("ready");
    fflush(stdout);
    serve();
    return remove_cgroups();
}
