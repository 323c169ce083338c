#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Each block of commands in README.md and docs/*.md is run by a test, or is listed here with the reason why no test runs it.

A block is fenced, or indented behind an empty line. Shell blocks are fenced as ```sh. One that a test runs begins with
```sh run=HOST, and RUN names the test by page and section; that file must name the page, the section and the host. Fences of other
words, figures and configurations are no commands: test/unit/test_docs.py looks at configurations.
"""
import glob
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KEYS = "net|route|routing|buffers|global|peer|udsp|numa|ip2nets|max_interfaces|discovery|millrace"   # as test_docs.py has them

# (page, section, or None for all of the page): the test.
RUN = {
    ("README.md", "Install"): "test/vm/machine/tests.py",
    ("cli.md", "Packets"): "test/system/tests/test_pages.py",
    ("cli.md", "Faults on purpose"): "test/system/tests/test_pages.py",
    ("install.md", "Debian 12"): "test/vm/machine/tests.py",
    ("install.md", "Other systems"): "test/unit/test_install.py",
    ("install.md", "First start"): "test/vm/machine/tests.py",
    ("install.md", "Hugepages and devices"): "test/vm/machine/tests.py",
    ("install.md", "Upgrade and removal"): "test/vm/machine/tests.py",
    ("jsonrpc.md", "JSON-RPC"): "test/system/tests/test_pages.py",
    ("monitoring.md", "Set it up"): "test/vm/machine/tests.py",
    ("nic-in-ten-minutes.md", None): "test/system/tests/test_nic.py",
    ("operations.md", "The form of a line"): "test/vm/machine/tests.py",
    ("operations.md", "Telemetry"): "test/system/tests/test_pages.py",
    ("operations.md", "RDMA"): "test/vm/events.py",
    ("operations.md", "A host without the device"): "test/vm/events.py",
    ("operations.md", "Looking at it"): "test/vm/events.py",
    ("operations.md", "Several NIs on one subnet"): "test/system/tests/test_pages.py",
    ("operations.md", "Packets in Wireshark"): "test/system/tests/test_pages.py",
    ("operations.md", "Drain"): "test/system/tests/test_drain.py",
    ("operations.md", "Privileges"): "test/vm/machine/tests.py",
    ("performance.md", "millrace-perf: the end node"): "test/system/tests/test_pages.py",
    ("replace-a-kernel-router.md", None): "test/system/tests/test_replace.py",
}

# (page, first line of the block): why no test runs it.
NOT_RUN = {
    ("README.md", "./dev demo     # a router and two end nodes in three network namespaces: see it forward, and what"):
        "the tests themselves; test/system/tests/test_demo.py runs what the first of the two runs",
    ("install.md", "./dev package rpm"): "test/unit/test_rpm.py calls packaging/build.sh, which this command calls, for the built programs",
    ("install.md", "rpmbuild -bb --build-in-place packaging/millrace.spec"):
        "wants the build dependencies as RPM packages, which Debian does not have; packaging/build.sh adds --nodeps, for test_rpm.py too",
}

# Pages whose commands are not steps to follow.
OTHER_PAGES = {
    "performance-history.md": "how figures of the past were measured: runs of minutes that want the machine, some by programs that are gone",
}

# (page, first line of an indented block): what it shows. None of these is a command.
SHOWN = {
    ("cli.md", "millraced [-c FILE] [--check] [--wait-for-rpc]"): "a synopsis",
    ("cli.md", "millrace [-s SOCKET] [--json] COMMAND [OPTION...]"): "a synopsis",
    ("cli.md", "millrace status [--timeout SECONDS] [--json]"): "a synopsis",
    ("cli.md", "degraded: millraced 0.1.0, pid 4711, up 02:10:44"): "output",
    ("cli.md", "millrace doctor [-c FILE] [--all] [--json]"): "a synopsis",
    ("cli.md", "error    pci 0000:3b:00.0: is bound to i40e; its driver of DPDK works with: * igb_uio | uio_pci_generic | vfio-pci"): "output",
    ("cli.md", "millrace top [--interval SECONDS] [--sort bytes|queued|waiting] [--batch N]"): "a synopsis",
    ("cli.md", "millrace events [--type TYPE]... [--nid NID]... [--count N] [--recent] [--follow]"): "a synopsis",
    ("jsonrpc.md", '{"jsonrpc":"2.0","id":1,"method":"peer_get","params":{"limit":100}}'): "requests and answers",
    ("operations.md", '2026-11-21T08:36:58.441Z info config event=change method=log_set uid=0 client_pid=27098 '
                      r'params="{\"level\":\"debug\"}"'): "a line of the log",
    ("operations.md", "/var/log/millrace/millraced.log {"): "a file for logrotate; test/unit/test_log.c renames and removes the log",
    ("operations.md", "2 s: 14 messages forwarded in the last second, 3 in flight; 118 of 120 peers told, the others know in 68 s"): "output",
    ("operations.md", "DIRECTORY/dpdk/millraced.PID/dpdk_telemetry.v2"): "a path",
    ("operations.md", "tunables: {peer_credits: 32, credits: 1024}"): "a part of a configuration",
}


class Block:
    def __init__(self, page, line, section, fence):
        self.page, self.line, self.section, self.fence, self.lines = page, line, section, fence, []

    @property
    def first(self):
        return self.lines[0].strip() if self.lines else ""

    @property
    def host(self):
        found = re.match(r"sh run=(\w+)$", self.fence or "")
        return found and found[1]


def blocks(path):
    """All blocks of a page. An indented one ends with a line that is not indented and not empty."""
    page, section, block, before = os.path.basename(path), "", None, ""
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            if block and block.fence is not None:
                if line.startswith("```"):
                    yield block
                    block = None
                else:
                    block.lines.append(line)
            elif line.startswith("```"):
                if block:
                    yield block
                block = Block(page, number, section, line[3:].strip())
            elif re.match(r" {4,}\S", line) and (block or not before.strip()):
                block = block or Block(page, number, section, None)
                block.lines.append(line)
            elif line.strip():
                if block:
                    yield block
                block = None
                if line.startswith("#"):
                    section = line.strip("# \n")
            before = line
    if block:
        yield block


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as f:
        return f.read()


def fault(block, used):
    """What is wrong with a block, or None."""
    where = next((key for key in ((block.page, block.section), (block.page, None)) if key in RUN), None)
    name = (block.page, block.first)
    if block.fence is None and re.match(rf"({KEYS}):", block.first):
        return None
    if block.host or (block.fence is None and where and name not in NOT_RUN and name not in SHOWN):
        if not where:
            return "RUN names no test for it"
        used.add(where)
        text = read(RUN[where])
        for word in (block.page, where[1], block.host):
            if word and not re.search(rf"['\"/]{re.escape(word)}[\"']", text):
                return f"{RUN[where]} does not name {word}"
        return None
    for table in (NOT_RUN, SHOWN) if block.fence is None else (NOT_RUN,):
        if name in table:
            used.add(name)
            return None
    if block.fence is None:
        return "is it run by a test (```sh run=HOST), no command (SHOWN), or is there a reason why no test runs it (NOT_RUN)?"
    if re.match("sh|bash|shell|console", block.fence):
        return "no test runs it, and NOT_RUN has no reason"
    return None


def main():
    faults, seen, used = [], 0, set()
    for path in [os.path.join(ROOT, "README.md"), *sorted(glob.glob(os.path.join(ROOT, "docs/*.md")))]:
        if os.path.basename(path) in OTHER_PAGES:
            used.add(os.path.basename(path))
            continue
        for block in blocks(path):
            seen += 1
            why = fault(block, used)
            if why:
                faults.append(f"{os.path.relpath(path, ROOT)}:{block.line}: {block.first}: {why}")
    for key in [*RUN, *NOT_RUN, *SHOWN, *OTHER_PAGES]:
        if key not in used:
            faults.append(f"test/lint/pages.py: {key} is in no page")
    print("\n".join(faults))
    print(f"{len(faults)} faults in the commands of pages ({seen} blocks, {len(NOT_RUN)} not run)")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
