#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# build.sh FOLDER [deb|rpm]...: makes Debian packages in FOLDER/deb and RPM packages in FOLDER/rpm from the files of this checkout.
# Packages that are older go. lintian must find no error. The RPM is built against the libraries of this machine.
# MILLRACE_BUILT=BUILD: packages of the programs in that build folder, compiled for tests.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
out=$(mkdir -p "$1" && cd "$1" && pwd)
shift
version=$("$top/packaging/version")

# sources FOLDER: a copy of the checkout with its version, as a source archive would have it. Kept, so that a compiler cache works.
sources()
{
    rm -rf "$1"
    mkdir -p "$1"
    if [ -e "$top/.git" ]; then
        git -C "$top" ls-files -z --cached --others --exclude-standard
    else
        (cd "$top" && find . -path ./build -prune -o -type f -print0)
    fi | tar -C "$top" --null --ignore-failed-read -cT - 2>/dev/null | tar -C "$1" -x
    echo "$version" >"$1/VERSION"
}

build_deb()
{
    sources "$out/source"
    cp -a "$out/source/packaging/debian" "$out/source/debian"
    printf 'millrace (%s) unstable; urgency=medium\n\n  * See /usr/share/doc/millrace/CHANGELOG.md.\n\n -- %s  %s\n' "$version" \
        "$(sed -n 's/^Maintainer: //p' "$out/source/debian/control")" \
        "$(date -R -d "@$(git -C "$top" log -1 --format=%ct 2>/dev/null || stat -c %Y "$top/CHANGELOG.md")")" \
        >"$out/source/debian/changelog"
    (cd "$out/source" && dpkg-buildpackage --build=binary --no-sign --no-pre-clean)
    rm -rf "$out/deb"
    mkdir "$out/deb"
    mv "$out"/*.deb "$out"/*.buildinfo "$out"/*.changes "$out/deb"
    # Running as root is not an error of the package.
    lintian --fail-on error --allow-root "$out"/deb/*.changes
}

build_rpm()
{
    sources "$out/source"
    rm -rf "$out/rpm"
    # The machine's libraries are packages of Debian, of which rpm knows nothing: --nodeps.
    (cd "$out/source" && rpmbuild -bb --build-in-place --nodeps --define "_topdir $out/rpmbuild" --define "_rpmdir $out/rpm" \
        --define "millrace_version $version" ${MILLRACE_BUILT:+--define "built $MILLRACE_BUILT"} packaging/millrace.spec)
}

for kind in "${@:-deb}"; do
    "build_$kind"
done
