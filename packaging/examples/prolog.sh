#!/bin/sh
# Prolog, run as root on the node before or as a job starts, for any scheduler that can run one.
#
# Set these four from what YOUR SCHEDULER says, never from the job's own environment or from a
# file that the user can write: whoever sets them decides whose job this is and what it may open.
#
#   JOB_ID       the scheduler's id of the job
#   JOB_UID      numeric uid of its owner
#   JOB_CGROUP   the job's cgroup, relative to the cgroup v2 mount; it must exist already
#   JOB_DEVICES  the job's devices, separated by blanks: "/dev/nvidia0 /dev/nvidia1"
set -euf

: "${JOB_ID:?}" "${JOB_UID:?}" "${JOB_CGROUP:?}" "${JOB_DEVICES=}"

# Nodes that every CUDA program opens besides its own GPU; others need others.
common='/dev/nvidiactl /dev/nvidia-uvm /dev/nvidia-uvm-tools'

set -- --id "$JOB_ID" --uid "$JOB_UID" --cgroup "$JOB_CGROUP" --policy closed
if [ -n "$JOB_DEVICES" ]; then
    for device in $JOB_DEVICES $common; do
        set -- "$@" --device "$device rw"
    done
fi

# A failure here must fail the prolog: a job that is not registered gets no logins, and one that
# is registered with the wrong devices is worse than one that is not.
exec job-adopt register "$@"
