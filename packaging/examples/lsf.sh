#!/bin/sh
# LSF: "lsf.sh begin" as PRE_EXEC and "lsf.sh end" as POST_EXEC of a queue (lsb.queues), as root:
# LSB_PRE_POST_EXEC_USER=root in lsf.sudoers.
#
# NOT RUN BY THIS PROJECT: written from LSF's documentation. Try it on one node first.
#
# The environment is the job's own, so only LSB_JOBID and LSB_JOBINDEX are taken from it, which LSF sets last,
# and the owner is asked of LSF. LSF may make the job's cgroup only
# after PRE_EXEC. So this makes one itself, and moves the process that starts the job into it: its parent.
# What the job may open is the site's: by default the standard devices; add --gpu for those that LSF assigns.
set -eu

: "${LSB_JOBID:?}"
case $LSB_JOBID${LSB_JOBINDEX:=0} in *[!0-9]*) exit 1 ;; esac
id=$LSB_JOBID.$LSB_JOBINDEX
top=/sys/fs/cgroup
cgroup=/lsf-jobs/$id

case ${1:-} in
begin)
    index=${LSB_JOBINDEX#0}
    owner=$(bjobs -u all -noheader -o user "$LSB_JOBID${index:+[$index]}")
    mkdir -p "$top$cgroup"
    job-adopt register --id "$id" --user "$owner" --cgroup "$cgroup" --policy closed
    echo "$PPID" >"$top$cgroup/cgroup.procs"
    ;;
end)
    # Out of it, so that it can go.
    echo "$$" >"$top/cgroup.procs"
    job-adopt unregister --strays "$id"
    rmdir "$top$cgroup" || true
    ;;
*) exit 2 ;;
esac
