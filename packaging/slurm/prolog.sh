#!/bin/sh
# Prolog= of slurm.conf(5): slurmd runs it as root on each node of a job before the job starts there.
#
# Logins need no prolog. This one writes a record that adds to what Slurm's own daemons tell:
#   - the exact list of the devices that logins may open (see DEVICES),
#   - the variables for "env = full" in job_adopt.conf,
#   - the end of the job for the welcome text, where Slurm tells it (24.11 does, 22.05 does not).
# The epilog beside it takes the record away again, and leaves the note by which a user reads that
# the job has ended. Both want PrologFlags=Contain, as the logins do. docs/slurm.md has the rest.
#
# Right for jobs without GPUs, arrays and heterogeneous jobs (each part has an id of its own), a job
# that is requeued under its id, and a prolog that is run twice. Records are in /run: a reboot takes
# them, as it does the jobs.
set -euf

# What logins to a job may open:
#   lists  the standard devices, the job's GPUs, always_allowed of job_adopt.conf, and no other.
#          Needs cgroup v2: on v1 Slurm's logins are refused (JA06) while they have a list.
#          A job whose list cannot be made fails here, and Slurm drains the node.
#   slurm  what Slurm's own filter lets through (ConstrainDevices=yes). The record adds variables
#          and times only, and one that cannot be written fails no job.
DEVICES=lists

LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin
export LC_ALL PATH

: "${SLURM_JOB_ID:?}" "${SLURM_JOB_UID:?}"

# Root is never judged, and has no records.
test "$SLURM_JOB_UID" != 0 || exit 0

set -- --via slurm --id "$SLURM_JOB_ID" --uid "$SLURM_JOB_UID"

# SLURM_JOB_GPUS has indexes of gres.conf, of whole GPUs as well as of those that jobs share (shard,
# mps). Only where AutoDetect has found UUIDs they are in CUDA_VISIBLE_DEVICES instead.
case $DEVICES in
lists)
    set -- "$@" --policy closed
    case ${CUDA_VISIBLE_DEVICES-} in
    GPU-* | MIG-*)
        IFS=,
        for gpu in $CUDA_VISIBLE_DEVICES; do
            set -- "$@" --gpu "$gpu"
        done
        unset IFS
        ;;
    *)
        test -z "${SLURM_JOB_GPUS-}" || set -- "$@" --gres "gpu:$SLURM_JOB_GPUS"
        ;;
    esac
    ;;
slurm)
    set -- "$@" --policy auto
    ;;
*)
    echo "$0: DEVICES is $DEVICES, not lists or slurm" >&2
    exit 2
    ;;
esac

# 22.05 has the list of nodes under its older name only.
SLURM_JOB_NODELIST=${SLURM_JOB_NODELIST-${SLURM_NODELIST-}}

# All of Slurm's own. What a login would not be given anyway is not passed on: the user chooses the
# working directory, and no name of a directory is to fail a prolog.
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

case $DEVICES in
lists) exec job-adopt register "$@" ;;
slurm) job-adopt register "$@" || echo "$0: job $SLURM_JOB_ID has no record" >&2 ;;
esac
