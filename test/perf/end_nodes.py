#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of millrace-perf: two end nodes over one link, no router. Prints a PASS or FAIL line per test.

A load generator that cannot fail is worth nothing, so half of these tests make it fail.
"""

import argparse
import os
import pty
import signal
import subprocess
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lab  # noqa: E402
from lnetpy import netns  # noqa: E402

A, B, NOBODY = "10.20.0.1@tcp", "10.20.0.2@tcp", "10.20.0.9@tcp"
PATIENCE = 60
INTERRUPTED = 4  # exit status


class Pair:
    """Nodes A and B in namespaces of their own."""

    def __init__(self, build):
        self.program = os.path.join(os.path.abspath(build), "app/millrace-perf/millrace-perf")
        self.a, self.b, self.processes = netns.NetNs("a"), netns.NetNs("b"), []
        self.a.ip(f"link add e0 type veth peer name e0 netns {self.b.path}\n"
                  "addr add 10.20.0.1/24 dev e0\nlink set e0 up")
        self.b.ip("addr add 10.20.0.2/24 dev e0\nlink set e0 up")
        lab.wait_link(self.a, "e0")
        lab.wait_link(self.b, "e0")

    def start(self, ns, own, *arguments):
        argv = [self.program, "--json", "--nid", own, *map(str, arguments)]
        process = lab.Process(ns, f"node {own}", argv)
        self.processes.append(process)
        return process

    def client(self, *arguments):
        return self.start(self.a, A, *arguments)

    def server(self, *arguments):
        process = self.start(self.b, B, *arguments, "server")
        process.wait_line(f"serving on {B}")
        return process

    def run(self, *arguments):
        return self.client(*arguments).result(PATIENCE)

    def close(self):
        for process in self.processes:
            if process.running():
                process.popen.kill()
            process.popen.wait()
        self.a.close()
        self.b.close()


def equal(what, got, want):
    if got != want:
        raise AssertionError(f"{what}: {got!r}, expected {want!r}")


def fine(result):
    if result["exit_status"] != 0 or not result["ok"]:
        raise AssertionError(f"status {result['exit_status']}: {result['trouble']}")


def failed(result, *words):
    equal("status", result["exit_status"], 1)
    for word in words:
        if word not in result["trouble"]:
            raise AssertionError(f"{word!r} is not in {result['trouble']!r}")


def ping_lists_nids(pair):
    pair.server()
    result = pair.run("--count", 20, "ping", B)
    fine(result)
    equal("nids", result["ping"]["nids"], [B])
    equal("answered", result["ping"]["answered"], 20)
    equal("features", result["ping"]["features"] & 0x0e, 0x0e)


def ping_by_interface(pair):
    pair.server()
    argv = [pair.program, "--if", "e0", "--count", "1", "ping", B]
    process = lab.Process(pair.a, "node by interface", argv)
    pair.processes.append(process)
    status, out = process.wait(PATIENCE)
    equal("status", status, 0)
    equal("form", out.splitlines()[:5],
          ["ping:", f"    - primary nid: {B}", "      Multi-Rail: true", "      peer_ni:", f"        - nid: {B}"])


def mixed_both_ways(pair):
    server = pair.server()
    result = pair.run("--size", "mix", "--count", 2000, "--inflight", 24, "both", B)
    fine(result)
    equal("PUTs", result["put"]["answered"], 1000)
    equal("GETs", result["get"]["answered"], 1000)
    equal("checked", result["receiver"]["checked"], 1000)
    equal("bytes", result["receiver"]["bytes"], result["put"]["bytes"])
    served = server.stop_result()
    fine(served)
    equal("PUTs served", served["server"]["puts"], 1000)
    equal("PUT bytes served", served["server"]["put_bytes"], result["put"]["bytes"])
    equal("GETs served", served["server"]["gets"], 1000)
    equal("GET bytes served", served["server"]["get_bytes"], result["get"]["bytes"])


def edge_sizes(pair):
    pair.server()
    for size, count in (("0", 40), ("1", 40), ("7", 40), ("4095-4097", 60), ("1048575", 20), ("1M", 20)):
        result = pair.run("--size", size, "--count", count, "both", B)
        fine(result)
        equal(f"messages of {size}", result["put"]["answered"] + result["get"]["answered"], count)


def both_nodes_are_clients(pair):
    arguments = ("--serve", "--size", "mix", "--count", 1000, "both")
    nodes = [pair.start(pair.a, A, *arguments, B), pair.start(pair.b, B, *arguments, A)]
    for node in nodes:
        node.wait_line("own work done")
    for result in [node.stop_result() for node in nodes]:
        fine(result)
        equal("checked of mine", result["receiver"]["checked"], 500)
        equal("checked of the other", result["server"]["checked"], 500)
        equal("served", result["server"]["gets"], 500)


def altered_put_is_reported(pair):
    server = pair.server()
    result = pair.run("--inject", "corrupt", "--size", "0-9000", "--count", 200, "put", B)
    failed(result, "20 altered on the way to the receiver")
    equal("bad", result["receiver"]["bad_checksum"], 20)
    failed(server.stop_result(), "20 received PUTs altered")


def altered_get_is_reported(pair):
    pair.server("--inject", "corrupt")
    result = pair.run("--size", "8k", "--count", 50, "get", B)
    failed(result, "50 altered")
    equal("good", result["get"]["answered"], 0)


def repeat_is_reported(pair):
    server = pair.server()
    result = pair.run("--inject", "repeat", "--size", "100", "--count", 205, "put", B)
    failed(result, "20 reached the receiver twice", "20 never reached the receiver")
    failed(server.stop_result(), "20 PUTs received twice")


def verify_none_checks_nothing(pair):
    pair.server()
    result = pair.run("--verify", "none", "--inject", "corrupt", "--size", "100", "--count", 50, "put", B)
    equal("checked", result["receiver"]["checked"], 0)
    equal("received", result["receiver"]["received"], 50)


def nobody_answers(pair):
    result = pair.run("--timeout", "1.5", "--count", 10, "put", NOBODY)
    failed(result, "does not answer a ping")
    result = pair.run("--timeout", "1.5", "--count", 1, "ping", NOBODY)
    failed(result, "1 of 1 pings unanswered")


def black_hole(pair):
    """An address that swallows everything: the timeout is kept although the connection attempt goes on."""
    pair.a.ip("neigh add 10.20.0.9 lladdr 02:00:00:00:00:99 dev e0 nud permanent")
    for command in ("ping", "put"):
        client = pair.client("--timeout", "1.5", "--count", 1, command, NOBODY)
        result = client.result(12)  # the network driver itself would try for 50 s
        failed(result, "Connection timed out")


def no_server_program(pair):
    """The node is there and answers pings, but nothing takes the messages."""
    idle = pair.start(pair.b, B, "--timeout", "3600", "--count", 1, "put", NOBODY)
    result = pair.run("--timeout", "4", "--size", "10", "--count", 5, "--inflight", 5, "put", B)
    failed(result, "5 lost", "no message got through")
    idle.stop()


def server_killed(pair):
    server = pair.server()
    client = pair.client("--timeout", "2", "--size", "4k", "--seconds", "3600", "--interval", "0.1", "both", B)
    client.wait_line("    ")  # a line of progress: the run is under way
    server.popen.kill()
    result = client.result(PATIENCE)
    failed(result, "gave up")
    if result["put"]["answered"] == 0:
        raise AssertionError("the run had not begun")
    if result["put"]["lost"] + result["put"]["not_sent"] == 0:
        raise AssertionError("nothing was lost")


def interrupt_prints_results(pair):
    pair.server()
    client = pair.client("--size", "64k", "--seconds", "3600", "--interval", "0.1", "both", B)
    client.wait_line("    ")
    client.popen.send_signal(signal.SIGINT)
    result = client.result(10)
    equal("status", result["exit_status"], INTERRUPTED)
    equal("trouble", result["trouble"], "")
    equal("interrupted", result["interrupted"], True)
    equal("missing", result["receiver"]["missing"], 0)
    if result["put"]["answered"] == 0 or result["get"]["answered"] == 0:
        raise AssertionError("no results so far")


def open_loop_keeps_its_rate(pair):
    """Messages are due at their times, all of them are sent, and the end node says how late."""
    pair.server()
    for _ in range(3):  # where others have the cores the end may come late, but not each time
        result = pair.run("--rate", 500, "--arrivals", "fixed", "--seconds", 2, "--size", "512", "put", B)
        fine(result)
        equal("loop", result["loop"], "open")
        equal("answered", result["put"]["answered"], 1000)
        equal("lateness", result["sent_late_us"]["count"], 1000)
        if result["seconds"] < 4:
            break
    if not 1.99 < result["seconds"] < 4:
        raise AssertionError(f"1000 messages at 500/s took {result['seconds']} s")


def overflow_is_reported(pair):
    server = pair.server()
    client = pair.client("--rate", 2000, "--arrivals", "fixed", "--seconds", 3, "--queue", 20, "--concurrency", 4,
                         "--interval", 0.1, "--size", 64, "put", B)
    client.wait_line("    ")
    server.popen.send_signal(signal.SIGSTOP)
    time.sleep(0.3)  # 600 messages are due
    server.popen.send_signal(signal.SIGCONT)
    result = client.result(PATIENCE)
    failed(result, "did not fit into the queue")
    lost = result["queue"]["overflowed"]
    equal("sent and overflowed", result["put"]["answered"] + lost, 6000)
    if lost < 500:
        raise AssertionError(f"{lost} overflowed")


def seed_repeats_a_run(pair):
    pair.server()
    runs = [pair.run("--seed", seed, "--count", 300, "--size", "1-64k", "--mix", "put:1,get:2", "both", B)
            for seed in (7, 7, 8)]
    for result in runs:
        fine(result)
    what = [(r["seed"], r["put"]["answered"], r["put"]["bytes"], r["get"]["bytes"]) for r in runs]
    equal("the same seed", what[0], what[1])
    if what[0][1:] == what[2][1:]:
        raise AssertionError(f"another seed gave the same run: {what}")


def one_in_some_is_checked(pair):
    """Sampled: of 50 altered messages some are noticed, and not all."""
    pair.server()
    result = pair.run("--verify", "1/2", "--inject", "corrupt", "--size", "100", "--count", 500, "put", B)
    failed(result, "altered on the way to the receiver")
    if not 150 < result["receiver"]["checked"] < 350 or not 5 <= result["receiver"]["bad_checksum"] <= 45:
        raise AssertionError(result["receiver"])


def terminal_and_pipe(pair):
    """One line that is written over on a terminal, nothing but the results in a pipe."""
    pair.server()
    argv = [pair.program, "--nid", A, "--seconds", "2.5", "--size", "4k", "put", B]
    piped = pair.a.popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    out, _ = piped.communicate(timeout=PATIENCE)
    equal("status", piped.returncode, 0)
    if "\r" in out or " bad" in out or not out.startswith("closed loop: 16 on the way"):
        raise AssertionError(out)
    for word in ("p50 ", "p90 ", "p99 ", "p99.9 ", "p99.99 ", "max "):
        if word not in out:
            raise AssertionError(f"no {word} in {out}")
    parent, child = pty.openpty()
    process = pair.a.popen(argv, stdin=subprocess.DEVNULL, stdout=child, stderr=child)
    os.close(child)
    seen = b""
    try:
        while True:
            seen += os.read(parent, 4096)
    except OSError:  # the other end is closed
        pass
    os.close(parent)
    equal("status", process.wait(PATIENCE), 0)
    lines = seen.split(b"closed loop:")[0]
    if lines.count(b"\r\x1b[K") < 3 or b"\n" in lines or b"messages/s" not in lines:
        raise AssertionError(seen)


def wrong_usage(pair):
    for arguments in (["--nid", A, "--rate", "0", "put", B], ["--nid", A, "--rate", "5x", "put", B],
                      ["--nid", A, "--arrivals", "never", "put", B], ["--nid", A, "--queue", "5", "put", B],
                      ["--nid", A, "--mix", "put:1", "put", B], ["--nid", A, "--mix", "put", "both", B],
                      ["--nid", A, "--size", "4k:1,", "put", B], ["--nid", A, "--verify", "1/0", "put", B],
                      ["--nid", A, "--order", "none", "put", B], ["--nid", A, "put", B + "*0"],
                      ["--nid", A, "put", B + "*2000"], ["--nid", A, "--csv", "x", "server"],
                      ["--nid", A, "ping", B + "*2"], ["--nid", A, "--serve", "server"],
                      [], ["server"], ["--nid", A], ["--nid", "nonsense", "server"], ["--nid", A, "put"],
                      ["--nid", A, "put", "x y"], ["--nid", A, "--size", "1048577", "put", B],
                      ["--nid", A, "--size", "9-3", "put", B], ["--nid", A, "--inflight", "0", "put", B],
                      ["--nid", A, "--route", "tcp1", "put", B], ["--nid", A, "--count", "-1", "put", B],
                      ["--nid", A, "--seconds", "nan", "put", B], ["--nid", A, "server", "extra"]):
        p = subprocess.run([pair.program, *arguments], capture_output=True, text=True, timeout=PATIENCE)
        equal(f"status of {arguments}", p.returncode, 2)
        if not p.stderr.startswith("millrace-perf"):
            raise AssertionError(f"{arguments}: said {p.stderr!r}")


def foreign_address(pair):
    process = pair.start(pair.a, NOBODY, "server")
    status, _ = process.wait(PATIENCE)
    equal("status", status, 3)


TESTS = (ping_lists_nids, ping_by_interface, mixed_both_ways, edge_sizes, both_nodes_are_clients,
         altered_put_is_reported, altered_get_is_reported, repeat_is_reported, verify_none_checks_nothing,
         nobody_answers, black_hole, no_server_program, server_killed, interrupt_prints_results,
         open_loop_keeps_its_rate, overflow_is_reported, seed_repeats_a_run, one_in_some_is_checked, terminal_and_pipe,
         wrong_usage,
         foreign_address)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--filter", default="", help="only tests whose name contains this")
    options = parser.parse_args()
    why = "no root" if os.geteuid() != 0 else netns.available()
    bad = 0
    for test in TESTS:
        if options.filter not in test.__name__:
            continue
        if why:
            print(f"SKIP {test.__name__}: {why}", flush=True)
            continue
        pair = Pair(options.build)
        try:
            test(pair)
            print(f"PASS {test.__name__}", flush=True)
        except Exception as e:  # any surprise is a failed test
            bad += 1
            if not isinstance(e, AssertionError):
                traceback.print_exc(file=sys.stdout)
            for process in pair.processes:
                print(f"  | {process.name}: {process.said()}")
            print(f"FAIL {test.__name__}: {e}", flush=True)
        finally:
            pair.close()
    return 1 if bad else 77 if why else 0


if __name__ == "__main__":
    sys.exit(main())
