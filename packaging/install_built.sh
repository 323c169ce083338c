#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# install_built.sh BUILD ROOT: installs what a build folder of ./dev holds below ROOT/usr instead of its own prefix, with lnetctl.
set -eu
prefix=$(meson introspect --buildoptions "$1" | python3 -c 'import json, sys
print(next(o["value"] for o in json.load(sys.stdin) if o["name"] == "prefix"))')
meson install -C "$1" --no-rebuild --quiet --destdir "$(realpath -m "$2")"
[ "$prefix" = /usr ] || { mkdir -p "$2/usr" && cp -a "$2$prefix/." "$2/usr/" && rm -r "${2:?}$prefix"; }
sed -i "s,$prefix/,/usr/,g" "$2"/usr/lib/systemd/system/*
[ -e "$2/usr/sbin/lnetctl" ] || ln -s ../bin/millrace "$2/usr/sbin/lnetctl"
