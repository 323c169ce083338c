# SPDX-License-Identifier: BSD-3-Clause
"""A shell on a terminal, for tests of what is typed."""

import os
import pty
import select
import signal
import time

DEADLINE = 60.0


class Terminal:
    """A shell that one types at."""

    def __init__(self, millrace, *args):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="dumb", PATH=os.path.dirname(millrace) + ":" + os.environ["PATH"])
            os.execvp(args[0], args)
        self.seen = ""

    def type(self, text):
        os.write(self.fd, text.encode())

    def wait(self, text):
        end = time.monotonic() + DEADLINE
        while text not in self.seen:
            left = end - time.monotonic()
            assert left > 0 and select.select([self.fd], [], [], left)[0], f"no {text!r} in {self.seen!r}"
            self.seen += os.read(self.fd, 65536).decode(errors="replace")
        self.seen = self.seen.split(text, 1)[1]

    def close(self):
        os.close(self.fd)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
