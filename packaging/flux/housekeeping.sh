#!/bin/sh -p
# Housekeeping of Flux's system instance: runs as root on each node of a job after the job has ended.
#
# Removes the job's record, if a prolog wrote one. If that was the user's last job here, ends their other
# processes outside of jobs.
#
# Drains the node if one of these waits in the kernel, so that no signal ends it (status 4), with its function and
# file as the reason. Another failure is no reason. Draining takes "allow-root-owner" of flux-config-access(5), or
# this script fails, and Flux drains the node by itself.

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

# run COMMAND...: drains this node if COMMAND leaves what no signal ends.
run() {
    status=0
    why=$("$@" 2>&1) || status=$?
    test "$status" != 0 || return 0
    echo "$0: job $FLUX_JOB_ID: $why" >&2
    test "$status" = 4 || return 0
    why=$(printf '%s\n' "$why" | grep -F 'cannot be killed' | cut -c 1-400)
    flux resource drain "$(flux getattr rank)" "$why"
}

# What waits for another process of its user ends with that one. So the job's processes are judged after these.
is_over=yes
job-adopt unregister "$FLUX_JOB_ID" >/dev/null 2>&1 || is_over=no
run job-adopt strays --kill --uid "$FLUX_JOB_USERID"
test "$is_over" = yes || run job-adopt unregister --timeout 2 "$FLUX_JOB_ID"
