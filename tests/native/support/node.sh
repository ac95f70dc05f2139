# Builds one private node. It runs as process 1 of new mount, PID, network and UTS namespaces.
# Arguments: unified|hybrid|v1|namespace, the name of the cgroup that holds everything of this node,
# and its host name. With "namespace" the cgroup is the root of this script's cgroup namespace, and
# its name is ".".
# Only cgroups outlive the namespaces. The node lives while the caller keeps standard input open; then
# the caller removes the cgroups. If the caller was killed, this script removes them.
set -eu
layout=$1 cgroup=$2 name=$3

mount -t tmpfs -o mode=0755 tmpfs /run
for top in etc usr var; do
    mkdir -p /run/.overlay/$top/upper /run/.overlay/$top/work
    mount -t overlay -o "lowerdir=/$top,upperdir=/run/.overlay/$top/upper,workdir=/run/.overlay/$top/work" overlay /$top
done
chmod 0700 /run/.overlay
for top in home root mnt srv; do
    mount -t tmpfs -o mode=0755 tmpfs /$top
done
mount -t tmpfs -o mode=1777 tmpfs /tmp
# The account of Flux lingers, as with its system instance.
mkdir -p /var/lib/systemd/linger
: >/var/lib/systemd/linger/flux
mount -t proc proc /proc

mount -t tmpfs -o mode=0755 tmpfs /dev
node() { mknod -m "$2" "/dev/$1" "$3" "$4" "$5"; }
node null 666 c 1 3
node zero 666 c 1 5
node full 666 c 1 7
node random 666 c 1 8
node urandom 666 c 1 9
node tty 666 c 5 0
# Stand-ins with the real numbers. Without a driver an allowed open fails with ENXIO.
for minor in 0 1 2 3; do node "nvidia$minor" 666 c 195 "$minor"; done
node nvidiactl 666 c 195 255
mkdir /dev/dri /dev/pts /dev/shm
node dri/renderD128 666 c 226 128
node loop0 666 b 7 0
node fuse 666 c 10 229
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts /dev/pts
ln -s pts/ptmx /dev/ptmx
ln -s /proc/self/fd /dev/fd
ln -s /proc/self/fd/0 /dev/stdin
ln -s /proc/self/fd/1 /dev/stdout
ln -s /proc/self/fd/2 /dev/stderr

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

hostname "$name"
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
