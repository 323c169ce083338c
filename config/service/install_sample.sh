#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Installs the sample as /etc/millrace/millrace.yaml unless there is a file.
set -eu
folder=${DESTDIR:-}/etc/millrace
[ ! -e "$folder/millrace.yaml" ] || exit 0
mkdir -p "$folder"
cp "$1" "$folder/millrace.yaml"
chmod 644 "$folder/millrace.yaml"
