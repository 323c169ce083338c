#!/bin/busybox sh
# SPDX-License-Identifier: BSD-3-Clause
# The first program of a guest that boots a disk with Debian: mounts the disk, the host's files below /host, and the folder for results,
# adds a unit for the tests, and hands over to systemd. vm.py puts busybox, the modules and /settings beside it.
export PATH=/bin

give_up()
{
    echo "init: $*"
    poweroff -f
}

/bin/busybox mkdir -p /bin /dev /proc /host /out /root
/bin/busybox --install -s /bin
mount -t devtmpfs devices /dev
mount -t proc proc /proc
. /settings

while read -r module; do
    insmod "/modules/$module" || give_up "no module $module"
done </modules/order

options=trans=virtio,version=9p2000.L,msize=262144
mount -t 9p -o "$options" out /out || give_up "no folder for results"
echo "$(uname -r)" >/out/alive
mount -t 9p -o "$options,ro,cache=loose" host /host || give_up "no root of the host"
mount -t ext4 /dev/vda /root || give_up "no disk"

mkdir -p /root/host /root/lib/modules
mount --move /host /root/host
mount --bind "/root/host$kernel/lib/modules" /root/lib/modules
mount -t tmpfs -o mode=755 run /root/run
mkdir -p /root/run/vm /root/run/systemd/system/multi-user.target.wants
mount --move /out /root/run/vm
cat >/root/run/systemd/system/machine-test.service <<UNIT
[Unit]
After=multi-user.target
[Service]
Environment=HOME=/root TERM=dumb SYSTEMD_BUS_TIMEOUT=100s
ExecStart=/bin/sh /host$top/test/vm/machine/run.sh
UNIT
# What Debian does at its start that is of no use here, and takes an emulated machine half a minute.
for unit in getty.target getty-static.service serial-getty@ttyS0.service e2scrub_reap.service systemd-udev-trigger.service; do
    ln -s /dev/null "/root/run/systemd/system/$unit"
done
ln -s ../machine-test.service /root/run/systemd/system/multi-user.target.wants/machine-test.service
mount --move /dev /root/dev
mount --move /proc /root/proc
mount -t sysfs sysfs /root/sys
exec switch_root /root /sbin/init
give_up "no systemd"
