#!/bin/sh -p
# Prolog= of slurm.conf(5): slurmd runs it as root on each node of a job before the job starts there.
#
# Logins need no prolog. This one writes a record that adds to the answers of Slurm's own daemons:
#   - the exact list of the devices that logins may open (see DEVICES),
#   - the variables for "env = full" in job_adopt.conf,
#   - the end of the job for the welcome text, if Slurm reports it (24.11 does, 22.05 does not).
# The epilog beside it removes the record, and leaves the note that tells the user that the job has
# ended. Both require PrologFlags=Contain, as the logins do. docs/quickstart-slurm.md has the rest.
#
# Right for jobs without GPUs, arrays and heterogeneous jobs (each part has an id of its own), a job
# that is requeued under its id, and a prolog that is run twice. Records are in /run: a reboot takes
# them, as it does the jobs.

# Drops the environment except the variables named here: a scheduler may pass on variables of the user.
# Add SLURM_CONF=FILE if slurmd has an option -f. 22.05 has the list of nodes under its older name only.
case ${1-} in
--clean) shift ;;
*)
    exec /usr/bin/env -i LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        SLURM_JOB_ID="${SLURM_JOB_ID-}" SLURM_JOB_UID="${SLURM_JOB_UID-}" \
        SLURM_JOB_GPUS="${SLURM_JOB_GPUS-}" SLURMD_NODENAME="${SLURMD_NODENAME-}" \
        CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES-}" \
        GPU_DEVICE_ORDINAL="${GPU_DEVICE_ORDINAL-}" \
        ROCR_VISIBLE_DEVICES="${ROCR_VISIBLE_DEVICES-}" ZE_AFFINITY_MASK="${ZE_AFFINITY_MASK-}" \
        SLURM_CLUSTER_NAME="${SLURM_CLUSTER_NAME-}" SLURM_JOB_ACCOUNT="${SLURM_JOB_ACCOUNT-}" \
        SLURM_JOB_CPUS_PER_NODE="${SLURM_JOB_CPUS_PER_NODE-}" \
        SLURM_JOB_NODELIST="${SLURM_JOB_NODELIST-${SLURM_NODELIST-}}" SLURM_JOB_NTASKS="${SLURM_JOB_NTASKS-}" \
        SLURM_JOB_NUM_NODES="${SLURM_JOB_NUM_NODES-}" \
        SLURM_JOB_PARTITION="${SLURM_JOB_PARTITION-}" SLURM_JOB_USER="${SLURM_JOB_USER-}" \
        SLURM_JOB_WORK_DIR="${SLURM_JOB_WORK_DIR-}" \
        SLURM_JOB_START_TIME="${SLURM_JOB_START_TIME-}" \
        SLURM_JOB_END_TIME="${SLURM_JOB_END_TIME-}" \
        /bin/sh "$0" --clean "$@"
    ;;
esac
set -euf

# Devices that logins to a job may open:
#   slurm  those that Slurm's own filter allows (ConstrainDevices=yes). The record adds variables
#          and times only.
#   lists  the standard devices, the job's GPUs, always_allowed of job_adopt.conf, and no other.
#          Needs cgroup v2: on v1 Slurm's logins are refused (JA06) while they have a list.
#          A job whose list cannot be made has none, as with "slurm"; the log says why. Without
#          ConstrainDevices=yes in cgroup.conf its logins would open every device: then this fails.
DEVICES=slurm

# Where slurm.conf and gres.conf may be. Add the folder of SLURM_CONF=FILE.
FOLDERS="/etc/slurm /etc/slurm-llnl /usr/local/etc /run/slurm/conf"

# slurmd, which runs this, may be in another folder.
slurmd=$(readlink "/proc/$PPID/exe" || :)
case $slurmd in */slurmd) PATH=$PATH:${slurmd%/*} ;; esac
umask 022

: "${SLURM_JOB_ID:?}" "${SLURM_JOB_UID:?}"

# The module never checks root, who has no records.
test "$SLURM_JOB_UID" != 0 || exit 0

# With AutoDetect, and with several types, only slurmd knows which GPU has which index. It then searches the
# GPUs itself, which takes seconds, so its output is kept for this node, boot, driver and configuration.
ask_slurmd() {
    host=$(uname -n)
    host=${host%%.*}
    name=${SLURMD_NODENAME:-$host}
    # Several slurmd on a host have names of their own, and a file each.
    case $name in [!A-Za-z0-9]* | *[!A-Za-z0-9._-]*) return 1 ;; esac
    told=/run/job-adopt/gres-$name.conf
    mkdir -p "${told%/*}"
    stamp="# $(cat /proc/sys/kernel/random/boot_id)"
    for driver in nvidia amdgpu i915 xe; do
        module=/sys/module/$driver
        stamp="$stamp $(cat "$module/version" 2>/dev/null || cat "$module/initstate" 2>/dev/null || echo -)"
    done
    kept=$(head -n 1 "$told" 2>/dev/null) || kept=
    for dir in $FOLDERS; do
        for conf in slurm.conf gres.conf; do
            test ! "$dir/$conf" -nt "$told" || kept=
        done
    done
    test "$kept" != "$stamp" || return 0
    test "$name" = "$host" || set -- -N "$name"
    found=$(timeout 30 slurmd -G "$@" 2>&1) || found=
    # A record of one resource with several files, as a MIG instance, has Count=1. A list may have blanks. A line
    # begins with the program and a colon, or, from Slurm 26.05 on, with the time in brackets.
    records=$(printf '%s\n' "$found" |
        sed -n -e :list -e 's|\( File=[^ ]*,\) \{1,\}/|\1/|' -e tlist \
            -e 's/^.*[]:] Gres \(Name=[^ ]*\) \(Type=[^ ]*\) /NodeName='"$name"' \1 \2 /' \
            -e '/^NodeName=/!d' -e 's/ Type=(null)//' \
            -e '/ Count=1 /s/ Count=1 .* File=\([^ ]*\).*/ MultipleFiles=\1/p' \
            -e '/ Count=1 /!s/ \(Count=[0-9]*\) .* \(File=[^ ]*\).*/ \1 \2/p')
    # Keeps nothing that is outdated, or cut short by a full file system.
    if ! { test -n "$records" && printf '%s\n%s\n' "$stamp" "$records" >"$told.$$" && mv -f "$told.$$" "$told"; }; then
        rm -f "$told" "$told.$$"
    fi
}

# What CUDA needs besides the GPUs, NVIDIA's driver loads at its first use, which is too late for the list of a job.
load_late_devices() {
    test ! -d /proc/driver/nvidia || timeout 60 nvidia-modprobe -u -c 0 2>/dev/null || timeout 60 modprobe nvidia-uvm || :
}

# has_filter: succeeds if Slurm confines its jobs to their devices by itself.
has_filter() {
    job-adopt config 2>/dev/null | grep -q '^ConstrainDevices  *yes '
}

# SLURM_JOB_GPUS has indexes, of whole GPUs as well as of those that jobs share (shard, mps). Only if
# AutoDetect has found UUIDs, CUDA_VISIBLE_DEVICES has them instead.
list="--policy closed ${SLURMD_NODENAME:+--node $SLURMD_NODENAME}"
case $DEVICES,${CUDA_VISIBLE_DEVICES-},${SLURM_JOB_GPUS-} in
lists,GPU-*,* | lists,MIG-*,*)
    load_late_devices
    IFS=,
    for gpu in $CUDA_VISIBLE_DEVICES; do
        list="$list --gpu $gpu"
    done
    unset IFS
    ;;
lists,*,) ;;
lists,*)
    load_late_devices
    ask_slurmd || :
    list="$list --gres gpu:$SLURM_JOB_GPUS"
    ;;
slurm,*) ;;
*)
    echo "$0: DEVICES is $DEVICES, not slurm or lists" >&2
    exit 2
    ;;
esac

set -- --via slurm --id "$SLURM_JOB_ID" --uid "$SLURM_JOB_UID"

# Passes on all of Slurm's variables, except values that no login would get: the user chooses the working
# directory, and no name of a directory may fail a prolog.
for name in CUDA_VISIBLE_DEVICES GPU_DEVICE_ORDINAL ROCR_VISIBLE_DEVICES ZE_AFFINITY_MASK \
    SLURM_CLUSTER_NAME SLURM_JOB_ACCOUNT SLURM_JOB_CPUS_PER_NODE SLURM_JOB_NODELIST \
    SLURM_JOB_NTASKS SLURM_JOB_NUM_NODES SLURM_JOB_PARTITION SLURM_JOB_USER SLURM_JOB_WORK_DIR; do
    eval "value=\${$name-}"
    case $value in
    '' | *[!]A-Za-z0-9._+,:@/=[\(\)-]*) ;;
    *) set -- "$@" --env "$name=$value" ;;
    esac
done

for pair in "--started=${SLURM_JOB_START_TIME-}" "--ends=${SLURM_JOB_END_TIME-}"; do
    case ${pair#*=} in
    '' | *[!0-9]* | 0*) ;;
    *) set -- "$@" "$pair" ;;
    esac
done

# The items of the list have no blanks.
if test "$DEVICES" = lists; then
    # shellcheck disable=SC2086
    why=$(job-adopt register "$@" $list 2>&1) && exit 0
    # shellcheck disable=SC2086,SC2116
    why=$(echo $why)
    if ! has_filter; then
        why="no list of devices, and Slurm has no filter without ConstrainDevices=yes in cgroup.conf: $why"
        logger -p authpriv.err -t job-adopt "job $SLURM_JOB_ID: $why" || :
        echo "$0: job $SLURM_JOB_ID: $why" >&2
        exit 1
    fi
    logger -p authpriv.warning -t job-adopt "job $SLURM_JOB_ID: devices left to Slurm: $why" || :
fi
job-adopt register "$@" --policy auto || echo "$0: job $SLURM_JOB_ID has no record" >&2
