# SPDX-License-Identifier: BSD-3-Clause
"""Runs the commands of a page of docs as they stand there.

A block that begins with ```sh run=HOST is run, line by line, by a shell in the namespace of that host. A comment at the end of a
line is what the command prints: it is run again until it does, or a deadline passes. Files below /etc, /root and /run are those of
the host's own folder. The programs of the build are on the PATH; other programs are stand-ins, each a function of the test:
async def program(argv) -> (exit status, output).
"""

import asyncio
import json
import os
import re
import shlex
import sys
import tempfile

from .router import find_program

STANDIN = """#!{python} -S
import json, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect({path!r})
s.sendall(json.dumps(sys.argv[1:]).encode() + b"\\n")
answer = json.loads(s.makefile().read())
sys.stdout.write(answer["output"])
sys.exit(answer["status"])
"""
OWN = r"(?<![\w.~-])/(?=(?:etc|root|run)/)"


class Step:
    """One command of the page. section: the heading it stands below; want: what it prints, or None."""

    def __init__(self, host, section, line, text):
        self.host, self.section, self.line = host, section, line
        self.command, _, want = (p.strip() for p in re.sub(r"\s#\s", "\0", text, count=1).partition("\0"))
        self.want = want or None


def steps(path):
    """All commands of a page that are to be run, in its order."""
    out, host, section, begun = [], None, "", ""
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            fence = re.match(r"```(?:sh run=(\w+))?", line)
            if fence:
                host = fence.group(1)
            elif host is None and line.startswith("#"):
                section = line.strip("# \n")
            elif host and line.strip() and not line.startswith("#"):
                begun += line.rstrip("\n")
                if begun.endswith("\\"):
                    begun = begun[:-1]
                    continue
                out.append(Step(host, section, number, begun))
                begun = ""
    return out


class Host:
    """A host of the page: a namespace, a folder for its files, and its programs."""

    def __init__(self, env, ns, programs, socket=None):
        """programs: name -> function; socket: where `millrace` finds millraced."""
        self.env, self.ns, self.programs, self.socket = env, ns, programs, socket
        self.dir = tempfile.TemporaryDirectory(prefix="page-")
        self.root, self.bin = (os.path.join(self.dir.name, n) for n in ("root", "bin"))
        for folder in ("etc/modprobe.d", "etc/millrace", "root", "run"):
            os.makedirs(os.path.join(self.root, folder))
        os.mkdir(self.bin)
        if socket:
            os.mkdir(own := os.path.join(self.root, "run/millrace"))
            os.symlink(socket, os.path.join(own, "millraced.sock"))
            os.symlink(os.path.join(os.path.dirname(socket), "dpdk"), os.path.join(own, "dpdk"))     # where its telemetry is

    def file(self, path, text=None):
        """The host's file of that name; with text it is written."""
        path = self.root + path
        if text is not None:
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
        return path

    def _program(self, name, text):
        path = os.path.join(self.bin, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, 0o755)

    async def start(self):
        for name in ("millraced", "millrace-perf"):
            self._program(name, f'#!/bin/sh\nexec {shlex.quote(find_program(self.env.build, name))} "$@"\n')
        at = f"-s {shlex.quote(self.socket)}" if self.socket else ""
        self._program("millrace", f'#!/bin/sh\nexec {shlex.quote(find_program(self.env.build, "millrace"))} {at} "$@"\n')
        for name, fn in self.programs.items():
            path = os.path.join(self.dir.name, name)

            async def answer(reader, writer, fn=fn):
                argv = json.loads(await reader.readline())
                status, output = await fn(argv)
                writer.write(json.dumps({"status": status, "output": output}).encode())
                writer.close()
            await asyncio.start_unix_server(answer, path)
            self._program(name, STANDIN.format(python=sys.executable, path=path))
        return self

    def begin(self, command, out):
        """The command as a process that writes to `out`."""
        own = {"PATH": f"{self.bin}:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": self.root + "/root"}
        return self.ns.popen(["sh", "-c", re.sub(OWN, self.root + "/", command)], stdout=out, stderr=out,
                             env={**os.environ, **own})

    async def run(self, command):
        """(exit status, what it printed on either stream)."""
        with tempfile.TemporaryFile() as out:
            p = self.begin(command, out)
            while p.poll() is None:
                await asyncio.sleep(0.01)
            out.seek(0)
            return p.returncode, out.read().decode(errors="replace")

    def close(self):
        self.dir.cleanup()


async def run_step(env, hosts, step, timeout=30.0):
    """Runs a command on its host. It succeeds, and prints what the page says, or the test fails. Returns what it printed."""
    said = ""

    async def tried():
        nonlocal said
        status, said = await hosts[step.host].run(step.command)
        env.log(f"{step.host}: {step.command}: {status} {said[-300:]!r}")
        return status == 0 and (step.want is None or step.want in said)
    if step.want is None:
        ok = await tried()
        assert ok, f"line {step.line}: {step.command}: {said}"
    else:
        await env.until_async(tried, f"line {step.line}: {step.command}: {step.want!r}", timeout, 0.2)
    return said
