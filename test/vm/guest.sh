#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The guest from where it has the host's root (init.sh): sets itself up, runs the command that vm.py left in /run/vm, leaves
# its exit status there and turns the machine off. What is printed before the command goes to the guest's console.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb

finish()
{
    printf '%s\n' "$1" >/run/vm/status.new
    mv /run/vm/status.new /run/vm/status
    sync
    echo o >/proc/sysrq-trigger
    sleep 60
}

give_up()
{
    echo "guest: $*"
    finish 125
}

# From where the kernel's package was unpacked; the host's own kernel is another.
. /run/vm/settings
mkdir -p /lib/modules /dev/pts /dev/shm /dev/hugepages
mount --bind "$kernel/lib/modules" /lib/modules || give_up "no modules"
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t hugetlbfs hugepages /dev/hugepages
mount -t cgroup2 cgroup /sys/fs/cgroup
ln -sfn /proc/self/fd /dev/fd
hostname millrace-vm
ip link set lo up
ulimit -l unlimited
ulimit -c 0

for port in /sys/class/virtio-ports/*; do
    [ "$(cat "$port/name")" = output ] && output=/dev/${port##*/}
done
[ -c "${output:-}" ] || give_up "no port for the output"
cd "$top" || give_up "no $top"
bash test/vm/rxe.sh "$rxe" || give_up "no RDMA device"

for module in ${cards:+virtio_net vfio_pci vfio_iommu_type1 bridge veth}; do
    modprobe "$module" || give_up "no module $module"
done

touch /run/vm/ready
setsid -w bash /run/vm/command </dev/null >"$output" 2>&1
finish $?
