#!/bin/sh
# Housekeeping of Flux's system instance: runs as root on each node of a job after the job has ended.
#
# Takes away the job's record, if a prolog wrote one. If that was the user's last job here, ends what they
# still have running outside of jobs. Neither is a reason to drain the node.
set -eu

LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin
export LC_ALL PATH

: "${FLUX_JOB_ID:?}" "${FLUX_JOB_USERID:?}"

job-adopt unregister "$FLUX_JOB_ID" || echo "$0: the record of job $FLUX_JOB_ID stays" >&2
job-adopt strays --kill --user "$FLUX_JOB_USERID" >&2 || echo "$0: uid $FLUX_JOB_USERID: not all has ended" >&2
