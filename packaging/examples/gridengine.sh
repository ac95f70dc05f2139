#!/bin/sh -p
# Grid Engine: prolog and epilog as root, of the whole cluster ("qconf -mconf") or of one queue ("qconf -mq"):
#
#   prolog   root@/usr/bin/env -i /usr/local/libexec/gridengine.sh begin $job_id $ja_task_id $job_owner
#   epilog   root@/usr/bin/env -i /usr/local/libexec/gridengine.sh end $job_id $ja_task_id $job_owner
#
# Keep "env -i": both run as root with the environment that the user gave the job. This script drops it too, but
# only after its shell has started.
#
# Run by this project's tests with Debian 12's 8.1.9 and systemd (make test-nodes SUITE=gridengine).
#
# Grid Engine makes no cgroup on v2. So the prolog makes one and moves the job's shepherd, its parent, into
# it: what the shepherd starts is born there. The epilog moves the shepherd out and ends what is left, logins
# too. A unit of systemd does the same if the shepherd is killed, since no epilog runs then.
#
# If the prolog fails, Grid Engine starts the job elsewhere and takes no more jobs into this queue until
# "qmod -c". The same holds for an epilog that leaves a process which no signal ends, as it waits in the kernel: its
# function and file are in the log of the node (journalctl -t gridengine.sh). execd_params SCRIPT_TIMEOUT (120 s) is
# Grid Engine's limit for this epilog, beside end_grace of job_adopt.conf(5). Of a parallel job only the first node runs a prolog: on the others, logins are refused.
# 8.1.9 itself ends any prolog of qrsh and qlogin with SIGTERM while they have a terminal; "qrsh -pty n" works.

# Drops the environment except the variables named here: a scheduler may pass on variables of the user.
case ${1-} in
--clean) shift ;;
*)
    exec /usr/bin/env -i LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin /bin/sh "$0" --clean "$@"
    ;;
esac
set -euf

# Devices that a job may open, as options of "job-adopt register": the standard devices, unless your site adds
# to them, for instance --gpu for the GPUs that it gives to job $1, task $2 of user $3.
devices() {
    echo --policy closed
}

# What CUDA needs besides the GPUs, NVIDIA's driver loads at its first use, which is too late for the list of a job.
load_late_devices() {
    test ! -d /proc/driver/nvidia || timeout 60 nvidia-modprobe -u -c 0 2>/dev/null || timeout 60 modprobe nvidia-uvm || :
}

# variable NAME VALUE: gives logins a variable ("env = full" in job_adopt.conf), unless they could not have that value.
variables=
variable() {
    case $2 in
    '' | [!A-Za-z0-9/]* | *[!A-Za-z0-9._+,:@/=-]*) ;;
    *) variables="$variables --env $1=$2" ;;
    esac
}

# Gives logins to job $1, task $2 what Grid Engine has written into the folder of the job, in which the shepherd is, and
# what the shepherd itself got of the execd. SGE_ROOT is for the site's own profile to set.
list_variables() {
    folder=$(readlink "/proc/$PPID/cwd")
    hosts=$(value pe_hostfile)
    variable JOB_ID "$1"
    test "$id" = "$1" || variable SGE_TASK_ID "$2"
    variable QUEUE "$(value queue)"
    if test -f "$hosts"; then
        variable PE "$(value pe)"
        variable PE_HOSTFILE "$hosts"
        variable NSLOTS "$(value pe_slots)"
        variable NHOSTS "$(grep -c . "$hosts")"
    else
        variable NSLOTS 1
        variable NHOSTS 1
    fi
    variable TMPDIR "$(value tmpdir)"
    variable SGE_JOB_SPOOL_DIR "$folder"
    variable SGE_CELL "$(execd_value SGE_CELL)"
    variable ARC "$(execd_value SGE_ARCH)"
}
value() {
    sed -n "s/^$1=//p" "$folder/config" 2>/dev/null | tail -n 1
}
execd_value() {
    tr '\0' '\n' <"/proc/$PPID/environ" | sed -n "s/^$1=//p" | tail -n 1
}

top=/sys/fs/cgroup

# Writes the note of the end, ends the logins, then the rest of the job.
over() {
    status=0
    why=$(job-adopt unregister --strays "$1" 2>&1) || status=$?
    test "$status" = 0 || logger -s -p daemon.err -t gridengine.sh "job $1: not all has ended: $why"
    # The epilog reads the reason, and not the exit status of a unit that systemd has forgotten by then.
    test "$status" != 4 || echo "job $1: $why" >"/run/gridengine-left-$1"
    tries=0
    while test -d "$top/gridengine/$1" && ! rmdir "$top/gridengine/$1" 2>/dev/null; do
        test $tries -lt 50 || { echo "$0: job $1: its cgroup stays" >&2; return; }
        tries=$((tries + 1))
        echo 1 >"$top/gridengine/$1/cgroup.kill"
        sleep 0.1
    done
}

if test "${1:-}" = over; then
    over "${2:?}"
    exit
fi

test $# = 4 || exit 2
id=$2
case $3 in 0 | undefined) ;; *) id=$2.$3 ;; esac
cgroup=/gridengine/$id
unit=gridengine-job-$id.service

# Root has no records.
test "$4" != root || exit 0
grep -q shepherd "/proc/$PPID/comm"

case $1 in
begin)
    # The unit of an earlier run of the job, whose shepherd was killed just now.
    systemctl stop "$unit" 2>/dev/null || :
    load_late_devices
    # A command that fails among the arguments of "register" would go unnoticed.
    list=$(devices "$2" "$3" "$4")
    list_variables "$2" "$3"
    mkdir -p "$top$cgroup"
    # Before the record, so that the shepherd's end withdraws it wherever the prolog is killed.
    systemd-run --quiet --collect --unit="$unit" --property=ExecStopPost="$0 over $id" \
        tail --pid="$PPID" -f /dev/null
    # shellcheck disable=SC2086
    job-adopt register --id "$id" --user "$4" --cgroup "$cgroup" --scheduler gridengine $variables $list
    echo "$PPID" >"$top$cgroup/cgroup.procs"
    ;;
end)
    # To the cgroup of the shepherd's own parent, which is the execd unless that was restarted.
    parent=$(sed -n 's/^PPid:[^0-9]*//p' "/proc/$PPID/status")
    out=$(sed -n 's/^0:://p' "/proc/$parent/cgroup")
    for pid in "$PPID" "$$"; do
        echo "$pid" >"$top${out%/}/cgroup.procs"
    done
    # A prolog that failed early has left no unit.
    systemctl stop "$unit" 2>/dev/null || over "$id"
    left=/run/gridengine-left-$id
    test -e "$left" || exit 0
    echo "$0: no more jobs here, $(cat "$left")" >&2
    rm -f "$left"
    exit 1
    ;;
*) exit 2 ;;
esac
