# Connects nodes through a bridge, in a network namespace of its own. Arguments: a process of each node.
# The bridge ends with the namespace, which lasts while the caller keeps standard input open.
set -eu
ip link add switch type bridge
ip link set switch up
number=0
for pid; do
    number=$((number + 1))
    ip link add "port$number" type veth peer name eth0 netns "$pid"
    ip link set "port$number" master switch up
done
echo ready
read -r _ || true
