#!/bin/sh -p
# HTCondor: registers the job of a slot while it runs. On every execute node:
#
#   STARTER = /usr/local/libexec/htcondor.sh
#
# Run by this project's tests with 23.9.6 of Debian 13 and with 25.14.1, on systemd 257 and 262
# (make test-nodes SUITE=htcondor). docs/schedulers.md has all steps.
#
# HTCondor's hooks run as the job's user, who must not say whose job it is, and no hook of root runs at its end.
# So the startd starts this script, as root, in place of its starter. The script has systemd start a watcher and
# then becomes the starter. The watcher waits until the starter has a child in the slot's cgroup, which belongs
# to the job's user by then, compares that user with RemoteOwner of the startd, and registers the job. When the
# job's process or the starter is gone, however it went, systemd withdraws the record, which ends the logins.
#
# The id of a job is JOBID-SLOT, since two schedds can give the same JobId. A node has one startd.

# The real starter, and the parent of all jobs' cgroups, as in HTCondor's configuration.
starter=/usr/sbin/condor_starter
base_cgroup=htcondor
# Options of "job-adopt register". HTCondor hides GPUs of other jobs by a filter beside which no other can be
# attached. With STARTER_HIDE_GPU_DEVICES = False these may be "--policy closed" and devices.
HTCONDOR_DEVICES="--policy auto"
# Seconds until the log names a job that cannot be registered yet.
patience=60

# Drops the environment: a scheduler may pass on variables of the user. Only the starter itself keeps it.
case ${1-} in
--clean) shift ;;
--watch | --over)
    exec /usr/bin/env -i LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin /bin/sh "$0" --clean "$@"
    ;;
*)
    slot='' before=''
    for word; do
        test "$before" != -a || slot=$word
        before=$word
    done
    # Without a slot the startd only asks for the starter's abilities. A starter without a watcher runs its job,
    # too: logins to it are refused.
    test -z "$slot" || /usr/bin/env -i LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        /bin/sh "$0" --clean --begin "$slot" "$$" </dev/null >/dev/null 2>&1
    exec "$starter" "$@"
    ;;
esac
set -eu

top=/sys/fs/cgroup
mode=$1 slot=$2 pid=${3-}
unit=htcondor-job-$slot.service
log() {
    logger -p authpriv.err -t htcondor.sh "slot $slot: $*"
}
case $slot in
'' | *[!A-Za-z0-9_]*)
    log "this is no name of a slot; logins to its jobs are refused"
    exit 1
    ;;
esac

# Withdraws all records of this slot. "unregister" can be repeated until it succeeds.
over() {
    for id in $(job-adopt list --json | tr '{' '\n' | sed -n "s/.*\"id\":\"\([^\"]*-$slot\)\".*/\1/p"); do
        job-adopt unregister "$id" || job-adopt unregister "$id" || log "job $id: not all has ended"
    done
}

# Prints a child of the starter in a cgroup of this slot, that cgroup, and the uid of its owner. The cgroup has
# another form in each version (NAME, NAME.slice/NAME.scope), and belongs to root at first.
find_job() {
    parent=$(sed -n "s|^0::\(.*\)/[^/]*\$|\1/$base_cgroup|p" "/proc/$pid/cgroup")
    for child in $(cat "/proc/$pid/task/"*/children); do
        cgroup=$(sed -n "s|^0::\($parent/[^/]*_$slot@[^/]*\).*|\1|p" "/proc/$child/cgroup")
        uid=$(stat -c %u "$top$cgroup")
        test -z "$cgroup" || test "$uid" = 0 || echo "$child $cgroup $uid"
    done 2>/dev/null | head -n 1
}

# Prints JobId, owner and cores of the job in this slot. The startd itself answers at its own address: no other daemon
# need be up, and no name resolve. Before 25.x it does not name the starter.
ask_startd() {
    address=$(head -n 1 "$(condor_config_val STARTD_ADDRESS_FILE)")
    timeout 20 condor_status -direct "$address" -autoformat StarterPid Name JobId RemoteOwner Cpus |
        sed -n "s/^\($pid\|undefined\) $slot@[^ ]* \([0-9.]*\) \([^ ]*\) \([^ ]*\)\$/\2 \3 \4/p"
} 2>/dev/null

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

# Gives logins what the job $1 with $2 cores has of HTCondor. That has no variable for the id.
list_variables() {
    variable JOB_ADOPT_JOB_ID "$1"
    variable BATCH_SYSTEM HTCondor
    variable _CONDOR_SLOT "$slot"
    case $2 in *[!0-9]*) ;; *) variable OMP_NUM_THREADS "$2" ;; esac
    folder=$(condor_config_val EXECUTE)/dir_$pid
    # 25.14 has folders of its own beside the job's, 23.9 has none.
    test ! -d "$folder/htcondor" || folder=$folder/scratch
    test -d "$folder" || return 0
    variable _CONDOR_SCRATCH_DIR "$folder"
    variable _CONDOR_JOB_AD "$folder/.job.ad"
    variable _CONDOR_MACHINE_AD "$folder/.machine.ad"
}

# await TEXT COMMAND...: repeats COMMAND until it prints words, and stores them in $found. Ends the script with
# the starter.
await() {
    text=$1 began=$(date +%s) named=
    shift
    until found=$("$@") && test -n "$found"; do
        kill -0 "$pid" 2>/dev/null || exit 0
        waited=$(($(date +%s) - began))
        if test "$waited" -ge "$patience" && test -z "$named"; then
            log "$text; until then, logins to its job are refused"
            named=1
        fi
        # The files of a job may take hours to arrive before it runs.
        if test "$waited" -lt 5; then sleep 0.2; else sleep 1; fi
    done
}

case $mode in
--begin)
    # Ends the watcher of an earlier job, if the starter of that job was killed just now.
    timeout 30 systemctl stop "$unit" || :
    systemd-run --quiet --collect --unit="$unit" --property=ExecStopPost="$0 --over $slot" \
        "$0" --watch "$slot" "$pid" || log "systemd-run failed; logins to its job are refused"
    ;;
--watch)
    over
    await "starter $pid has no process in a cgroup of this slot below $base_cgroup (BASE_CGROUP)" find_job
    # shellcheck disable=SC2086
    set -- $found
    child=$1 cgroup=$2 uid=$3
    await "the startd names no job in this slot (condor_status -direct ADDRESS)" ask_startd
    # shellcheck disable=SC2086
    set -- $found
    job=$1 owner=$2
    list_variables "$job" "$3"
    if test "$(id -u "${owner%%@*}")" != "$uid"; then
        log "the cgroup of job $job belongs to uid $uid, the job to $owner; logins to it are refused"
        exit 1
    fi
    load_late_devices
    # Until the starter's child becomes the user's, "register" refuses its cgroup.
    for try in 1 2 3 4 5; do
        # shellcheck disable=SC2086
        job-adopt register --id "$job-$slot" --uid "$uid" --cgroup "$cgroup" --scheduler htcondor $variables \
            $HTCONDOR_DEVICES && break
        test $try != 5 || { log "job $job cannot be registered; logins to it are refused"; exit 1; }
        sleep 0.2
    done
    # The end of this process, or a signal to it, ends the unit.
    (tail --pid="$pid" --sleep-interval=0.5 -f /dev/null; kill "$$") &
    exec tail --pid="$child" --sleep-interval=0.5 -f /dev/null
    ;;
--over) over ;;
*) exit 2 ;;
esac
