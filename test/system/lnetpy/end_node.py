# SPDX-License-Identifier: BSD-3-Clause
"""millrace-perf as a process of a test."""

import json
import os
import signal
import subprocess

from . import nid as N
from .env import Failed
from .router import find_program


class Perf:
    """One millrace-perf process, or another program that makes load, in a namespace."""

    def __init__(self, env, name, *args, program="millrace-perf", run_by=()):
        self.env, self.name = env, name
        argv = [*run_by, find_program(env.build, program), "--json", *map(str, args)]
        self.proc = env.fabric.host(name).popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                                stderr=subprocess.PIPE)
        for f in (self.proc.stdout, self.proc.stderr):
            os.set_blocking(f.fileno(), False)
        self.out = self.err = b""

    def _read(self):
        self.out += self.proc.stdout.read() or b""
        self.err += self.proc.stderr.read() or b""

    async def said(self, text, timeout=20):
        async def look():
            self._read()
            if self.proc.poll() is not None:
                raise Failed(f"{self.name} ended with {self.proc.returncode}: {self.err.decode()[-500:]}")
            return text.encode() in self.err + self.out
        await self.env.until_async(look, f"{self.name} says {text!r}", timeout)

    async def result(self, timeout):
        async def ended():
            self._read()
            return self.proc.poll() is not None
        await self.env.until_async(ended, f"{self.name} ends", timeout)
        self._read()
        if self.proc.returncode != 0:
            raise Failed(f"{self.name}: exit code {self.proc.returncode}: {(self.err + self.out).decode()[-700:]}")
        return json.loads(self.out)

    async def stop(self):
        self.proc.send_signal(signal.SIGINT)
        return await self.result(15)

    def kill(self):
        if self.proc.poll() is None:
            self.proc.kill()
            self.proc.wait()


class EndNode(Perf):
    """A node with one NID, on a host of its own."""

    def __init__(self, env, name, nid, route, *args, run_by=()):
        self.nid = N.parse(nid)
        if name not in env.fabric.hosts:
            env.fabric.attach(name, N.net_str(self.nid.net), "eth0", self.nid.ip)
        super().__init__(env, name, "--nid", nid, "--route", route, *args, run_by=run_by)
