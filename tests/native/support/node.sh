# Builds one private node. It runs as process 1 of new mount, PID, network and UTS namespaces.
# Arguments: unified|hybrid|v1|namespace, the name of the cgroup that holds everything of this node,
# its host name, and if wanted a folder whose `usr` lies on top of /usr and folders that the node does not show. With
# "namespace" the cgroup is the root of this script's cgroup namespace, and its name is ".". The caller makes the devices,
# which `devices` lists.
# Only cgroups outlive the namespaces. The node lives while the caller keeps standard input open; then
# the caller removes the cgroups. If the caller was killed, this script removes them.
set -eu
umask 022
layout=$1 cgroup=$2 name=$3 installed=${4-}
hidden=("${@:5}")

# Every test pays for each process of this script, and an emulated processor starts few in a second: so one mount(8)
# makes most mounts. It skips those that it finds mounted already, so their source is a name that no other mount has.
mount -t tmpfs -o mode=0755 tmpfs /run
mkdir -m 0700 /run/.overlay
mkdir -p /run/.overlay/{etc,usr,var}/{upper,work} /run/.overlay/installed
[ -z "$installed" ] || mount --bind "$installed" /run/.overlay/installed
layers() { echo "lowerdir=${2-}/$1,upperdir=/run/.overlay/$1/upper,workdir=/run/.overlay/$1/work"; }
cat >/run/.overlay/fstab <<END
test-node /etc overlay $(layers etc) 0 0
test-node /usr overlay $(layers usr "${installed:+/run/.overlay/installed/usr:}") 0 0
test-node /var overlay $(layers var) 0 0
test-node /home tmpfs mode=0755 0 0
test-node /root tmpfs mode=0755 0 0
test-node /mnt tmpfs mode=0755 0 0
test-node /opt tmpfs mode=0755 0 0
test-node /srv tmpfs mode=0755 0 0
test-node /tmp tmpfs mode=1777 0 0
test-node /proc proc defaults 0 0
test-node /dev tmpfs mode=0755 0 0
test-node /dev/pts devpts newinstance,ptmxmode=0666,mode=0620,gid=5,x-mount.mkdir 0 0
END
# What the folders above show no longer, need not be hidden.
for folder in "${hidden[@]}"; do
    case $folder/ in
    /home/* | /root/* | /mnt/* | /opt/* | /srv/* | /tmp/* | /run/*) ;;
    *) [ ! -d "$folder" ] || echo "test-node ${folder// /\\040} tmpfs mode=0755 0 0" >>/run/.overlay/fstab ;;
    esac
done
mount --all --fstab /run/.overlay/fstab
# The account of Flux lingers, as with its system instance.
mkdir -p /var/lib/systemd/linger
: >/var/lib/systemd/linger/flux

case $layout in
unified) top=/sys/fs/cgroup ;;
hybrid)
    mount -t tmpfs -o mode=0755 tmpfs /sys/fs/cgroup
    top=/sys/fs/cgroup/unified
    mkdir "$top"
    ;;
# The machine's own v1 hierarchies, with cgroup v2 beside them.
v1) top=/sys/fs/cgroup/unified ;;
namespace)
    top=/sys/fs/cgroup
    # The kernel refuses to mount cgroup v2 on top of itself.
    mount -t tmpfs -o mode=0755 tmpfs "$top"
    mount -t cgroup2 cgroup2 "$top"
    ;;
esac
# An older mount(8) refuses a second mount at the same place.
[ "$(stat -fc %T "$top")" = cgroup2fs ] || mount -t cgroup2 cgroup2 "$top"
echo 0 > "$top/$cgroup/node/cgroup.procs"

echo "$name" >/proc/sys/kernel/hostname
ip link set lo up
mkdir -m 0755 /run/sshd /run/job-adopt /run/job-adopt/jobs
# A job was registered since the start: the node is no login node.
(umask 077 && : >/run/job-adopt/lock)

# A caller that is gone by now leaves the cgroups to this script.
trap '' PIPE
echo ready || true
read -r _ || true

shopt -s nullglob
# Slurm names its cgroups after the node, so only a name that no machine has identifies them.
case $name in ja-test-*) slurm=/sys/fs/cgroup/*/slurm_$name ;; *) slurm= ;; esac
left() { for path in "$top/$cgroup" $slurm ${slurm:+$slurm-a $slurm-b}; do [ ! -d "$path" ] || echo "$path"; done; }
echo 0 > "$top/cgroup.procs"
for attempt in {1..50}; do
    mapfile -t paths < <(left)
    [ "${#paths[@]}" -gt 0 ] || break
    find "${paths[@]}" -name freezer.state -exec sh -c 'echo THAWED > "$0"' {} \; || true
    kill -KILL -1 || true
    find "${paths[@]}" -depth -type d -exec rmdir {} \; || true
    sleep 0.1
done 2>/dev/null
