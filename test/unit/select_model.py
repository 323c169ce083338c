# SPDX-License-Identifier: BSD-3-Clause
"""A model of path selection, written from docs/protocol/lnet-core.md alone (§6.1, §7, §8).

It is independent: it was written before its author read lib/lnet/path, and it shares no code with lib/.
A situation is a tree of plain objects. Policies are matched here from their text, not taken from the router.

Each choice is a list of criteria in the order of the specification. A criterion gives each candidate a value, and
the lowest value wins. A criterion decides when it leaves fewer candidates than it was given.
"""

import collections

UNSET = 0xffffffff       # §7: the default of each selection priority
HEALTH_MAX = 1000        # §6.1


class Ni:
    """An NI of the router."""

    def __init__(self, nid, health=HEALTH_MAX, fatal=False, credits=0, distance=0, seq=0):
        self.nid, self.health, self.fatal = nid, health, fatal
        self.credits, self.distance, self.seq = credits, distance, seq


class PeerNi:
    """A NID of a peer. prefer_nids and prefer_rtrs come from policies."""

    def __init__(self, nid, health=HEALTH_MAX, credits=0, queued=0, seq=0, up=True):
        self.nid, self.health, self.credits = nid, health, credits
        self.queued, self.seq, self.up = queued, seq, up


class Peer:
    """A peer: its first NID is the primary one."""

    def __init__(self, nis, multi_rail=True):
        self.nis, self.multi_rail = nis, multi_rail


class Route:
    def __init__(self, net, gateway, priority, hops, alive=True, seq=0):
        self.net, self.gateway, self.priority = net, gateway, priority
        self.hops, self.alive, self.seq = hops, alive, seq


class Rule:
    """A selection policy as an operator writes it; each of src, dst and rte is an expression or None."""

    def __init__(self, src=None, dst=None, rte=None, priority=0):
        self.src, self.dst, self.rte, self.priority = src, dst, rte, priority


def net_of(nid):
    return nid.rpartition("@")[2]


# Expressions (§1.5)

def split_net(net):
    """The LND's name and the number of a net: "o2ib3" is o2ib, 3 and "tcp" is tcp, 0."""
    for name in ("lo", "tcp", "o2ib", "gni", "gip", "ptlf", "kfi", "efa", "bxi3f"):
        if net.startswith(name):
            return name, net[len(name):]
    raise ValueError(net)


def in_list(expression, value):
    """True if value is in "5", "*" or "[1,3-9/2]"."""
    if expression == "*":
        return True
    if not expression.startswith("["):
        return int(expression, 0) == value
    for element in expression[1:-1].split(","):
        span, _, stride = element.partition("/")
        low, _, high = span.partition("-")
        low, high = int(low, 0), int(high or low, 0)
        if low <= value <= high and (value - low) % int(stride or 1) == 0:
            return True
    return False


def net_matches(expression, net):
    name, numbers = split_net(expression)
    own_name, own_number = split_net(net)
    return name == own_name and in_list(numbers or "0", int(own_number or 0))


def split_octets(address):
    """Splits at the dots that are not inside brackets. Dots never are, so a plain split does."""
    return address.split(".")


def nid_matches(expression, nid):
    """True if an expression `addr@net` matches nid; an expression without an address matches no NID (§8.1)."""
    address, at, net = expression.rpartition("@")
    if not at or not net_matches(net, net_of(nid)):
        return False
    if address == "*":
        return True
    octets = nid.rpartition("@")[0].split(".")
    if "/" in address and "[" not in address:
        base, bits = address.split("/")
        shift = 32 - int(bits)
        word = lambda parts: sum(int(o) << (24 - 8 * i) for i, o in enumerate(parts))
        return word(base.split(".")) >> shift == word(octets) >> shift
    parts = split_octets(address)
    return len(parts) == len(octets) and all(in_list(p, int(o)) for p, o in zip(parts, octets))


def is_net(expression):
    return "@" not in expression


# Policies (§8.1, §8.2). The lowest index wins where two rules set the same object.

def rule_priority(rules, side, wanted_net, matches):
    """The priority that the first rule with this side alone gives, or UNSET."""
    for rule in rules:
        given = [n for n in ("src", "dst", "rte") if getattr(rule, n)]
        if given == [side] and is_net(getattr(rule, side)) == wanted_net and matches(getattr(rule, side)):
            return rule.priority
    return UNSET


def net_priority(rules, side, net):
    return rule_priority(rules, side, True, lambda e: net_matches(e, net))


def nid_priority(rules, side, nid):
    return rule_priority(rules, side, False, lambda e: nid_matches(e, nid))


def dst_matches(expression, nid):
    """A pair or router rule's destination may be a net: then it matches all peer NIs of that net (§8.1)."""
    return net_matches(expression, net_of(nid)) if is_net(expression) else nid_matches(expression, nid)


def preferred(rules, side, nid, candidates):
    """The preferred list of the peer NI nid: own NIDs (side "src") or gateways' primary NIDs ("rte").

    A list is cleared by each rule that sets it, and rules are applied from the last to the first. So the
    list is that of the first rule that matches the peer NI and a candidate."""
    for rule in rules:
        if not rule.dst or not getattr(rule, side) or not dst_matches(rule.dst, nid):
            continue
        found = [c for c in candidates if nid_matches(getattr(rule, side), c)]
        if found:
            return found
    return []


# Choices (§7)

class Model:
    """Selects in one situation. decided counts the criteria that narrowed a choice, by their names."""

    def __init__(self, nis, peers, routes, rules, numa_range=0, decided=None):
        self.nis, self.peers, self.routes, self.rules = nis, peers, routes, rules
        self.numa_range = numa_range
        self.decided = collections.Counter() if decided is None else decided

    def best(self, candidates, criteria):
        for name, value in criteria:
            values = [value(c) for c in candidates]
            lowest = min(values)
            left = [c for c, v in zip(candidates, values) if v == lowest]
            if len(left) < len(candidates):
                self.decided[name] += 1
            candidates = left
        return candidates[0]

    def own_nids(self):
        return [n.nid for n in self.nis]

    def own_nets(self):
        return list(dict.fromkeys(net_of(n.nid) for n in self.nis))

    def nis_of(self, net):
        return [n for n in self.nis if net_of(n.nid) == net]

    def net_health(self, net):
        """§6.1: the maximum of the NIs that are not fatal."""
        return max((n.health for n in self.nis_of(net) if not n.fatal), default=0)

    def peer_of(self, nid):
        for peer in self.peers:
            if any(p.nid == nid for p in peer.nis):
                return peer
        return None

    def peer_ni(self, nid):
        peer = self.peer_of(nid)
        return next(p for p in peer.nis if p.nid == nid) if peer else None

    def best_ni(self, net):
        """§7.1"""
        return self.best(self.nis_of(net), [
            ("7.1 fatal", lambda n: n.fatal),
            ("7.1 health", lambda n: -n.health),
            ("7.1 priority", lambda n: nid_priority(self.rules, "src", n.nid)),
            ("7.1 distance", lambda n: max(n.distance, self.numa_range)),
            ("7.1 credits", lambda n: -n.credits),
            ("7.1 seq", lambda n: n.seq),
        ])

    def best_local_net(self, peer, nets, peer_net_seq=None, net_seq=None):
        """§7.2: over the peer's nets that are local."""
        zero = lambda net: 0
        return self.best(nets, [
            ("7.2 peer net health",
             lambda net: -max(p.health for p in peer.nis if net_of(p.nid) == net)),
            ("7.2 peer net priority", lambda net: net_priority(self.rules, "dst", net)),
            ("7.2 net health", lambda net: -self.net_health(net)),
            ("7.2 net priority", lambda net: net_priority(self.rules, "src", net)),
            ("7.2 peer net seq", peer_net_seq or zero),
            ("7.2 net seq", net_seq or zero),
        ])

    def best_peer_ni(self, peer, net, ni):
        """§7.3: the best peer NI of peer on net, for the own NI ni."""
        return self.best([p for p in peer.nis if net_of(p.nid) == net], [
            ("7.3 health", lambda p: -p.health),
            ("7.3 priority", lambda p: nid_priority(self.rules, "dst", p.nid)),
            ("7.3 preferred",
             lambda p: ni.nid not in preferred(self.rules, "src", p.nid, self.own_nids())),
            ("7.3 credits", lambda p: -p.credits),
            ("7.3 seq", lambda p: p.seq),
        ])

    def best_route(self, net, dest, local_net=None):
        """§7.4: the route, the own NI and the gateway's NI for net, or None.

        dest is the NID of the final peer NI. local_net restricts the gateways to that net of ours."""
        found = []
        for route in self.routes:
            if route.net != net or not route.alive:
                continue
            hop = self.gateway_pair(route.gateway, local_net)
            if hop:
                found.append((route,) + hop)
        if not found:
            return None
        gateways = list(dict.fromkeys(r.gateway.nis[0].nid for r in self.routes))
        liked = preferred(self.rules, "rte", dest, gateways)
        return self.best(found, [
            ("7.4 preferred router", lambda f: f[0].gateway.nis[0].nid not in liked),
            ("7.4 route priority", lambda f: f[0].priority),
            ("7.4 hops", lambda f: f[0].hops or 1),
            ("7.4 gateway health", lambda f: -f[2].health),
            ("7.4 gateway queued", lambda f: f[2].queued),
            ("7.4 gateway credits", lambda f: -f[2].credits),
            ("7.4 route seq", lambda f: f[0].seq),
        ])

    def gateway_pair(self, gateway, local_net):
        """The gateway's NI by §7.3 over its nets that are local, then the own NI by §7.1 on its net."""
        own = [local_net] if local_net else self.own_nets()
        near = [p for p in gateway.nis if net_of(p.nid) in own]
        if not near:
            return None
        nis = {net_of(p.nid): self.best_ni(net_of(p.nid)) for p in near}
        best = self.best(near, [
            ("7.3 gateway health", lambda p: -p.health),
            ("7.3 gateway priority", lambda p: nid_priority(self.rules, "dst", p.nid)),
            ("7.3 gateway preferred", lambda p: nis[net_of(p.nid)].nid not in preferred(
                self.rules, "src", p.nid, self.own_nids())),
            ("7.3 gateway credits", lambda p: -p.credits),
            ("7.3 gateway seq", lambda p: p.seq),
        ])
        return nis[net_of(best.nid)], best

    # Cases (§7.6, §4.4): each returns the pair (own NID, NID of the next hop), or None.

    def forward(self, source, dest):
        """A message of another node, from source to dest."""
        net = net_of(dest)
        peer = self.peer_of(dest)
        if net in self.own_nets():
            target, origin = self.peer_ni(dest), self.peer_of(source)
            poor = target is not None and (not target.up or target.health < HEALTH_MAX)
            if poor and origin and origin.multi_rail and peer.multi_rail:
                return self.multi_rail(peer)
            return self.best_ni(net).nid, dest
        if peer and peer.multi_rail and self.local_nets_of(peer):
            return self.multi_rail(peer)
        route = self.best_route(net, dest)
        return (route[1].nid, route[2].nid) if route else None

    def local_nets_of(self, peer):
        nets = dict.fromkeys(net_of(p.nid) for p in peer.nis)
        return [net for net in nets if net in self.own_nets()]

    def multi_rail(self, peer):
        net = self.best_local_net(peer, self.local_nets_of(peer))
        ni = self.best_ni(net)
        return ni.nid, self.best_peer_ni(peer, net, ni).nid

    def send_own(self, dest):
        """Our own message with no source given, as to a peer that discovery knows."""
        net, peer = net_of(dest), self.peer_of(dest)
        if peer and peer.multi_rail and self.local_nets_of(peer):
            return self.multi_rail(peer)
        if net in self.own_nets():
            return self.best_ni(net).nid, dest
        route = self.best_route(net, dest)
        return (route[1].nid, route[2].nid) if route else None

    def send_from(self, source, dest):
        """Our own message with a source that is given (§7.6, the first two rows)."""
        if net_of(dest) == net_of(source):
            return source, dest
        route = self.best_route(net_of(dest), dest, net_of(source))
        return (source, route[2].nid) if route else None
