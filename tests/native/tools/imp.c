/*
 * Stands in for the IMP of Flux, which a unit of the flux user's service manager starts as a setuid program:
 * the flux user's real uid, and root's other uids.
 *   imp [OPTION...] UID COMMAND [ARGUMENT...]
 * Like the IMP, it starts an unprivileged child of the flux user; then it attaches the device filter to its own
 * cgroup, without flags and with the IMP's layout; then it starts the job's shell, COMMAND as UID, and waits for
 * its end; at last it waits for everything else in its cgroup's directory.
 * Prints "starting", "waiting" and "running PID", and sends READY=1 and STOPPING=1 to the service manager. At
 * SIGUSR1 it kills the processes in its cgroup's directory, but none in cgroups below.
 *   --flux UID    started by root: takes on the IMP's uids, with this real one
 *   --rule RULE   the filter allows this, "c:195:0:rw"; the minor "*" stands for all of them
 *   --filter      attaches a filter even without a rule
 *   --wait FILE   starts the shell only when that file exists
 *   --private MS  ends the unprivileged child after this time
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/bpf.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define CGROUP2 0x63677270

/* Larger than any kernel's attributes: some kernels write past the size that they are given. */
union request {
    union bpf_attr attr;
    char room[256];
};

static struct bpf_insn code[1024];
static int length;
static char cgroup[4096];

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void emit(__u8 op, __u8 dst, __u8 src, __s16 offset, __s32 value)
{
    if (length == sizeof code / sizeof *code)
        exit(2);
    code[length++] =
        (struct bpf_insn){.code = op, .dst_reg = dst, .src_reg = src, .off = offset, .imm = value};
}

/* Emits one entry: ten instructions, eleven with a minor. */
static void allow(const char *rule)
{
    char type, minor[16], access[8];
    int major;
    if (sscanf(rule, "%c:%d:%15[0-9*]:%7[rwm]", &type, &major, minor, access) != 4)
        exit(2);
    int any = !strcmp(minor, "*"), size = any ? 10 : 11;
    int asked = (strchr(access, 'm') ? BPF_DEVCG_ACC_MKNOD : 0) |
                (strchr(access, 'r') ? BPF_DEVCG_ACC_READ : 0) |
                (strchr(access, 'w') ? BPF_DEVCG_ACC_WRITE : 0);
    emit(BPF_ALU | BPF_MOV | BPF_X, 5, 4, 0, 0);
    emit(BPF_ALU | BPF_AND | BPF_K, 5, 0, 0, 0xffff);
    emit(BPF_JMP | BPF_JNE | BPF_K, 5, 0, (__s16)(size - 3),
         type == 'b' ? BPF_DEVCG_DEV_BLOCK : BPF_DEVCG_DEV_CHAR);
    emit(BPF_JMP | BPF_JNE | BPF_K, 2, 0, (__s16)(size - 4), major);
    if (!any)
        emit(BPF_JMP | BPF_JNE | BPF_K, 3, 0, (__s16)(size - 5), atoi(minor));
    emit(BPF_ALU | BPF_MOV | BPF_X, 5, 4, 0, 0);
    emit(BPF_ALU | BPF_RSH | BPF_K, 5, 0, 0, 16);
    emit(BPF_ALU | BPF_AND | BPF_K, 5, 0, 0, ~asked & 7);
    emit(BPF_JMP | BPF_JNE | BPF_K, 5, 0, 2, 0);
    emit(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 1);
    emit(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
}

static void begin_filter(void)
{
    emit(BPF_LDX | BPF_MEM | BPF_W, 2, 1, 4, 0);
    emit(BPF_LDX | BPF_MEM | BPF_W, 3, 1, 8, 0);
    emit(BPF_LDX | BPF_MEM | BPF_W, 4, 1, 0, 0);
}

static void attach_filter(void)
{
    emit(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 0);
    emit(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
    union request request = {0};
    request.attr.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE;
    request.attr.insns = (__u64)(unsigned long)code;
    request.attr.insn_cnt = (__u32)length;
    request.attr.license = (__u64)(unsigned long)"LGPL";
    int program = (int)syscall(SYS_bpf, BPF_PROG_LOAD, &request, sizeof request);
    int folder = open(cgroup, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (program < 0 || folder < 0)
        die("filter");
    memset(&request, 0, sizeof request);
    request.attr.target_fd = (__u32)folder;
    request.attr.attach_bpf_fd = (__u32)program;
    request.attr.attach_type = BPF_CGROUP_DEVICE;
    if (syscall(SYS_bpf, BPF_PROG_ATTACH, &request, sizeof request))
        die("attach");
    close(folder);
    close(program);
}

/* Finds the directory of its own cgroup. */
static void find_cgroup(void)
{
    char line[4096];
    struct statfs mount;
    if (statfs("/sys/fs/cgroup", &mount))
        die("/sys/fs/cgroup");
    const char *root = mount.f_type == CGROUP2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/unified";
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, "0::", 3))
            snprintf(cgroup, sizeof cgroup, "%s%.3000s", root, line + 3);
    }
    if (file)
        fclose(file);
    if (!*cgroup)
        exit(2);
}

static void print_state(const char *text)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!path || strlen(path) >= sizeof address.sun_path)
        return;
    size_t size = strlen(path);
    memcpy(address.sun_path, path, size);
    if (*path == '@')
        address.sun_path[0] = 0;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&address,
               (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size)) < 0)
        perror("NOTIFY_SOCKET");
    close(fd);
}

/* Sends a signal to the other processes in its cgroup's directory, and returns their number. */
static int signal_others(int signal)
{
    char path[4200];
    int pid, count = 0;
    snprintf(path, sizeof path, "%s/cgroup.procs", cgroup);
    FILE *file = fopen(path, "re");
    while (file && fscanf(file, "%d", &pid) == 1) {
        if (pid == getpid())
            continue;
        count++;
        if (signal)
            kill(pid, signal);
    }
    if (file)
        fclose(file);
    return count;
}

static void take_uids(uid_t uid)
{
    if (setgroups(0, NULL) || setresgid(uid, uid, uid) || setresuid(uid, uid, uid))
        die("setresuid");
}

static void start_private_child(uid_t flux, int milliseconds)
{
    int status = 1;
    pid_t child = fork();
    if (child == 0) {
        take_uids(flux);
        usleep((useconds_t)milliseconds * 1000);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) < 0 || status)
        die("unprivileged child");
}

static pid_t start_shell(uid_t user, char **command, const sigset_t *before)
{
    pid_t child = fork();
    if (child < 0)
        die("fork");
    if (child == 0) {
        take_uids(user);
        setsid();
        sigprocmask(SIG_SETMASK, before, NULL);
        unsetenv("NOTIFY_SOCKET");
        if (chdir("/"))
            _exit(126);
        execvp(*command, command);
        _exit(127);
    }
    return child;
}

/* Waits for the shell and forwards signals to it; returns its status. */
static int wait_for_shell(pid_t child, const sigset_t *blocked)
{
    int status = 0;
    struct timespec moment = {.tv_nsec = 50000000};
    while (waitpid(child, &status, WNOHANG) == 0) {
        int signal = sigtimedwait(blocked, NULL, &moment);
        if (signal == SIGUSR1)
            signal_others(SIGKILL);
        else if (signal > 0 && signal != SIGCHLD)
            kill(child, signal);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Waits until it is alone. */
static void wait_until_alone(const sigset_t *blocked)
{
    struct timespec moment = {.tv_nsec = 50000000};
    while (signal_others(0))
        if (sigtimedwait(blocked, NULL, &moment) == SIGUSR1)
            signal_others(SIGKILL);
}

int main(int argc, char **argv)
{
    const char *await = NULL, *rules[64];
    int at = 1, count = 0, filter = 0, private = 50;
    long flux = -1;
    for (; at < argc && !strncmp(argv[at], "--", 2); at++) {
        const char *option = argv[at] + 2;
        if (!strcmp(option, "filter")) {
            filter = 1;
            continue;
        }
        if (++at == argc)
            return 2;
        if (!strcmp(option, "flux"))
            flux = atol(argv[at]);
        else if (!strcmp(option, "rule") && count < 64)
            rules[count++] = argv[at];
        else if (!strcmp(option, "wait"))
            await = argv[at];
        else if (!strcmp(option, "private"))
            private = atoi(argv[at]);
        else
            return 2;
    }
    if (argc - at < 2)
        return 2;
    setvbuf(stdout, NULL, _IONBF, 0);
    uid_t user = (uid_t)strtoul(argv[at], NULL, 10);
    if (flux >= 0 && setresuid((uid_t)flux, 0, 0))
        die("setresuid");
    if (geteuid() || !user)
        return 2;
    if (setresuid((uid_t)-1, 0, 0))
        die("setresuid");
    find_cgroup();
    puts("starting");
    start_private_child(getuid(), private);
    if (filter || count) {
        begin_filter();
        for (int i = 0; i < count; i++)
            allow(rules[i]);
        attach_filter();
    }
    sigset_t blocked, before;
    sigemptyset(&blocked);
    int passed[] = {SIGTERM, SIGINT, SIGHUP, SIGALRM, SIGUSR1, SIGUSR2, SIGCHLD};
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        sigaddset(&blocked, passed[i]);
    if (await)
        puts("waiting");
    while (await && access(await, F_OK))
        usleep(10000);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    pid_t child = start_shell(user, argv + at + 1, &before);
    printf("running %d\n", child);
    print_state("READY=1");
    int status = wait_for_shell(child, &blocked);
    print_state("STOPPING=1");
    wait_until_alone(&blocked);
    return status;
}
