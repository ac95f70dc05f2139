#!/bin/sh -p
# Epilog= of slurm.conf(5): slurmd runs it as root on each node of a job after the job has ended there.
#
# Removes the record of the prolog beside it, and leaves a note of the end, valid for ten minutes. Slurm has
# ended the job's logins by then. If that was the user's last job here, ends their other processes: in user
# slices, from cron, in containers.
#
# Drains the node if one of these waits in the kernel, so that no signal ends it (status 4), with its function and
# file as the reason: it may hold memory and devices of the job. None of these is a reason: a job without a record,
# a record that stays, since it admits no login without its job, and another process that stays.

# Drops the environment except the variables named here: a scheduler may pass on variables of the user.
# Add SLURM_CONF=FILE if slurmd has an option -f.
case ${1-} in
--clean) shift ;;
*)
    exec /usr/bin/env -i LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        SLURM_JOB_ID="${SLURM_JOB_ID-}" SLURM_JOB_UID="${SLURM_JOB_UID-}" \
        SLURMD_NODENAME="${SLURMD_NODENAME-}" \
        /bin/sh "$0" --clean "$@"
    ;;
esac
set -eu

: "${SLURM_JOB_ID:?}" "${SLURM_JOB_UID:?}"

# slurmd, which runs this, may be in another folder, and scontrol too.
slurmd=$(readlink "/proc/$PPID/exe" || :)
case $slurmd in */sbin/*) PATH=$PATH:${slurmd%/*}:${slurmd%/sbin/*}/bin ;; esac

# run COMMAND...: drains the node if COMMAND leaves what no signal ends. If that fails, so does this epilog, and
# Slurm drains the node by itself ("Epilog error").
run() {
    status=0
    why=$("$@" 2>&1) || status=$?
    test "$status" != 0 || return 0
    echo "$0: job $SLURM_JOB_ID: $why" >&2
    test "$status" = 4 || return 0
    why=$(printf '%s\n' "$why" | grep -F 'cannot be killed' | cut -c 1-400)
    scontrol update NodeName="$SLURMD_NODENAME" State=DRAIN Reason="$why"
}

# What waits for another process of its user ends with that one. So the job's processes are judged after these.
is_over=yes
job-adopt unregister "$SLURM_JOB_ID" >/dev/null 2>&1 || is_over=no
run job-adopt strays --kill --uid "$SLURM_JOB_UID"
test "$is_over" = yes || run job-adopt unregister --timeout 2 "$SLURM_JOB_ID"
