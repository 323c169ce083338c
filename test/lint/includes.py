#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks which part of the program includes which: the libraries, and the rooms of lib/lnet.

Usage: test/lint/includes.py

Prints both graphs. Fails if there is a cycle, if a part
includes another room's *_internal.h, or if an LND includes another LND.

A library is a folder below lib/, or config, control, rpc or app. A room is a folder below lib/lnet,
or one of its files with the header of the same name (rx, tx, lnd). lnet.h, lnd.h and event.h
with their tables are the interface of the library to its users; together they are the part "interface".
"""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
LNDS = ('lnd_eth', 'lnd_verbs', 'lnd_cxi')
INTERFACE = ('lib/lnet/lnet.h', 'lib/lnet/lnd.h', 'lib/lnet/event.h', 'lib/lnet/stats.def',
             'lib/lnet/whys.def')


def library(path):
    parts = path.split('/')
    if parts[0] == 'lib' and len(parts) > 2:
        return parts[1]
    return parts[0] if parts[0] in ('config', 'control', 'rpc', 'app') else None


def room(path):
    if path in INTERFACE:
        return 'interface'
    parts = path.split('/')
    if parts[:2] != ['lib', 'lnet']:
        return None
    return parts[2] + '/' if len(parts) > 3 else os.path.splitext(parts[2])[0]


def sources():
    for top in ('lib', 'config', 'control', 'rpc', 'app'):
        for folder, _, files in os.walk(os.path.join(ROOT, top)):
            for name in sorted(files):
                if name.endswith(('.c', '.h')):
                    yield os.path.relpath(os.path.join(folder, name), ROOT)


def graph(part_of, includes):
    """Returns {part: {part that it includes: an example}}."""
    edges = {}
    for path, used in includes.items():
        part = part_of(path)
        if not part:
            continue
        edges.setdefault(part, {})
        for other_path in used:
            other = part_of(other_path)
            if other and other != part:
                edges[part].setdefault(other, f'{path} includes {other_path}')
    return edges


def ordered(edges):
    """Returns (parts, each after those that it includes; the parts of cycles)."""
    done, left = [], dict(edges)
    while left:
        ready = sorted(p for p in left if all(o in done or o not in edges for o in left[p]))
        if not ready:
            break
        done += ready
        for part in ready:
            del left[part]
    while True:  # a part that no other one on the cycle includes is only above it
        above = [p for p in left if not any(p in used for used in left.values())]
        if not above:
            return done, sorted(left)
        for part in above:
            del left[part]


def show(title, edges, faults):
    done, cycle = ordered(edges)
    print(f'{title}, each after those that it includes:')
    for part in done + cycle:
        print(f'  {part:12} {" ".join(sorted(edges[part])) or "-"}')
    for part in cycle:
        for other, example in sorted(edges[part].items()):
            if other in cycle:
                faults.append(f'{title}: cycle: {part} -> {other} ({example})')


def main():
    faults, includes = [], {}
    for path in sources():
        with open(os.path.join(ROOT, path), encoding='utf8') as f:
            includes[path] = INCLUDE.findall(f.read())
    for path, used in includes.items():
        for other in used:
            a, b = library(path), library(other)
            if a in LNDS and b in LNDS and a != b:
                faults.append(f'{path} includes {other}, of another LND')
            if other.endswith('_internal.h') and room(other) and room(path) != room(other):
                faults.append(f'{path} includes {other}, which is private')
    show('libraries', graph(library, includes), faults)
    show('rooms of lib/lnet', graph(room, includes), faults)
    for fault in faults:
        print(fault)
    print(f'{len(faults)} faults in the includes between libraries and between rooms of lib/lnet')
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
