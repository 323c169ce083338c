# SPDX-License-Identifier: BSD-3-Clause
"""A model of path selection, written from docs/protocol/lnet-core.md alone (§1.5, §6.1, §7, §8).

It is independent and shares no code with lib/. Its criteria of §7.1 to §7.4 and its policies were written before their author read
lib/lnet/path; §7.5, the cases of §7.6 and the sequence numbers after that, from the specification. Policies are matched from
their text.

Each choice is a list of criteria in the order of the specification. A criterion gives each candidate a value, and the lowest
value wins.

The router departs from the specification in some points, which docs/protocol-notes.md lists ("Path selection"). The model follows
the router there, and only there.
"""

import collections
import functools

UNSET = 0xffffffff       # §7: the default of each selection priority
HEALTH_MAX = 1000        # §6.1


class Ni:
    """An NI of the router. A seq is the sequence number of the last use."""

    def __init__(self, nid):
        self.nid, self.net = nid, net_of(nid)
        self.health, self.fatal, self.credits, self.seq = HEALTH_MAX, False, 0, 0


class PeerNi:
    """A NID of a peer."""

    def __init__(self, nid):
        self.nid, self.net = nid, net_of(nid)
        self.health, self.credits, self.queued, self.seq = HEALTH_MAX, 0, 0, 0


class Peer:
    """A peer: its first NID is the primary one. net_seq: by net."""

    def __init__(self, nis, multi_rail=True):
        self.nis, self.multi_rail = nis, multi_rail
        self.nets = list(dict.fromkeys(p.net for p in nis))
        self.net_seq = dict.fromkeys(self.nets, 0)
        self.seq = 0    # of a gateway


class Route:
    """A route to net; hops 0: undefined."""

    def __init__(self, net, gateway, priority, hops):
        self.net, self.gateway, self.priority, self.hops = net, gateway, priority, hops
        self.alive = True


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


def address_word(address):
    return sum(int(octet) << (24 - 8 * i) for i, octet in enumerate(address.split(".")))


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
        return address_word(base) >> shift == address_word(nid.rpartition("@")[0]) >> shift
    parts = address.split(".")
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

# What may decide. The credits of peers' NIDs (§7.3) are only known of gateways.
CRITERIA = [
    "7.1 fatal", "7.1 health", "7.1 priority", "7.1 credits", "7.1 seq",
    "7.2 peer net health", "7.2 peer net priority", "7.2 local net health", "7.2 local net priority",
    "7.2 peer net seq", "7.2 local net seq",
    "7.3 health", "7.3 priority", "7.3 preferred", "7.3 seq",
    "7.3 gateway health", "7.3 gateway priority", "7.3 gateway preferred", "7.3 gateway credits", "7.3 gateway seq",
    "7.4 preferred router", "7.4 route priority", "7.4 hops", "7.4 gateway health", "7.4 gateway queued",
    "7.4 gateway credits", "7.4 gateway seq",
    "7.5 health", "7.5 priority", "7.5 seq",
]


def lowest(candidates, value):
    values = [value(c) for c in candidates]
    least = min(values)
    return [c for c, v in zip(candidates, values) if v == least]


class Model:
    """Selects for one message after another, and advances the sequence numbers (§7.6).

    decided: how many choices between candidates a criterion decided, by its name."""

    def __init__(self, nis, peers, routes, rules, decided=None):
        self.nis, self.peers, self.routes, self.rules = nis, peers, routes, rules
        self.decided = collections.Counter() if decided is None else decided
        self.nets = list(dict.fromkeys(n.net for n in nis))
        self.net_seq = dict.fromkeys(self.nets, 0)
        self.own_nids = [n.nid for n in nis]
        self.seq = 0
        # The policies of each object do not change within a situation.
        self.net_priority = functools.lru_cache(None)(lambda side, net: net_priority(rules, side, net))
        self.nid_priority = functools.lru_cache(None)(lambda side, nid: nid_priority(rules, side, nid))
        self.sources = functools.lru_cache(None)(lambda nid: preferred(rules, "src", nid, self.own_nids))
        gateways = list(dict.fromkeys(r.gateway.nis[0].nid for r in routes))
        self.routers = functools.lru_cache(None)(lambda nid: preferred(rules, "rte", nid, gateways))

    def best(self, candidates, criteria):
        """Returns the best candidate. Counts each criterion without which another one would have won."""
        narrowed = []
        for i, (name, value) in enumerate(criteria):
            if len(candidates) == 1:
                break
            left = lowest(candidates, value)
            if len(left) < len(candidates):
                narrowed.append((name, candidates, criteria[i + 1:]))
            candidates = left
        for name, others, rest in narrowed:
            for _, value in rest:
                if len(others) > 1:
                    others = lowest(others, value)
            if others[0] is not candidates[0]:
                self.decided[name] += 1
        return candidates[0]

    def used(self, *objects):
        for o in objects:
            self.seq += 1
            o.seq = self.seq

    def net_used(self, seqs, net):
        self.seq += 1
        seqs[net] = self.seq

    def ni_used(self, ni):
        self.used(ni)
        self.net_used(self.net_seq, ni.net)

    def peer_of(self, nid):
        for peer in self.peers:
            if any(p.nid == nid for p in peer.nis):
                return peer
        return None

    def best_of(self, nis):
        """§7.1, without distances."""
        return self.best(nis, [
            ("7.1 fatal", lambda n: n.fatal),
            ("7.1 health", lambda n: -n.health),
            ("7.1 priority", lambda n: self.nid_priority("src", n.nid)),
            ("7.1 credits", lambda n: -n.credits),
            ("7.1 seq", lambda n: n.seq),
        ])

    def best_ni(self, net):
        return self.best_of([n for n in self.nis if n.net == net])

    def net_health(self, net):
        """§6.1: the maximum of the NIs that are not fatal."""
        return max((n.health for n in self.nis if n.net == net and not n.fatal), default=0)

    def best_local_net(self, peer, nets):
        """§7.2: over the peer's nets that are local."""
        return self.best(nets, [
            ("7.2 peer net health", lambda net: -max(p.health for p in peer.nis if p.net == net)),
            ("7.2 peer net priority", lambda net: self.net_priority("dst", net)),
            ("7.2 local net health", lambda net: -self.net_health(net)),
            ("7.2 local net priority", lambda net: self.net_priority("src", net)),
            ("7.2 peer net seq", lambda net: peer.net_seq[net]),
            ("7.2 local net seq", lambda net: self.net_seq[net]),
        ])

    def best_remote_net(self, peer, nets):
        """§7.5: over the peer's nets that have a route."""
        return self.best(nets, [
            ("7.5 health", lambda net: -max(p.health for p in peer.nis if p.net == net)),
            ("7.5 priority", lambda net: self.net_priority("dst", net)),
            ("7.5 seq", lambda net: peer.net_seq[net]),
        ])

    def best_peer_ni(self, peer, net, ni, section="7.3"):
        """§7.3: the best peer NI of peer on net, or on any net of ours. ni: the chosen NI, or None."""
        return self.best([p for p in peer.nis if (p.net == net if net else p.net in self.nets)], [
            (section + " health", lambda p: -p.health),
            (section + " priority", lambda p: self.nid_priority("dst", p.nid)),
            (section + " preferred", lambda p: not ni or ni.nid not in self.sources(p.nid)),
            (section + " credits", lambda p: -p.credits),
            (section + " seq", lambda p: p.seq),
        ])

    def best_route(self, net, dest, src=None):
        """§7.4: the own NI and the gateway's NI for dest on net, or None. src: the NI that is given."""
        found = []
        for route in self.routes:
            nets = [p.net for p in route.gateway.nis if p.net == src.net] if src else \
                [p.net for p in route.gateway.nis if p.net in self.nets]
            if route.net == net and route.alive and nets:
                hop = self.best_peer_ni(route.gateway, src and src.net, src, "7.3 gateway")
                found.append((route, hop))
        if not found:
            return None
        liked = self.routers(dest)
        route, hop = self.best(found, [
            ("7.4 preferred router", lambda f: f[0].gateway.nis[0].nid not in liked),
            ("7.4 route priority", lambda f: f[0].priority),
            ("7.4 hops", lambda f: f[0].hops or 1),
            ("7.4 gateway health", lambda f: -f[1].health),
            ("7.4 gateway queued", lambda f: f[1].queued),
            ("7.4 gateway credits", lambda f: -f[1].credits),
            ("7.4 gateway seq", lambda f: f[0].gateway.seq),
        ])
        return src or self.best_ni(hop.net), hop, route

    # The cases of §7.6 and §4.4. Each answer is (own NID, NID of the next hop, NID of the destination), or None.

    def routed(self, dest, src=None):
        choice = self.best_route(net_of(dest), dest, src)
        if not choice:
            return None
        ni, hop, route = choice
        self.used(route.gateway, hop)
        self.ni_used(ni)
        return ni.nid, hop.nid, dest

    def forward(self, dest):
        """A message of another node: it goes to the NID in its header."""
        net = net_of(dest)
        if net not in self.nets:
            return self.routed(dest)
        ni = self.best_ni(net)
        self.ni_used(ni)
        return ni.nid, dest, dest

    def own(self, dest):
        """A message of this node that gives no source."""
        peer = self.peer_of(dest)
        if peer and peer.multi_rail:
            return self.own_multi_rail(peer, dest)
        return self.own_fixed(dest)

    def own_multi_rail(self, peer, dest):
        local = [net for net in peer.nets if net in self.nets]
        remote = [net for net in peer.nets if any(r.net == net for r in self.routes)]
        if not local and not remote:
            return None
        net = self.best_local_net(peer, local) if local else self.best_remote_net(peer, remote)
        ni = self.best_ni(net) if local else None
        hop = self.best_peer_ni(peer, net, ni)
        self.net_used(peer.net_seq, net)
        self.used(hop)
        if not local:
            return self.routed(hop.nid)
        self.ni_used(ni)
        return ni.nid, hop.nid, hop.nid

    def own_fixed(self, dest):
        """The source is the peer's preferred NI: the best one, if several are preferred."""
        net = net_of(dest)
        liked = [n for n in self.nis if n.nid in self.sources(dest) and not n.fatal]
        if net in self.nets:
            liked = [n for n in liked if n.net == net]
            ni = self.best_of(liked) if liked else self.best_ni(net)
            self.ni_used(ni)
            return ni.nid, dest, dest
        liked = [n for n in liked if self.best_route(net, dest, n)]
        return self.routed(dest, self.best_of(liked) if liked else None)

    def given(self, ni, dest):
        """A message of this node that gives its source."""
        if ni.net != net_of(dest):
            return self.routed(dest, ni)
        self.ni_used(ni)
        return ni.nid, dest, dest

    def answer(self, ni, dest, via):
        """A REPLY or ACK: back to where the request came from."""
        self.ni_used(ni)
        return ni.nid, via, dest
