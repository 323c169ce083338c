# SPDX-License-Identifier: BSD-3-Clause
"""A daemon that answers as a test says, whether that makes sense or not."""

import contextlib
import json
import os
import socket
import threading

DEADLINE = 60.0


class Refusal(Exception):
    """Raised by answer(): the request ends with this error object."""

    def __init__(self, error):
        super().__init__(error)
        self.error = error


class FakeDaemon:
    """Takes clients on a socket; answer(method, params) is each request's result. `asked` has all that was asked."""

    def __init__(self, path, answer):
        self.path, self.answer, self.asked = path, answer, []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen()
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self):
        conn = self.listener.accept()[0]
        with contextlib.suppress(ConnectionError), conn, conn.makefile("rw", encoding="utf-8") as f:
            for line in f:
                request = json.loads(line)
                self.asked.append((request["method"], request.get("params")))
                f.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **self._outcome(request)}) + "\n")
                f.flush()

    def _outcome(self, request):
        try:
            return {"result": self.answer(request["method"], request.get("params") or {})}
        except Refusal as e:
            return {"error": e.error}

    def serve(self, fn):
        """What fn() gives, which is one client; then the daemon is gone."""
        try:
            return fn()
        finally:
            self.thread.join(DEADLINE)
            self.listener.close()
            os.unlink(self.path)
