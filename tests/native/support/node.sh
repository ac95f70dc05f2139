# Builds one private node, run as process 1 of fresh mount, pid, network and host name spaces.
# Arguments: unified|hybrid, and the name of the cgroup that holds everything of this node.
# Nothing of it outlives the namespaces; the caller keeps standard input open for as long as the
# node is to live.
set -eu
layout=$1 cgroup=$2

mount -t tmpfs -o mode=0755 tmpfs /run
for top in etc usr var; do
    mkdir -p /run/.overlay/$top/upper /run/.overlay/$top/work
    mount -t overlay -o "lowerdir=/$top,upperdir=/run/.overlay/$top/upper,workdir=/run/.overlay/$top/work" overlay /$top
done
chmod 0700 /run/.overlay
for top in home root; do
    mount -t tmpfs -o mode=0755 tmpfs /$top
done
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t proc proc /proc

mount -t tmpfs -o mode=0755 tmpfs /dev
node() { mknod -m "$2" "/dev/$1" "$3" "$4" "$5"; }
node null 666 c 1 3
node zero 666 c 1 5
node full 666 c 1 7
node random 666 c 1 8
node urandom 666 c 1 9
node tty 666 c 5 0
# Stand-ins at the real numbers. Without a driver an open that is allowed answers ENXIO.
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
esac
# Where it is there already, an older mount(8) refuses it a second time.
[ "$(stat -fc %T "$top")" = cgroup2fs ] || mount -t cgroup2 cgroup2 "$top"
echo 0 > "$top/$cgroup/node/cgroup.procs"

hostname gpu017
ip link set lo up
mkdir -m 0755 /run/sshd /run/job-adopt /run/job-adopt/jobs

echo ready
read -r _ || true
