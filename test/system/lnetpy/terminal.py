# SPDX-License-Identifier: BSD-3-Clause
"""A program on a terminal of its own: tmux is the terminal, keys go in, what is on the screen is read."""

import os
import shlex
import shutil
import subprocess
import tempfile

from .env import Skip


class Terminal:
    """One tmux server with one window. `with Terminal(env, ["top"]) as t:`"""

    def __init__(self, env, argv, cols=80, rows=24, variables=None):
        if not shutil.which("tmux"):
            raise Skip("no tmux (Debian package tmux)")
        self.env = env
        self.dir = tempfile.TemporaryDirectory(prefix="millrace-tmux-")
        clean = {k: v for k, v in os.environ.items() if k not in ("TMUX", "TMUX_PANE")}
        self.vars = {**clean, "LC_ALL": "C.UTF-8", "TERM": "xterm", **(variables or {})}
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(cols), "-y", str(rows),                   " ".join(map(shlex.quote, map(str, argv))) + '; echo "ended with $?"; exec sleep 1000')

    def tmux(self, *args):
        p = subprocess.run(["tmux", "-u", "-S", os.path.join(self.dir.name, "sock"), *args], env=self.vars,
                           capture_output=True, text=True, timeout=30)
        if p.returncode:
            raise RuntimeError(f"tmux {args}: {p.stderr.strip()}")
        return p.stdout

    def __enter__(self):
        return self

    def __exit__(self, *what):
        subprocess.run(["tmux", "-S", os.path.join(self.dir.name, "sock"), "kill-server"], env=self.vars,
                       capture_output=True, timeout=30)
        self.dir.cleanup()

    def screen(self):
        """What is on it: lines, without the blanks at their ends."""
        return self.tmux("capture-pane", "-p").splitlines()

    def keys(self, *keys):
        """By tmux's names: q, Enter, Tab, NPage."""
        self.tmux("send-keys", *keys)

    def type(self, text):
        self.tmux("send-keys", "-l", text)

    def resize(self, cols, rows):
        self.tmux("resize-window", "-x", str(cols), "-y", str(rows))

    async def until(self, pred, what, timeout=20):
        """Waits until pred(lines of the screen) is true, and returns what it returned."""
        seen = []

        async def look():
            seen[:] = self.screen()
            return pred(seen)
        try:
            return await self.env.until_async(look, what, timeout)
        except Exception as x:
            raise AssertionError(f"{x}; the screen:\n" + "\n".join(seen).rstrip()) from None

