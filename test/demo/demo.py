#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""See Millrace work in less than a minute: a client and a server on two LNet networks, the router between them.

Exit status 0 when everything arrived unaltered, 1 when anything was lost or altered, 2 when it could not run.
"""

import argparse
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "perf"))
import lab  # noqa: E402

REFRESH = 0.5       # seconds between looks at the router's counters
PLAIN_EVERY = 1.0   # seconds between lines when nobody watches
PHASES = (          # title, size, messages on the way
    ("4 KiB messages both ways", "4k", 32),
    ("1 MiB messages both ways", "1M", 8),
)

SHOWN = ("millrace_build_info", "millrace_node_route", "millrace_ni_up", "lustre_send_count_total", "lustre_drop_count_total",
         "millrace_peers_", "millrace_up ")    # metrics that are printed
PLACE = r"(<!-- \./dev demo --picture \S+ -->\n```text\n)(.*?)(```\n)"

HEAD = f"{'':2}{'what':<26}{'time':>7}{'messages':>12}{'messages/s':>12}{'MB/s':>10}{'dropped':>9}"
PICTURE = f"""\
    client                     router                     server
  {lab.CLIENT}  -----  {lab.ROUTER}
                       {lab.ROUTER_FAR}  -----  {lab.SERVER}
"""


class Table:
    """The live table: one row per phase, redrawn in place on a terminal, lines of their own elsewhere."""

    def __init__(self, router_lab):
        self.lab, self.live = router_lab, sys.stdout.isatty()
        print(HEAD, flush=True)

    def begin(self, title):
        self.title, self.start = title, time.monotonic()
        self.first = self.last = self.lab.stats()
        self.last_time = self.printed = self.start

    def look(self, final=False):
        now, stats = time.monotonic(), self.lab.stats()
        if not final and not self.live and now - self.printed < PLAIN_EVERY:
            return stats
        base, since = (self.first, self.start) if final else (self.last, self.last_time)
        span = max(now - since, 1e-6)
        row = (f"{'':2}{self.title:<26}{now - self.start:6.1f}s"
               f"{stats['route_count'] - self.first['route_count']:>12,}"
               f"{(stats['route_count'] - base['route_count']) / span:>12,.0f}"
               f"{(stats['route_length'] - base['route_length']) / span / 1e6:>10,.1f}"
               f"{stats['drop_count'] - self.first['drop_count']:>9,}")
        if self.live:
            print(f"\r{row}\033[K", end="\n" if final else "", flush=True)
        else:
            print(row + (" (whole phase)" if final else ""), flush=True)
        self.last, self.last_time, self.printed = stats, now, now
        return stats


def ping(router_lab):
    """The client asks the server, through the router, who it is."""
    answer = router_lab.client("--count", "5", "ping", lab.SERVER).result(30)
    p = answer["ping"]
    if answer["exit_status"] != 0 or lab.SERVER not in p["nids"]:
        raise lab.LabError(f"no ping through the router: {answer['trouble'] or p}")
    return p


def screen(router_lab):
    """The screen of `millrace status`. On a busy machine it may say that a reactor has no core (1); 2 is a router that is down."""
    p = subprocess.run([*router_lab.cli(), "status"], capture_output=True, text=True, check=False)
    if p.returncode not in (0, 1):
        raise lab.LabError(f"millrace status ended with {p.returncode}: {p.stdout}{p.stderr}")
    return p.stdout.rstrip()


def metrics(router_lab):
    """The page that `millrace exporter` serves to Prometheus."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        address = f"127.0.0.1:{s.getsockname()[1]}"
    exporter = lab.Process(lab.Here, "the exporter", [*router_lab.cli(), "exporter", "--listen", address])
    try:
        exporter.wait_line("millrace: metrics are at")
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as answer:
            return [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
    finally:
        exporter.stop()


def move(router_lab, table, title, size, inflight, seconds, midway=None):
    """One phase of traffic, with something to do in the middle of it. Returns its figures and what was wrong."""
    client = router_lab.client("--size", size, "--inflight", inflight, "--seconds", seconds, "both", lab.SERVER)
    table.begin(title)
    before = table.first
    deadline = time.monotonic() + seconds + 30
    while client.running() and time.monotonic() < deadline:
        table.look()
        time.sleep(REFRESH)
        if midway and time.monotonic() - table.start > seconds / 3:
            midway = midway()
    result = client.result(5)
    after = table.look(final=True)
    answered = result["put"]["answered"] + result["get"]["answered"]
    routed = after["route_count"] - before["route_count"]
    trouble = [result["trouble"]] if result["exit_status"] != 0 else []
    if routed < 2 * answered:  # each message and its answer
        trouble.append(f"the router counted {routed} messages for {answered} and their answers")
    if after["drop_count"] != before["drop_count"]:
        trouble.append(f"the router dropped {after['drop_count'] - before['drop_count']} messages")
    return {"title": title, "result": result, "routed": routed, "trouble": trouble,
            "bytes": after["route_length"] - before["route_length"]}


def drop_names(router_lab):
    """Reasons that the router has counted, as `name: count`."""
    rows = router_lab.call("drops_get")["drops"]
    return ", ".join(f"{row['name']}: {row['count']}" for row in rows if row["count"])


def picture(seen):
    """What the router says about itself, on its screen and to Prometheus."""
    shown = [line for line in seen["metrics"] if line.startswith(SHOWN) and 'net="lo"' not in line]
    return (f"$ millrace status\n{seen['status']}\n\n$ curl -s http://localhost:9988/metrics    # millrace exporter: "
            f"{len(shown)} of {len(seen['metrics'])} lines\n" + "\n".join(shown) + "\n")


def put_picture(path, text):
    """Puts the picture in its place in a page."""
    with open(path, encoding="utf-8") as f:
        page = f.read()
    page, places = re.subn(PLACE, lambda m: m.group(1) + text + m.group(3), page, flags=re.S)
    if places != 1:
        raise lab.LabError(f"{path} has {places} places for the picture")
    with open(path, "w", encoding="utf-8") as f:
        f.write(page)


def tell(pinged, phases, server, cpu):
    """In plain words, with the figures of this run and no others."""
    print("\nWhat was shown")
    rtt = pinged["round_trip_us"]
    print(f"  * {lab.CLIENT} asked {lab.SERVER} for its name through the router and was answered {pinged['answered']} "
          f"times of {pinged['sent']}, in {rtt['mean'] / 1000:.2f} ms on average.")
    for phase in phases:
        r = phase["result"]
        put, get, receiver = r["put"], r["get"], r.get("receiver", {})
        print(f"  * {phase['title']}: {put['answered']:,} PUTs to the server and {get['answered']:,} GETs from it in "
              f"{r['seconds']:.1f} s,\n    {put['bytes_per_second'] / 1e6:,.1f} MB/s there and "
              f"{get['bytes_per_second'] / 1e6:,.1f} MB/s back. The server compared {receiver.get('checked', 0):,} "
              f"payloads with their checksums\n    ({receiver.get('bad_checksum', '?')} wrong, "
              f"{receiver.get('repeated', '?')} twice, {receiver.get('missing', '?')} missing), the client "
              f"{get['answered'] + get['altered']:,} ({get['altered']} wrong); {put['lost'] + get['lost']} lost.\n"
              f"    The router forwarded {phase['routed']:,} messages, {phase['bytes'] / 1e6:,.1f} MB of payload.")
    print(f"  * In all the server took {server['puts']:,} PUTs and served {server['gets']:,} GETs. The router used "
          f"{cpu:.1f} s of CPU time.\n"
          f"    Three processes shared {os.cpu_count()} cores and every payload was checked: "
          "this shows that it works, not how fast it can be.")


def run(options):
    trouble = []
    print("Millrace forwards LNet messages between two networks:\n")
    print(PICTURE, flush=True)
    with lab.Lab(options.build) as router_lab:
        router = router_lab.router()
        server = router_lab.server()
        pinged = ping(router_lab)
        print(f"  ping {lab.SERVER} through the router: {pinged['answered']} of {pinged['sent']} answered, "
              f"{pinged['round_trip_us']['mean'] / 1000:.2f} ms\n")
        table = Table(router_lab)
        seen = {}
        phases = [move(router_lab, table, *PHASES[0], options.seconds),
                  move(router_lab, table, *PHASES[1], options.seconds,
                       lambda: seen.update(status=screen(router_lab), metrics=metrics(router_lab)))]
        served, names, cpu = server.stop_result(), drop_names(router_lab), router.cpu_seconds()
        trouble += [t for phase in phases for t in phase["trouble"]]
        if served["exit_status"] != 0:
            trouble.append(f"the server: {served['trouble']}")
        if names:
            print(f"  the router's drop reasons: {names}")
        status, _ = router.stop()
        if status != 0:
            trouble.append(f"the router ended with status {status}: {router.said()}")
    tell(pinged, phases, served["server"], cpu)
    if trouble:
        print("\nFAILED: " + "\n        ".join(trouble))
        return 1
    print("\nNothing was lost, altered or doubled. Nothing was left behind.\n\nThe router, seen while it forwarded:\n")
    print(picture(seen), end="")
    if options.picture:
        put_picture(options.picture, picture(seen))
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build", help="build folder (build)")
    parser.add_argument("--seconds", type=float, default=8, help="length of each of the two phases of traffic (8)")
    parser.add_argument("--picture", metavar="PAGE", help="put what is printed last in its place in a page")
    options = parser.parse_args()
    if not 0 < options.seconds <= 20:
        parser.error("--seconds is above 0 and at most 20")
    lab.need_root()
    lab.signals_to_exceptions()
    try:
        return run(options)
    except KeyboardInterrupt as e:
        print(f"\nstopped by {e}; nothing was left behind")
        return 130
    except (lab.LabError, OSError, RuntimeError) as e:
        print(f"\nFAILED: {e}", file=sys.stderr)
        return 1 if isinstance(e, lab.LabError) else 2


if __name__ == "__main__":
    sys.exit(main())
