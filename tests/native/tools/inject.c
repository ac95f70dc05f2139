/*
 * inject WHO NUMBER ERRNO LOG PROGRAM [ARGUMENT...]: runs a program and makes one system call fail with ERRNO:
 * the NUMBERth call of WHO while the program counts. WHO is
 *   sshd    the program itself, and its children until they execute something
 *   helper  its children from the exec of /usr/libexec/job-adopt/helper on
 *   keeper  its children from the exec of /usr/libexec/job-adopt/keeper on
 *   `nobody`  no process: every call succeeds
 * The program marks the time of counting with the calls COUNT and PAUSE, numbers that no system call has. LOG
 * gets a line "WHO NAME" for each counted call, and "WHO NAME failed" for the failing one. The exit status is
 * that of the program.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 100000, PAUSE = 100001, TASKS = 64, SYSCALL_STOP = SIGTRAP | 0x80 };
enum who { SSHD, HELPER, KEEPER, KINDS };

static const char *const kinds[KINDS] = {"sshd", "helper", "keeper"};

static struct task {
    pid_t pid;
    enum who who;
    int spoilt; /* its current call will fail */
} tasks[TASKS];

static pid_t program;
static int counting, chosen = KINDS, number, error, counted[KINDS];
static FILE *report;

#define NAME(call) [SYS_##call] = #call
static const char *const names[512] = {
    NAME(read), NAME(write), NAME(close), NAME(fstat), NAME(lseek), NAME(mmap), NAME(mprotect),
    NAME(munmap), NAME(brk), NAME(rt_sigaction), NAME(rt_sigprocmask), NAME(rt_sigreturn), NAME(ioctl), NAME(rt_sigpending),
    NAME(pread64), NAME(sched_yield), NAME(mremap), NAME(madvise), NAME(nanosleep), NAME(getpid),
    NAME(socket), NAME(connect), NAME(sendto), NAME(recvfrom), NAME(sendmsg), NAME(recvmsg), NAME(shutdown),
    NAME(bind), NAME(getsockname), NAME(getsockopt), NAME(setsockopt), NAME(clone), NAME(execve),
    NAME(exit), NAME(wait4), NAME(uname), NAME(fcntl), NAME(getdents64), NAME(getcwd), NAME(umask),
    NAME(getrlimit), NAME(getuid), NAME(getgid), NAME(geteuid), NAME(getegid), NAME(setresuid),
    NAME(setresgid), NAME(setgroups), NAME(capget), NAME(capset), NAME(statfs), NAME(fstatfs), NAME(prctl),
    NAME(setrlimit), NAME(gettid), NAME(futex), NAME(set_tid_address), NAME(clock_gettime),
    NAME(clock_nanosleep), NAME(exit_group), NAME(waitid), NAME(openat), NAME(mkdirat), NAME(unlinkat),
    NAME(newfstatat), NAME(readlinkat), NAME(faccessat), NAME(ppoll), NAME(set_robust_list), NAME(dup3),
    NAME(pipe2), NAME(prlimit64), NAME(getrandom), NAME(bpf), NAME(execveat), NAME(statx), NAME(rseq),
    NAME(pidfd_send_signal), NAME(pidfd_open), NAME(clone3), NAME(close_range), NAME(openat2),
    NAME(faccessat2), NAME(fsetxattr), NAME(fgetxattr), NAME(sigaltstack), NAME(sched_getaffinity), NAME(sched_getattr), NAME(sched_setattr),
    NAME(kill), NAME(setsid), NAME(setpgid), NAME(chdir), NAME(fchdir), NAME(getppid), NAME(getpriority), NAME(setpriority),
    NAME(timerfd_create), NAME(timerfd_settime), NAME(epoll_ctl), NAME(memfd_create), NAME(name_to_handle_at),
    NAME(accept4), NAME(listen), NAME(socketpair), NAME(flock), NAME(fchmod), NAME(fchown),
    NAME(setns), NAME(chroot), NAME(keyctl),
#ifdef SYS_open
    NAME(open), NAME(stat), NAME(lstat), NAME(poll), NAME(access), NAME(readlink), NAME(vfork), NAME(fork),
    NAME(pipe), NAME(dup2), NAME(arch_prctl), NAME(mkdir), NAME(rmdir), NAME(unlink),
#endif
};

static void die(const char *what)
{
    perror(what);
    exit(125);
}

static struct task *find_task(pid_t pid)
{
    for (struct task *at = tasks; at < tasks + TASKS; at++)
        if (at->pid == pid)
            return at;
    for (struct task *at = tasks; at < tasks + TASKS; at++)
        if (at->pid == 0) {
            *at = (struct task){.pid = pid};
            return at;
        }
    errno = ENOSPC;
    die("tasks");
    return NULL;
}

/* Makes the kernel skip the call. */
static void skip_call(pid_t pid)
{
#ifdef __x86_64__
    if (ptrace(PTRACE_POKEUSER, pid, offsetof(struct user_regs_struct, orig_rax), -1L))
        die("skip");
#else
    int none = -1;
    struct iovec value = {&none, sizeof none};
    if (ptrace(PTRACE_SETREGSET, pid, NT_ARM_SYSTEM_CALL, &value))
        die("skip");
#endif
}

static void fail_call(pid_t pid)
{
#ifdef __x86_64__
    if (ptrace(PTRACE_POKEUSER, pid, offsetof(struct user_regs_struct, rax), (long)-error))
        die("fail");
#else
    struct user_regs_struct registers;
    struct iovec value = {&registers, sizeof registers};
    if (ptrace(PTRACE_GETREGSET, pid, NT_PRSTATUS, &value))
        die("fail");
    registers.regs[0] = (unsigned long)-error;
    if (ptrace(PTRACE_SETREGSET, pid, NT_PRSTATUS, &value))
        die("fail");
#endif
}

static void enter_call(struct task *task, unsigned long call, unsigned long argument)
{
    if (task->pid == program && (call == COUNT || call == PAUSE))
        counting = call == COUNT;
    /* libpam itself writes an audit record at the end of each phase. */
    if (task->pid == program && call == SYS_socket && argument == AF_NETLINK)
        counting = 0;
    if (!counting || call == COUNT)
        return;
    task->spoilt = ++counted[task->who] == number && (int)task->who == chosen;
    const char *name = call < sizeof names / sizeof *names ? names[call] : NULL;
    const char *failed = task->spoilt ? " failed" : "";
    if (name)
        fprintf(report, "%s %s%s\n", kinds[task->who], name, failed);
    else
        fprintf(report, "%s %lu%s\n", kinds[task->who], call, failed);
    /* The kernel closes a descriptor even if it reports an error. */
    if (task->spoilt && call != SYS_close)
        skip_call(task->pid);
}

static void syscall_stop(struct task *task)
{
    struct __ptrace_syscall_info info;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, task->pid, sizeof info, &info) < 0)
        return;
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
        enter_call(task, info.entry.nr, info.entry.args[0]);
    } else if (info.op == PTRACE_SYSCALL_INFO_EXIT && task->spoilt) {
        task->spoilt = 0;
        fail_call(task->pid);
    }
}

static void note_exec(struct task *task)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/%d/exe", task->pid);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    if (strstr(path, "/job-adopt/helper"))
        task->who = HELPER;
    else if (strstr(path, "/job-adopt/keeper"))
        task->who = KEEPER;
}

/* Handles one stop of one task, and resumes it. */
static void handle_stop(pid_t pid, int status)
{
    int event = status >> 16, signal = WSTOPSIG(status);
    struct task *at = find_task(pid);
    if (signal == SYSCALL_STOP)
        syscall_stop(at);
    else if (event == PTRACE_EVENT_EXEC)
        note_exec(at);
    else if (event == PTRACE_EVENT_STOP && signal != SIGTRAP) {
        ptrace(PTRACE_LISTEN, pid, 0, 0);
        return;
    }
    ptrace(PTRACE_SYSCALL, pid, 0, event || signal == SYSCALL_STOP ? 0 : signal);
}

static void start_program(char **command)
{
    int gate[2];
    if (pipe2(gate, 0))
        die("pipe");
    program = fork();
    if (program == 0) {
        char go;
        close(gate[1]);
        if (read(gate[0], &go, 1) != 1)
            _exit(125);
        close(gate[0]);
        execvp(*command, command);
        _exit(127);
    }
    long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXEC | PTRACE_O_TRACEFORK |
                   PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE;
    if (program < 0 || ptrace(PTRACE_SEIZE, program, 0, options) ||
        ptrace(PTRACE_INTERRUPT, program, 0, 0) || write(gate[1], "", 1) != 1)
        die("start");
    close(gate[0]);
    close(gate[1]);
    find_task(program);
}

int main(int argc, char **argv)
{
    if (argc < 6)
        return 2;
    for (int kind = 0; kind < KINDS; kind++)
        if (!strcmp(argv[1], kinds[kind]))
            chosen = kind;
    number = atoi(argv[2]);
    error = atoi(argv[3]);
    report = fopen(argv[4], "we");
    if (!report)
        die(argv[4]);
    start_program(argv + 5);
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, __WALL);
        if (pid < 0)
            die("waitpid");
        if (WIFSTOPPED(status)) {
            handle_stop(pid, status);
            continue;
        }
        find_task(pid)->pid = 0;
        /* Every remaining process continues untraced. */
        if (pid == program)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
}
