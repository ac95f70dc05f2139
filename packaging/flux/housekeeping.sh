#!/bin/sh -p
# Housekeeping of Flux's system instance: runs as root on each node of a job after the job has ended.
#
# Removes the job's record, if a prolog wrote one. If that was the user's last job here, ends their other
# processes outside of jobs. A failure of either is no reason to drain the node.

# Drops the environment except the variables named here: a scheduler may pass on variables of the user.
case ${1-} in
--clean) shift ;;
*)
    exec /usr/bin/env -i LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        FLUX_JOB_ID="${FLUX_JOB_ID-}" FLUX_JOB_USERID="${FLUX_JOB_USERID-}" \
        /bin/sh "$0" --clean "$@"
    ;;
esac
set -eu

: "${FLUX_JOB_ID:?}" "${FLUX_JOB_USERID:?}"

job-adopt unregister "$FLUX_JOB_ID" || echo "$0: the record of job $FLUX_JOB_ID stays" >&2
job-adopt strays --kill --uid "$FLUX_JOB_USERID" >&2 || echo "$0: uid $FLUX_JOB_USERID: not all has ended" >&2
