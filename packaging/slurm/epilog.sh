#!/bin/sh -p
# Epilog= of slurm.conf(5): slurmd runs it as root on each node of a job after the job has ended there.
#
# Takes away the record that the prolog beside it wrote and leaves a note of the end, valid for ten
# minutes. Slurm has ended the job's logins by then. If that was the user's last job here, ends what else
# they have running: in user slices, from cron, in containers. A job without a record is no failure, and
# neither is a record that stays, since without its job it admits nobody, nor a process that stays: none is
# a reason to drain the node.

# Drops the environment but for what is named here: a scheduler may hand on what the user has set.
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
job-adopt strays --kill --user "$SLURM_JOB_UID" >&2 || echo "$0: uid $SLURM_JOB_UID: not all has ended" >&2
