#!/bin/sh -p
# OAR: registers each job on each of its nodes before it starts there, and withdraws it at its end.
#
# The server sends job_resource_manager.pl to the nodes for each job, as their user oar. So install the packages
# and this script on all nodes first. Then add lines to /etc/oar/job_resource_manager.pl on the server: two above
# "# Create file used in the user jobs",
#
#   my @gpus = map { split(/[,+\s]+/, $_->{gpudevice} // '') } grep { $_->{network_address} eq $ENV{TAKTUK_HOSTNAME} } @{ $Cpuset->{resources} };
#   system_with_log("oardodo /usr/local/libexec/oar.sh init $Cpuset->{job_id} $Cpuset->{user} $Cgroup_job_path @gpus") and exit_myself(5, 'The job is not registered for logins');
#
# and one above "# delete ssh key files":
#
#   system_with_log("oardodo /usr/local/libexec/oar.sh clean $Cpuset->{job_id}");
#
# Run by this project's tests with Debian 13's 2.6.1 (make test-nodes SUITE=oar). If "init" fails, OAR does
# not start the job, suspects the node and gives it no more jobs: oarnodesetting -h NODE -s Alive.
# Its prologue runs on the first node alone, inside of the job: too late, as the epilogue is.

# Drops the environment except the variables named here: a scheduler may pass on variables of the user.
case ${1-} in
--clean) shift ;;
*)
    exec /usr/bin/env -i LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin /bin/sh "$0" --clean "$@"
    ;;
esac
set -eu

# Devices that a job and its logins may open:
#   lists  the standard devices, the job's GPUs, and no other
#   oar    those that OAR's own filter allows ($Enable_devices_cg = "YES"): all but the GPUs that the job does not
#          have. OAR makes none for a job without a GPU: all devices open then, unless require_devices is set
OAR_DEVICES=lists

# Where OAR writes a job's node file and resource file: OAR_RUNTIME_DIRECTORY of oar.conf on the server.
OAR_FOLDER=/var/lib/oar

# Prints the name of a GPU, for a node of NVIDIA's driver: its address, which stands for all that computing takes.
address() {
    for file in /proc/driver/nvidia/gpus/*/information; do
        minor=$(sed -n 's/^Device Minor:[[:blank:]]*//p' "$file" 2>/dev/null) || continue
        test "/dev/nvidia$minor" != "$1" || basename "${file%/*}"
    done
}

# What CUDA needs besides the GPUs, NVIDIA's driver loads at its first use, which is too late for the list of a job.
load_late_devices() {
    test ! -d /proc/driver/nvidia || timeout 60 nvidia-modprobe -u -c 0 2>/dev/null || timeout 60 modprobe nvidia-uvm || :
}

case ${1-} in
init)
    test $# -ge 4 || exit 2
    id=$2 user=$3 cgroup=${4#/sys/fs/cgroup}
    shift 4
    for device; do
        shift
        gpu=$(address "$device")
        case $device in
        /dev/nvidia[0-9]*) test -z "$gpu" || { set -- "$@" --gpu "$gpu"; continue; } ;;
        # AMD's GPUs compute by one node for all of them.
        /dev/dri/*) test ! -e /dev/kfd || set -- "$@" --device /dev/kfd ;;
        esac
        set -- "$@" --device "$device"
    done
    case $OAR_DEVICES in
    lists)
        load_late_devices
        set -- --policy closed "$@"
        ;;
    oar) set -- --policy auto ;;
    *)
        echo "$0: OAR_DEVICES is $OAR_DEVICES, not lists or oar" >&2
        exit 2
        ;;
    esac
    # Logins get these with "env = full" in job_adopt.conf. OAR writes the files as soon as this has run.
    set -- "$@" --scheduler oar --env "OAR_JOBID=$id" --env "OAR_RESOURCE_PROPERTIES_FILE=$OAR_FOLDER/${id}_resources"
    for name in OAR_NODEFILE OAR_NODE_FILE OAR_FILE_NODES OAR_RESOURCE_FILE; do
        set -- "$@" --env "$name=$OAR_FOLDER/$id"
    done
    # OAR has a process of its own user in each job.
    exec job-adopt register --id "$id" --user "$user" --account oar --cgroup "$cgroup" "$@"
    ;;
clean) exec job-adopt unregister --strays "${2:?}" ;;
*) exit 2 ;;
esac
