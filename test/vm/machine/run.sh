#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The service of the guest that runs the tests and turns the machine off.
. /run/vm/settings
for port in /sys/class/virtio-ports/*; do
    [ "$(cat "$port/name")" = output ] && output=/dev/${port##*/}
done
touch /run/vm/ready
python3 -B "/host$top/test/vm/machine/tests.py" "/host$build/machine/apt" >"$output" 2>&1
status=$?
[ "$status" -eq 0 ] || journalctl --no-pager -n 60 -o short-monotonic >"$output" 2>&1
echo "$status" >/run/vm/status.new
mv /run/vm/status.new /run/vm/status
sync
echo o >/proc/sysrq-trigger
