/*
 * Plays another owner of device filters on a cgroup.
 *   filter attach DIR FLAGS NAME [MAJOR:MINOR...]   allows all but these character devices;
 *                                                   "opaque" also calls the kernel
 *   filter list DIR                                 prints "ID FLAGS NAME" per attached program
 *   filter effective DIR                            prints the same per program in force
 *   filter detach DIR ID
 *   filter loaded DIR                               prints the same per loaded program
 */
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Larger than any kernel's attributes: some kernels write past the size that they are given. */
union request {
    union bpf_attr attr;
    char room[256];
};

static struct bpf_insn code[1024];
static int length;

static void emit(__u8 op, __u8 dst, __u8 src, __s16 offset, __s32 value)
{
    code[length++] =
        (struct bpf_insn){.code = op, .dst_reg = dst, .src_reg = src, .off = offset, .imm = value};
}

static int bpf(int command, union request *request)
{
    int result = (int)syscall(SYS_bpf, command, request, sizeof *request);
    if (result < 0) {
        perror("bpf");
        exit(1);
    }
    return result;
}

/* Loads major and minor, and returns their registers. */
static void load_device(const char *name, __u8 *major, __u8 *minor)
{
    *major = 2;
    *minor = 3;
    emit(BPF_LDX | BPF_MEM | BPF_W, *major, 1, 4, 0);
    emit(BPF_LDX | BPF_MEM | BPF_W, *minor, 1, 8, 0);
    if (!strcmp(name, "opaque")) {
        emit(BPF_ALU64 | BPF_MOV | BPF_X, 6, *major, 0, 0); /* a call preserves registers 6 to 9 */
        emit(BPF_ALU64 | BPF_MOV | BPF_X, 7, *minor, 0, 0);
        emit(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_ktime_get_ns);
        *major = 6;
        *minor = 7;
    }
}

static int load_program(const char *name, int count, char **denied)
{
    __u8 r_major, r_minor;
    load_device(name, &r_major, &r_minor);
    for (int i = 0; i < count; i++) {
        int major, minor;
        if (sscanf(denied[i], "%d:%d", &major, &minor) != 2)
            exit(2);
        emit(BPF_JMP32 | BPF_JNE | BPF_K, r_major, 0, 3, major);
        emit(BPF_JMP32 | BPF_JNE | BPF_K, r_minor, 0, 2, minor);
        emit(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 0);
        emit(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
    }
    emit(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 1);
    emit(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
    union request request = {0};
    request.attr.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE;
    request.attr.insns = (__u64)(unsigned long)code;
    request.attr.insn_cnt = (__u32)length;
    request.attr.license = (__u64)(unsigned long)"GPL";
    strncpy(request.attr.prog_name, name, sizeof request.attr.prog_name - 1);
    return bpf(BPF_PROG_LOAD, &request);
}

static __u32 flags_of(const char *name)
{
    if (!strcmp(name, "none"))
        return 0;
    return !strcmp(name, "override") ? BPF_F_ALLOW_OVERRIDE : BPF_F_ALLOW_MULTI;
}

static int open_program(__u32 id)
{
    union request request = {0};
    request.attr.prog_id = id;
    return bpf(BPF_PROG_GET_FD_BY_ID, &request);
}

static void print_program(int fd, __u32 id, __u32 flags)
{
    struct bpf_prog_info info = {0};
    union request request = {0};
    request.attr.info.bpf_fd = (__u32)fd;
    request.attr.info.info_len = sizeof info;
    request.attr.info.info = (__u64)(unsigned long)&info;
    bpf(BPF_OBJ_GET_INFO_BY_FD, &request);
    const char *kind = flags & BPF_F_ALLOW_MULTI      ? "multi"
                       : flags & BPF_F_ALLOW_OVERRIDE ? "override"
                                                      : "none";
    printf("%u %s %s\n", id, kind, info.name[0] ? info.name : "-");
}

static void list_programs(int folder, __u32 query)
{
    __u32 ids[128];
    union request request = {0};
    request.attr.query.target_fd = (__u32)folder;
    request.attr.query.attach_type = BPF_CGROUP_DEVICE;
    request.attr.query.query_flags = query;
    request.attr.query.prog_ids = (__u64)(unsigned long)ids;
    request.attr.query.prog_cnt = 128;
    bpf(BPF_PROG_QUERY, &request);
    for (__u32 i = 0; i < request.attr.query.prog_cnt; i++) {
        int fd = open_program(ids[i]);
        print_program(fd, ids[i], request.attr.query.attach_flags);
        close(fd);
    }
}

static void list_loaded(void)
{
    union request request = {0};
    while (!syscall(SYS_bpf, BPF_PROG_GET_NEXT_ID, &request, sizeof request)) {
        union request one = {0};
        one.attr.prog_id = request.attr.next_id;
        int fd = (int)syscall(SYS_bpf, BPF_PROG_GET_FD_BY_ID, &one, sizeof one);
        /* A program may have been unloaded in between. */
        if (fd >= 0) {
            print_program(fd, one.attr.prog_id, 0);
            close(fd);
        }
        request.attr.start_id = request.attr.next_id;
    }
}

static void attach_or_detach(int command, int folder, int fd, __u32 flags)
{
    union request request = {0};
    request.attr.target_fd = (__u32)folder;
    request.attr.attach_bpf_fd = (__u32)fd;
    request.attr.attach_type = BPF_CGROUP_DEVICE;
    request.attr.attach_flags = flags;
    bpf(command, &request);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    int folder = open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) {
        perror(argv[2]);
        return 1;
    }
    if (!strcmp(argv[1], "attach") && argc >= 5)
        attach_or_detach(BPF_PROG_ATTACH, folder, load_program(argv[4], argc - 5, argv + 5), flags_of(argv[3]));
    else if (!strcmp(argv[1], "detach") && argc == 4)
        attach_or_detach(BPF_PROG_DETACH, folder, open_program((__u32)atol(argv[3])), 0);
    else if (!strcmp(argv[1], "list"))
        list_programs(folder, 0);
    else if (!strcmp(argv[1], "effective"))
        list_programs(folder, BPF_F_QUERY_EFFECTIVE);
    else if (!strcmp(argv[1], "loaded"))
        list_loaded();
    else
        return 2;
    return 0;
}
