#!/bin/sh -p
# Prolog, run as root on the node before or as a job starts, for any scheduler that can run one.
#
# Set these from what YOUR SCHEDULER reports, never from the job's own environment or from a file that
# the user can write: their source decides whose job this is and what it may open.
#
#   JOB_ID       the scheduler's id of the job
#   JOB_UID      numeric uid of its owner
#   JOB_CGROUP   the job's cgroup, relative to the cgroup v2 mount; it must exist already
#   JOB_GPUS     the job's GPUs, separated by blanks: UUIDs, PCI addresses, or numbers with a word for
#                who counts: flux:0 in hwloc's order, rocm:0 by KFD node, nvidia:0 as nvidia-smi does.
#                Each comes with what computing on it takes. "job-adopt devices --gpu GPU" shows what
#                one stands for.
#   JOB_DEVICES  other devices, separated by blanks: "/dev/fuse @hpc"
#   JOB_NODEFILE, JOB_TMPDIR, JOB_TASKS   what logins get of the job with "env = full" in job_adopt.conf: a file with
#                its nodes (JOB_ADOPT_NODEFILE), a folder for temporary files (TMPDIR), the number of its tasks
#                (JOB_ADOPT_TASKS). Add --scheduler for Grid Engine, HTCondor, LSF, OAR or OpenPBS, and the
#                variables of that, as job-adopt-record(5) lists them
#   JOB_LOGINS   "no" keeps logins out of the job, for example in a partition for batch work
#
# For GPUs by CDI name take --cdi nvidia.com/gpu=0, by the index in gres.conf --gres gpu:0.

# Drops the environment except the variables named here: a scheduler may pass on variables of the user.
case ${1-} in
--clean) shift ;;
*)
    exec /usr/bin/env -i LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        JOB_ID="${JOB_ID-}" JOB_UID="${JOB_UID-}" JOB_CGROUP="${JOB_CGROUP-}" \
        JOB_GPUS="${JOB_GPUS-}" JOB_DEVICES="${JOB_DEVICES-}" JOB_LOGINS="${JOB_LOGINS-}" \
        JOB_NODEFILE="${JOB_NODEFILE-}" JOB_TMPDIR="${JOB_TMPDIR-}" JOB_TASKS="${JOB_TASKS-}" \
        /bin/sh "$0" --clean "$@"
    ;;
esac
set -euf

: "${JOB_ID:?}" "${JOB_UID:?}" "${JOB_CGROUP:?}" "${JOB_GPUS=}" "${JOB_DEVICES=}" "${JOB_LOGINS=}"
: "${JOB_NODEFILE=}" "${JOB_TMPDIR=}" "${JOB_TASKS=}"

set -- --id "$JOB_ID" --uid "$JOB_UID" --cgroup "$JOB_CGROUP" --policy closed
for gpu in $JOB_GPUS; do
    set -- "$@" --gpu "$gpu"
done
for device in $JOB_DEVICES; do
    set -- "$@" --device "$device rw"
done
for pair in "JOB_ADOPT_NODEFILE=$JOB_NODEFILE" "TMPDIR=$JOB_TMPDIR" "JOB_ADOPT_TASKS=$JOB_TASKS"; do
    [ -z "${pair#*=}" ] || set -- "$@" --env "$pair"
done
[ "$JOB_LOGINS" != no ] || set -- "$@" --no-logins

# What CUDA needs besides the GPUs, NVIDIA's driver loads at its first use, which is too late for the list of a job.
test ! -d /proc/driver/nvidia || timeout 60 nvidia-modprobe -u -c 0 2>/dev/null || timeout 60 modprobe nvidia-uvm || :

# A failure here must fail the prolog: a job that is not registered gets no logins, and one that
# is registered with the wrong devices is worse than one that is not.
exec job-adopt register "$@"
