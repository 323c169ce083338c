# SPDX-License-Identifier: BSD-3-Clause
"""Monitoring as a site has it: `millrace exporter` and Debian's Prometheus as processes, in a namespace of their own."""

import http.client
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import tempfile
import textwrap
import time
import urllib.parse

from .env import Failed
from .router import find_program

TOP = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../.."))
RULES = os.path.join(TOP, "config/prometheus/millrace.rules.yml")
DASHBOARD = os.path.join(TOP, "config/grafana/millrace.json")
WINDOW = "10s"              # in the place of the rules' [5m] and of the dashboard's $__rate_interval


def host(env, name="mon"):
    """The namespace in which the exporters and Prometheus run: with nothing but its loopback."""
    ns = env.fabric.host(name)
    ns.ip("link set lo up")
    return ns


class Process:
    """A program in a namespace; its output is shown when it ends too early."""

    def __init__(self, env, ns, argv, family=None, **kw):
        self.env, self.ns, self.family = env, ns, family
        self.log = tempfile.TemporaryFile()     # pylint: disable=consider-using-with
        self.proc = ns.popen(argv, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, **kw)

    def tail(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")[-900:]

    def request(self, port, path, method="GET", headers=None, tls=None, timeout=15):
        """(status, headers, body) of a request to this host's loopback."""
        import socket           # pylint: disable=import-outside-toplevel
        family = self.family or socket.AF_INET
        sock = self.ns.socket(family)
        sock.settimeout(timeout)
        sock.connect(("::1" if family == socket.AF_INET6 else "127.0.0.1", port))
        if tls:
            sock = tls.wrap_socket(sock, server_hostname="localhost")
        c = http.client.HTTPConnection("localhost", port, timeout=timeout)
        c.sock = sock
        try:
            c.request(method, path, headers=headers or {})
            r = c.getresponse()
            return r.status, dict(r.getheaders()), r.read().decode()
        finally:
            c.close()

    async def serves(self, port, path, **kw):
        """Until it answers."""
        async def answers():
            if self.proc.poll() is not None:
                raise Failed(f"{self.proc.args[0]} ended with {self.proc.returncode}: {self.tail()}")
            try:
                return self.request(port, path, **kw)[0] == 200
            except (OSError, http.client.HTTPException):
                return False
        await self.env.until_async(answers, f"{os.path.basename(self.proc.args[0])} serves {path}", 20)
        return self

    def cpu(self):
        """Seconds of CPU time."""
        with open(f"/proc/{self.proc.pid}/stat", encoding="ascii") as f:
            words = f.read().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        """SIGTERM; the exit code."""
        if self.proc.poll() is None:
            self.proc.send_signal(signal.SIGTERM)
        return self.proc.wait(15)

    def kill(self):
        if self.proc.poll() is None:
            self.proc.kill()
            self.proc.wait()
        self.log.close()


class Exporter(Process):
    def __init__(self, env, ns, router, *args, port=9988, listen="127.0.0.1", family=None):
        self.port = port
        super().__init__(env, ns, [find_program(env.build, "millrace"), "--socket", router.sock, "exporter", "--listen",
                                   f"{listen}:{port}", *map(str, args)], family)

    def page(self, accept=None, timeout=15):
        status, headers, body = self.request(self.port, "/metrics", headers={"Accept": accept} if accept else {}, timeout=timeout)
        assert status == 200, (status, body)
        return headers, body

    def samples(self):
        return samples(self.page()[1])


def samples(text):
    """'name{labels}' -> value, of a page."""
    out = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            key, _, value = line.rpartition(" ")
            assert key not in out, f"twice: {key}"
            out[key] = float(value)
    return out


def tool(*args, text=None):
    """What promtool says; it must be content."""
    p = subprocess.run(["promtool", *args], input=text, text=True, capture_output=True, check=False)
    said = (p.stdout + p.stderr).strip()
    assert p.returncode == 0, f"promtool {' '.join(args)}: {said[:800]}"
    return said


def documented():
    """The alerts and the scrape configuration of docs/monitoring.md."""
    with open(os.path.join(TOP, "docs/monitoring.md"), encoding="utf-8") as f:
        text = f.read()
    alerts = set(re.findall(r"`(Millrace\w+)`", text))
    config = re.search(r"^( +)rule_files: .*?(?=\n\n)", text, re.M | re.S)
    return alerts, textwrap.dedent(config.group(0)) + "\n"


def tls_client():
    """A context that takes any certificate."""
    c = ssl.create_default_context()
    c.check_hostname, c.verify_mode = False, ssl.CERT_NONE
    return c


class Prometheus(Process):
    """Debian's Prometheus with our rules, made quick: they wait for nothing, and look back for WINDOW."""

    PORT = 9090

    def __init__(self, env, ns, ports):
        self.dir = tempfile.mkdtemp(prefix="prometheus-")
        with open(RULES, encoding="utf-8") as f:
            rules = f.read()
        rules, waits = re.subn(r"^(\s+for:) \w+$", r"\1 0s", rules, flags=re.M)
        rules, windows = re.subn(r"\[5m\]", f"[{WINDOW}]", rules)
        rules, looks = re.subn(r"\[3m:15s\]", f"[{WINDOW}:1s]", rules)
        assert waits > 5 and windows > 2 and looks == 2, "the rules look otherwise than this test knows them"
        self.alerts = re.findall(r"alert: (\w+)", rules)
        with open(os.path.join(self.dir, "rules.yml"), "w", encoding="utf-8") as f:
            f.write(rules)
        targets = ", ".join(f"'127.0.0.1:{p}'" for p in ports)
        with open(os.path.join(self.dir, "prometheus.yml"), "w", encoding="utf-8") as f:
            f.write("global: {scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 1s}\nrule_files: [rules.yml]\n"
                    f"scrape_configs:\n  - job_name: millrace\n    static_configs: [{{targets: [{targets}]}}]\n")
        tool("check", "config", os.path.join(self.dir, "prometheus.yml"))
        known, sample = documented()
        assert known == set(self.alerts), f"docs/monitoring.md has other alerts: {known ^ set(self.alerts)}"
        with open(os.path.join(self.dir, "documented.yml"), "w", encoding="utf-8") as f:
            f.write(re.sub(r"\[/usr\S*/millrace.rules.yml\]", f"[{RULES}]", sample))
        tool("check", "config", os.path.join(self.dir, "documented.yml"))
        super().__init__(env, ns, ["prometheus", f"--config.file={self.dir}/prometheus.yml",
                                   f"--storage.tsdb.path={self.dir}/data", f"--web.listen-address=127.0.0.1:{self.PORT}"])
        self.fired = set()      # (alert, target) that have fired so far
        self.began = time.monotonic()

    def api(self, path, **params):
        status, _, body = self.request(self.PORT, f"/api/v1/{path}?{urllib.parse.urlencode(params)}")
        answer = json.loads(body)
        assert status == 200 and answer["status"] == "success", f"{path} {params}: {body[:500]}"
        return answer["data"]

    def query(self, expr):
        return self.api("query", query=expr)["result"]

    def firing(self):
        """(alert, target) that fire now; rules that cannot be evaluated are a fault."""
        now = set()
        for group in self.api("rules")["groups"]:
            for rule in group["rules"]:
                assert rule["health"] != "err", f"{rule['name']}: {rule.get('lastError')}"
                now.update((rule["name"], a["labels"].get("instance", "").rsplit(":", 1)[-1])
                           for a in rule["alerts"] if a["state"] == "firing")
        self.fired |= now
        return now

    async def fire(self, *wanted, timeout=25):
        """Until each of (alert, port) has fired."""
        wanted = {(a, str(p)) for a, p in wanted}

        async def all_fired():
            self.firing()
            return wanted <= self.fired
        try:
            await self.env.until_async(all_fired, "the alerts", timeout, 0.3)
        except Failed as e:
            raise AssertionError(f"did not fire: {sorted(wanted - self.fired)}; fired: {sorted(self.fired)}") from e

    def kill(self):
        super().kill()
        shutil.rmtree(self.dir, ignore_errors=True)


def dashboard_queries(about=""):
    """(panel, query) of the dashboard, those with a word, with its variables filled in as Grafana does."""
    with open(DASHBOARD, encoding="utf-8") as f:
        board = json.load(f)
    out = []
    for panel in board["panels"]:
        out += [(panel["title"], t["expr"].replace("$instance", ".*").replace("$__rate_interval", WINDOW))
                for t in panel.get("targets", []) if about in t["expr"]]
    assert out and not any("$" in q for _, q in out), out
    return out
