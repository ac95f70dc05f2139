#!/bin/sh -p
# Epilog, run as root on the node when a job has ended.
#
# Withdraws the record first, so that no login can join any more, then ends the logins, and, if that was
# the user's last job here, whatever else they have running. An id that is not known is no failure, so
# this may run twice, or after a prolog that failed half-way. Every job must be registered before its
# processes start, or this may end them. Drop any "killall -u USER" from your epilog: it ends logins to
# the user's other jobs as well.
#
# With status 4 a process waits in the kernel, so that no signal ends it, and its memory and devices stay in use.
# The message has its function and file: have your scheduler drain the node with it, and with no other status, which
# users can cause. Without end_grace of job_adopt.conf(5) and ten seconds more, the scheduler's own limit for an epilog
# may end this one before.

# Drops the environment except the variables named here: a scheduler may pass on variables of the user.
case ${1-} in
--clean) shift ;;
*)
    exec /usr/bin/env -i LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        JOB_ID="${JOB_ID-}" \
        /bin/sh "$0" --clean "$@"
    ;;
esac
set -eu

: "${JOB_ID:?}"

exec job-adopt unregister --strays "$JOB_ID"
