#!/bin/sh -p
# Epilog= of slurm.conf(5): slurmd runs it as root on each node of a job after the job has ended there.
#
# Removes the record of the prolog beside it, and leaves a note of the end, valid for ten minutes. Slurm has
# ended the job's logins by then. If that was the user's last job here, ends their other processes: in user
# slices, from cron, in containers. None of these is a reason to drain the node: a job without a record, a
# record that stays, since it admits no login without its job, and a process that stays.

# Drops the environment except the variables named here: a scheduler may pass on variables of the user.
case ${1-} in
--clean) shift ;;
*)
    exec /usr/bin/env -i LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        SLURM_JOB_ID="${SLURM_JOB_ID-}" SLURM_JOB_UID="${SLURM_JOB_UID-}" \
        /bin/sh "$0" --clean "$@"
    ;;
esac
set -eu

: "${SLURM_JOB_ID:?}" "${SLURM_JOB_UID:?}"

job-adopt unregister "$SLURM_JOB_ID" || echo "$0: the record of job $SLURM_JOB_ID stays" >&2
job-adopt strays --kill --uid "$SLURM_JOB_UID" >&2 || echo "$0: uid $SLURM_JOB_UID: not all has ended" >&2
