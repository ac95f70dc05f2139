#!/bin/sh
# Epilog, run as root on the node when a job has ended.
#
# Withdraws the record first, so that no login can join any more, then ends the logins, and, if that was
# the user's last job here, whatever else they have running. An id that is not known is no failure, so
# this may run twice, or after a prolog that failed half-way. Every job must be registered before its
# processes start, or this may end them. Drop any "killall -u USER" from your epilog: it ends logins to
# the user's other jobs as well.
set -eu

: "${JOB_ID:?}"

exec job-adopt unregister --strays "$JOB_ID"
