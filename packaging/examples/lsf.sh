#!/bin/sh -p
# LSF: written from documentation, never run. Try it on one node first.
#
# "lsf.sh begin" is the PRE_EXEC and "lsf.sh end" the POST_EXEC of a queue (lsb.queues), as root:
# LSB_PRE_POST_EXEC_USER=root in lsf.sudoers.
#
# Logins get the variables that LSF gives the job, with "env = full" in job_adopt.conf. If the user changes one, that
# changes the user's own logins alone.
#
# LSF starts both by "/bin/sh -c" with the job's environment. This takes LSB_JOBID and LSB_JOBINDEX from it, which
# LSF sets last, and asks LSF for the owner. It cannot help against LD_PRELOAD and its like: the user's code runs
# in that first shell, as root, before any line here. LSF_LD_SECURITY=Y (lsf.conf) takes them out of interactive
# jobs (-Is, -Ip) only. Submit a batch job with one of them set, and inspect the environment of PRE_EXEC: if it is
# there, do not use this script; compare bjobs with the records from a timer of root instead.
#
# LSF may make the job's cgroup only after PRE_EXEC. So this makes one itself, and moves the process that starts the
# job into it: its parent. The site decides which devices a job may open: by default the standard devices; add
# --gpu for those that LSF assigns.

# The folders of LSF's commands and of lsf.conf. The job's environment names them as well, but the user can change it.
LSF_BINDIR=/usr/share/lsf/bin
LSF_ENVDIR=/etc

# Drops the environment except the variables named here: a scheduler may pass on variables of the user.
case ${1-} in
--clean) shift ;;
*)
    exec /usr/bin/env -i LC_ALL=C PATH="/usr/sbin:/usr/bin:/sbin:/bin:$LSF_BINDIR" \
        LSF_ENVDIR="$LSF_ENVDIR" LSB_JOBID="${LSB_JOBID-}" LSB_JOBINDEX="${LSB_JOBINDEX-}" \
        LSB_DJOB_HOSTFILE="${LSB_DJOB_HOSTFILE-}" LSB_DJOB_NUMPROC="${LSB_DJOB_NUMPROC-}" \
        LSB_HOSTS="${LSB_HOSTS-}" LSB_MCPU_HOSTS="${LSB_MCPU_HOSTS-}" \
        LSB_MAX_NUM_PROCESSORS="${LSB_MAX_NUM_PROCESSORS-}" LSB_QUEUE="${LSB_QUEUE-}" \
        /bin/sh "$0" --clean "$@"
    ;;
esac
set -eu

: "${LSB_JOBID:?}"
case $LSB_JOBID${LSB_JOBINDEX:=0} in *[!0-9]*) exit 1 ;; esac
id=$LSB_JOBID.$LSB_JOBINDEX
top=/sys/fs/cgroup
cgroup=/lsf-jobs/$id

# What logins get, as options of "register", which would refuse what a login could not have. No program here gets it.
mode=${1-}
set -- --env "LSB_JOBID=$LSB_JOBID" --env "LSB_JOBINDEX=$LSB_JOBINDEX"
for name in LSB_DJOB_HOSTFILE LSB_DJOB_NUMPROC LSB_HOSTS LSB_MCPU_HOSTS LSB_MAX_NUM_PROCESSORS LSB_QUEUE; do
    eval "value=\${$name-}"
    unset "$name"
    case $name,$value in
    *, | *,[!A-Za-z0-9/]* | *' ' | *' '[!A-Za-z0-9]* | *[!A-Za-z0-9._+,:@/=\ -]*) continue ;;
    *_NUMPROC,*[!0-9]* | *_PROCESSORS,*[!0-9]*) continue ;;
    *_QUEUE,*[/\ ]* | *FILE,[!/]* | *FILE,*..* | *FILE,*' '*) continue ;;
    esac
    test "${#value}" -gt 900 || set -- "$@" --env "$name=$value"
done

# What CUDA needs besides the GPUs, NVIDIA's driver loads at its first use, which is too late for the list of a job.
load_late_devices() {
    test ! -d /proc/driver/nvidia || timeout 60 nvidia-modprobe -u -c 0 2>/dev/null || timeout 60 modprobe nvidia-uvm || :
}

case $mode in
begin)
    index=${LSB_JOBINDEX#0}
    owner=$(bjobs -u all -noheader -o user "$LSB_JOBID${index:+[$index]}")
    # Moves neither LSF's own daemon, whose end would be that of this job, nor a process of another job.
    comm=$(cat "/proc/$PPID/comm")
    parent=$(sed -n 's/^PPid:[^0-9]*//p' "/proc/$PPID/status")
    test "$comm,$parent" != sbatchd,1
    case $(sed -n 's/^0:://p' "/proc/$PPID/cgroup") in
    "$cgroup") ;;
    "${cgroup%/*}"/*) exit 1 ;;
    esac
    trap 'job-adopt unregister "$id"; rmdir "$top$cgroup"' EXIT
    trap 'exit 1' HUP INT TERM
    mkdir -p "$top$cgroup"
    load_late_devices
    job-adopt register --id "$id" --user "$owner" --cgroup "$cgroup" --policy closed --scheduler lsf "$@"
    echo "$PPID" >"$top$cgroup/cgroup.procs"
    trap - EXIT
    ;;
end)
    # This script, and those of root's processes that run it, leave the cgroup: LSF needs them until it has seen the end.
    pid=$$
    while test "$(sed -n 's/^0:://p' "/proc/$pid/cgroup")" = "$cgroup" && test "$(stat -c %u "/proc/$pid")" = 0; do
        echo "$pid" >"$top/cgroup.procs"
        pid=$(sed -n 's/^PPid:[^0-9]*//p' "/proc/$pid/status")
    done
    status=0
    job-adopt unregister --strays "$id" || status=$?
    # What is left of the job, which no other part of LSF may know of.
    tries=0
    while test -d "$top$cgroup" && ! rmdir "$top$cgroup" 2>/dev/null; do
        test $tries -lt 50 || { echo "$0: job $id: its cgroup stays" >&2; exit 1; }
        tries=$((tries + 1))
        echo 1 >"$top$cgroup/cgroup.kill" || :
        sleep 0.1
    done
    exit $status
    ;;
*) exit 2 ;;
esac
