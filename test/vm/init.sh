#!/bin/busybox sh
# SPDX-License-Identifier: BSD-3-Clause
# The first program of the guest, in its initramfs: mounts the host's root, with what the guest writes kept in memory,
# and goes on there with guest.sh. vm.py puts busybox, the modules and /settings beside it.
export PATH=/bin

give_up()
{
    echo "init: $*"
    poweroff -f
}

/bin/busybox mkdir -p /bin /dev /proc /host /out /memory /hold/top /hold/build /root
/bin/busybox --install -s /bin
mount -t devtmpfs devices /dev
mount -t proc proc /proc
. /settings

while read -r module; do
    insmod "/modules/$module" || give_up "no module $module"
done </modules/order

options=trans=virtio,version=9p2000.L,msize=262144
mount -t 9p -o "$options" out /out || give_up "no folder for results"
# The host waits for this: with KVM it says that the guest runs at all.
echo "$(uname -r)" >/out/alive

mount -t 9p -o "$options,ro,cache=loose" host /host || give_up "no root of the host"
mount -t tmpfs memory /memory && mkdir /memory/upper /memory/work || give_up "no memory for changes"
mount -t overlay -o lowerdir=/host,upperdir=/memory/upper,workdir=/memory/work overlay /root || give_up "no overlay"

# The guest's own files where programs keep what lasts until a boot. The sources and the build folder may be below one of these.
mount --bind "/root$top" /hold/top || give_up "no $top"
mount --bind "/root$build" /hold/build || give_up "no $build"
for folder in tmp run var/tmp; do
    mount -t tmpfs -o mode=1777 "$folder" "/root/$folder"
done
mkdir -p "/root$top" "/root$build"
mount --move /hold/top "/root$top"
mkdir -p "/root$build"
mount --move /hold/build "/root$build"

mkdir -p /root/run/vm
mount --move /out /root/run/vm
mount --move /dev /root/dev
mount --move /proc /root/proc
mount -t sysfs sysfs /root/sys
exec switch_root /root /bin/bash "$top/test/vm/guest.sh"
give_up "no $top/test/vm/guest.sh"
