# SPDX-License-Identifier: BSD-3-Clause
"""Started by root the router becomes its user and keeps only the capabilities that it needs, in every thread."""

import os
import signal
import subprocess

from lnetpy.router import find_program
from lnetpy.scene import CLIENT, ROUTER, SERVER, join, traffic

NOBODY = 65534
BIND, ADMIN, RAW = 1 << 10, 1 << 12, 1 << 13    # CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_NET_RAW


def threads(pid):
    """The status of each thread, from the kernel's own account of it."""
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/status", encoding="ascii") as f:
            yield {key: value.split() for key, value in (row.split(":", 1) for row in f)}


async def started(env, user):
    """The router, started by root, in a folder of nobody's."""
    r = env.prepare("r", *ROUTER, extra=f"  user: {user}\n")
    os.chown(r.dir.name, NOBODY, NOBODY)
    os.chmod(os.path.dirname(r.dir.name), 0o711)
    return await r.start()


async def test_becomes_its_user(env):
    """All threads are of the user; it forwards, takes a new NI, reloads and saves as before."""
    env.need_millrace()
    r = await started(env, "nobody")
    caps = BIND | (ADMIN | RAW if env.transport == "port" else 0)
    env.fabric.attach("r", "tcp5", "eth5", "10.5.0.1/24")
    await r.rpc("net_add", net="tcp5", interface="eth5")
    os.chown(r.conf, NOBODY, NOBODY)
    await r.rpc("config_save")
    with open(r.conf, encoding="utf-8") as f:
        assert "tcp5" in f.read()
    await r.rpc("net_del", net="tcp5")
    await r.rpc("config_save")
    c, s = await env.persona("c", CLIENT), await env.persona("s", SERVER)
    join(c, r, "tcp1")
    join(s, r, "tcp")
    await env.bring_up(c)
    await env.bring_up(s)
    await traffic(env, c, s, 200)
    r.proc.send_signal(signal.SIGHUP)
    await env.until(lambda: "event=reloaded" in r.text(), "the file applied")
    await traffic(env, s, c, 100)
    seen = list(threads(r.proc.pid))
    assert len(seen) > 2
    for t in seen:
        assert t["Uid"] == t["Gid"] == [str(NOBODY)] * 4, t
        assert t["NoNewPrivs"] == ["1"] and t["Seccomp"] == ["2"], t
        assert [int(t[k][0], 16) for k in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb")] == [caps, caps, 0, 0, 0], t
    await env.settle()


async def test_filter_after_start(env):
    """A router that waits for the method start opens its devices then; the filter follows."""
    env.need_millrace()
    r = await env.router("r", *ROUTER, args=["--wait-for-rpc"])
    assert all(t["Seccomp"] == ["0"] for t in threads(r.proc.pid))
    await r.rpc("start")
    assert all(t["Seccomp"] == ["2"] for t in threads(r.proc.pid))
    c = await env.persona("c", CLIENT)
    join(c, r, "tcp1")
    await env.bring_up(c)


async def test_user_is_missing(env):
    """A user that is named and does not exist is an error that says what to do."""
    env.need_millrace()
    r = env.prepare("r", *ROUTER, extra="  user: nosuchuser\n")
    with open(r.conf, "w", encoding="utf-8") as f:
        f.write(r.yaml())
    ended = subprocess.run([find_program(env.build, "millraced"), "-c", r.conf], capture_output=True, text=True, timeout=20, check=False)
    assert ended.returncode == 1, ended
    assert "there is no user nosuchuser" in ended.stderr and "useradd" in ended.stderr, ended


async def test_stays_root_on_purpose(env):
    """`user: root` gives up nothing, and gives no warning."""
    env.need_millrace()
    r = await started(env, "root")
    assert all(t["Uid"] == ["0"] * 4 and t["NoNewPrivs"] == ["1"] for t in threads(r.proc.pid))
    assert "runs_as_root" not in r.text()
