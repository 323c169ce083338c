# SPDX-License-Identifier: BSD-3-Clause
"""What a byte costs a router that copies none and sums none: messages of 1 MiB against messages of 256 KiB.

Both ends and the router are one process (ring_lab.c) with a core each, over DPDK's rings, on which frames change hands as they are.
The ends' core does what a network card does, checksums are right by its word, so what the router's reactor spends is spent on headers
and accounts. Where it touched payload, a byte of a long message, whose payload has left the caches until it is sent, would cost more
than one of a short message. That there is no copy is also counted: TCP's own, and those that a port makes for its device.
"""

import statistics
import time

import eth
import lab
import machine
import results

SIZES = ("1M", "256k")
BYTES = {"1M": 1 << 20, "256k": 1 << 18}
PEERS, ON_THE_WAY = 8, 16 << 20      # bytes of payload: the same at both sizes
MORE_BAR = 0.02                      # cycles a byte of 1 MiB may cost more than one of 256 KiB
MTU = 9000
NAMES = ("net_ring_near", "net_ring_far")


def case_of(size):
    return eth.Case("put", size, PEERS, ON_THE_WAY // BYTES[size], MTU)


class RingRoom(eth.Room):
    """Both programs in one process."""

    def lab(self, case, seconds, verify, copied):
        path, config = f"{self.dir}/rpc.sock", f"{self.dir}/millraced.yaml"
        cores, ends = eth.middle_cores()
        with open(config, "w", encoding="ascii") as f:
            f.write(eth.CONFIG.format(cores=cores[0], idle=case.idle, socket=path, mtu=case.mtu, more="", huge=str(self.huge).lower(),
                                      millrace="", near_device=NAMES[0], far_device=NAMES[1], near_tunables=""))
        generator = self.start("ring-lab", "test/perf/ring-lab", *(["-c"] if copied else []), ends, config, *eth.generator_arguments(
            case, seconds, [f"{n}_end" for n in NAMES], "--verify", verify))
        router = lab.Router(generator, path)
        self.routers.append(router)
        return router, generator


class View(eth.RouterView):
    """Copies of ports too."""

    def look(self):
        queues = [q for p in self.router.call("port_get")["port"] for q in p["queues"]]
        return {**super().look(), "port_copies": sum(q["copied_bytes"] for q in queues)}


def run_ring(build, size, seconds, verify="none", copied=False, hugepages=True):
    """One run. copied: the router's port is made to copy what comes in, once. hugepages: if there are any free."""
    case = case_of(size)
    with RingRoom(build) as room:
        room.huge &= hugepages
        router, generator = room.lab(case, seconds + 2 * eth.SETTLE + eth.LOOKS, verify, copied)
        view = View(router)
        eth.wait_flow(view, generator)
        span, a = machine.Span(), view.look()
        time.sleep(seconds)
        b = view.look()
        span.stop()
        how = {**eth.settings(router), "hugepages": room.huge}
        result = generator.result(eth.DEADLINE)
        out = {**eth.figures(a, b), **span.shares(), "generator": result, "settings": how}
        if not result["ok"] or out["dropped"] or out["lost"] or out["checksums"]:
            raise lab.LabError(f"{case}: {result['trouble']}; dropped {out['dropped']}, {out['lost']} frames lost, {out['checksums']} "
                               "checksums computed")
        moved = b["payload"] - a["payload"]
        out["cycles_per_byte"] = out["cycles_per_message"] * out["forwarded"] / moved
        out["copied"], out["port_copied"] = out["copies"] / moved, (b["port_copies"] - a["port_copies"]) / moved
        return out


HEAD = ("case", "payload MB/s", "messages/s", "frames/message", "busy share", "cycles/message", "cycles/byte", "copied by TCP, of a byte",
        "by ports", "checksums", "ends' busy", "waited")


def line(name, samples):
    def middle(key):
        return eth.median(samples, key)

    frames = statistics.median(sum(f[0] for f in s["in"]) / s["forwarded"] for s in samples)
    return (name, results.number(middle("payload") / 1e6), f"{middle('messages'):.0f}", f"{frames:.0f}", f"{middle('busy'):.2f}",
            f"{middle('cycles_per_message'):.0f}", f"{middle('cycles_per_byte'):.4f}", f"{middle('copied'):.5f}", f"{middle('port_copied'):.5f}",
            str(sum(s["checksums"] for s in samples)), f"{statistics.median(s['generator']['reactor']['busy'] for s in samples):.2f}",
            f"{max(s['waited'] for s in samples):.0%}")


def row(size, metric, value, unit, of, **more):
    return {**eth.row(case_of(size), metric, value, unit, of, bench="copies", **{"reference": None, "ratio": None, **more})}


def run(options, progress):
    """The benchmark. Returns its rows."""
    found = {size: [] for size in SIZES}
    forced = {size: [] for size in SIZES}
    if options.filter not in "copies":
        return []
    for _ in range(options.repeat):
        for size in SIZES:
            found[size].append(eth.quiet(options, run_ring, size, options.seconds, options.verify))
        for size in SIZES:
            forced[size].append(eth.quiet(options, run_ring, size, options.seconds, options.verify, True))
        progress(f"copies: round {len(found[SIZES[0]])} of {options.repeat} done")
    each = {size: [s["cycles_per_byte"] for s in samples] for size, samples in found.items()}
    more = [long - short for long, short in zip(each["1M"], each["256k"])]
    one = [f["cycles_per_byte"] - s["cycles_per_byte"] for f, s in zip(forced["1M"], found["1M"])]
    lowest = min(each["1M"]) - min(each["256k"])
    copied = [s["copied"] + s["port_copied"] for size in SIZES for s in found[size]]
    rows = [row("1M", "cycles_per_byte more than of 256 KiB", statistics.median(more), "cycles", found["1M"], bar=MORE_BAR, samples=more,
                lowest=lowest),
            row("1M", "copies of a byte of payload", statistics.median(copied), "", found["1M"] + found["256k"], samples=copied)]
    for size in SIZES:
        rows.append(row(size, "cycles_per_byte", statistics.median(each[size]), "cycles", found[size], samples=each[size],
                        **(dict(results.compared(each["1M"], each["256k"], False), reference="256 KiB") if size == "1M" else {}),
                        busy_share=eth.median(found[size], "busy"), cycles_per_message=eth.median(found[size], "cycles_per_message")))
    print(f"\ncopies: net_ring, router and ends in one process with a core each, MTU {MTU}, {PEERS} peers, {ON_THE_WAY >> 20} MiB on the way, "
          f"no checksums, {options.repeat} rounds of {options.seconds:g} s, verify {options.verify}, medians")
    results.print_table(HEAD, [*(line(f"put {size}", found[size]) for size in SIZES),
                               *(line(f"put {size}, each frame copied once", forced[size]) for size in SIZES)])
    print(f"\na byte of 1 MiB costs {statistics.median(more):+.4f} cycles more than one of 256 KiB ({min(more):+.4f} to {max(more):+.4f}; the "
          f"lowest of each {lowest:+.4f}); wanted below {MORE_BAR}: {'reached' if statistics.median(more) < MORE_BAR else 'MISSED'}"
          f"\none copy of each frame would cost {statistics.median(one):+.3f} cycles a byte ({min(one):+.3f} to {max(one):+.3f}), so it is seen; "
          f"copied were {statistics.median(copied):.5f} of a byte")
    return rows
