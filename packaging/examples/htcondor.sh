#!/bin/sh -p
# HTCondor: registers the jobs that run here, and withdraws those that are over. HTCondor's own hooks run as
# the job's user, who must not say what a job is; so root compares the startd's jobs with the records,
# for instance every few seconds from the startd itself:
#
#   STARTD_CRON_JOBLIST = $(STARTD_CRON_JOBLIST) JOBADOPT
#   STARTD_CRON_JOBADOPT_EXECUTABLE = /usr/local/libexec/htcondor.sh
#   STARTD_CRON_JOBADOPT_PERIOD = 5s
#
# or from a timer of systemd, as root (cron jobs of the startd run as the account condor unless told otherwise).
#
# NOT RUN BY THIS PROJECT: written from HTCondor's documentation. Try it on one node first. Look once at
# /proc/PID/cgroup of a job's process, and set "cgroup" to where your version puts jobs.
# The site decides which devices a job may open: by default the standard devices; add --gpu for AssignedGPUs
# of its slot.

# Drops the environment except the variables named here: a scheduler may pass on variables of the user.
case ${1-} in
--clean) shift ;;
*)
    exec /usr/bin/env -i LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin /bin/sh "$0" --clean "$@"
    ;;
esac
set -eu

slots=$(condor_status -direct "$(hostname -f)" -autoformat Name JobId RemoteOwner)
# A startd always has a slot. condor_status may print nothing and report success, which does not mean that jobs
# have ended.
echo "$slots" | grep -q '^[^ ]*@[^ ]* [^ ]* [^ ]*$' || {
    echo "$0: the startd names no slot: no job is registered or withdrawn" >&2
    exit 1
}
running=$(echo "$slots" | grep -v ' undefined' || true)
known=$(job-adopt list --json | tr '{' '\n' | sed -n 's/.*"id":"\(condor-[^"]*\)".*/\1/p')

echo "$running" | while read -r slot job owner; do
    [ -n "$slot" ] || continue
    id=condor-$job
    case " $(echo $known) " in *" $id "*) continue ;; esac
    cgroup=$(cd /sys/fs/cgroup && ls -d system.slice/condor.service/htcondor/*"${slot%%@*}"@* 2>/dev/null | head -n 1)
    [ -z "$cgroup" ] || job-adopt register --id "$id" --user "${owner%%@*}" --cgroup "/$cgroup" --policy closed
done
for id in $known; do
    echo "$running" | grep -qF " ${id#condor-} " || job-adopt unregister --strays "$id"
done
