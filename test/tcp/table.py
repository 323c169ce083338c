#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The table of docs/tcp.md: which section of which RFC is shown by which case.

table.py check DOC CASES_DIR    exit 1 unless the table in DOC is that of the case files
table.py write DOC CASES_DIR    write it anew
"""
import pathlib
import re
import sys

BEGIN = "<!-- table of cases: written by test/tcp/table.py, checked by a test -->"
END = "<!-- end of the table -->"

# What a section is about, in our words.
ABOUT = {
    "791 3.1": "IPv4 header",
    "826": "ARP",
    "1122 4.2.2.17": "a window of zero for ever",
    "1122 4.2.3.2": "delayed acknowledgements",
    "1122 4.2.3.3": "when to tell of a window",
    "1122 4.2.3.6": "keepalive",
    "1122 4.2.3.9": "ICMP messages",
    "1191 3": "IPv4: path MTU, its least value",
    "1191 6": "IPv4: path MTU in a host",
    "1191 6.3": "IPv4: path MTU kept and forgotten",
    "2018 2": "SACK agreed",
    "2018 3": "SACK option",
    "2018 4": "SACK: what a receiver tells",
    "2018 5": "SACK: what a sender does with it",
    "2018 8": "SACK: a receiver that takes it back",
    "2525 2.17": "closing with data unread",
    "2883 4": "D-SACK: a segment twice",
    "2883 4.2": "D-SACK: within a stretch out of order",
    "2883 5": "D-SACK: what a sender learns",
    "3042 2": "limited transmit",
    "3168 6.1.1": "ECN agreed",
    "3168 6.1.2": "ECN: the sender",
    "3168 6.1.3": "ECN: the receiver",
    "3522 3.2": "Eifel: needless time-out found",
    "3708 4": "needless retransmission found by D-SACK",
    "4015 3": "Eifel: answer",
    "4821 7.7": "path MTU without ICMP",
    "4987 3.1": "SYN floods: a bound",
    "4987 3.4": "SYN floods: the oldest makes room",
    "4987 3.6": "SYN cookies",
    "5461 4.1": "soft errors",
    "5482": "user timeout",
    "5681 2": "what a duplicate ACK is",
    "5681 3": "congestion control",
    "5681 3.1": "slow start, congestion avoidance",
    "5681 3.2": "fast retransmit, fast recovery",
    "5681 4.1": "after idle time",
    "5681 4.2": "acknowledging out of order",
    "5927 4": "ICMP: is the sequence number out",
    "5927 5.2": "ICMP: hard errors are soft",
    "5927 7": "ICMP: too big",
    "5961 3": "RST in the window",
    "5961 3.2": "RST in the window",
    "5961 4": "SYN on a connection that is up",
    "5961 4.2": "SYN on a connection that is up",
    "5961 5.2": "ACK too old or too new",
    "5961 6": "reassembly is bounded",
    "5961 7": "challenges are limited",
    "6093 4": "urgent data",
    "6191 2": "TIME-WAIT and timestamps",
    "6298 2": "RTO, first values",
    "6298 2.2": "RTO: first sample",
    "6298 2.3": "RTO: later samples",
    "6298 2.4": "RTO: least value",
    "6298 3": "Karn: which samples",
    "6298 4": "clock of samples",
    "6298 5": "RTO timer",
    "6298 5.1": "RTO timer: begins",
    "6298 5.3": "RTO timer: progress",
    "6298 5.4": "RTO timer: what is sent again",
    "6298 5.5": "RTO timer: back-off",
    "6528 3": "initial sequence numbers",
    "6582 3.2": "NewReno",
    "6675 4": "SACK: scoreboard",
    "6675 5": "SACK: loss recovery",
    "6691 2": "MSS and options",
    "6928 2": "initial window of ten segments",
    "6937 3": "proportional rate reduction",
    "7323 2": "window scale",
    "7323 2.2": "window scale agreed",
    "7323 2.3": "window scale, at most 14",
    "7323 3.2": "timestamps agreed",
    "7323 4.1": "round trips by timestamps",
    "7323 4.3": "which timestamp is echoed",
    "7323 5.2": "PAWS: why and what of",
    "7323 5.3": "PAWS",
    "7323 5.4": "timestamp clock",
    "7323 5.5": "PAWS after long idle time",
    "7323 7.1": "timestamps give nothing away",
    "7323 A": "MSS and timestamps",
    "7661 4.3": "a window that was not used does not grow",
    "8201 4": "IPv6: path MTU",
    "8201 5.4": "IPv6: what TCP does with a path MTU",
    "8899 4.3": "path MTU: black holes",
    "8985 6": "RACK",
    "8985 6.2": "RACK: what is lost and when",
    "8985 7": "tail loss probe",
    "8985 7.2": "tail loss probe: its time",
    "8985 7.3": "tail loss probe: what is sent",
    "8985 7.4": "tail loss probe: what it shows",
    "8985 7.4.2": "tail loss probe: a loss it repaired",
    "9293 3.1": "header",
    "9293 3.10.1": "OPEN",
    "9293 3.10.4": "CLOSE",
    "9293 3.10.5": "ABORT",
    "9293 3.10.7.1": "segment arrives: CLOSED",
    "9293 3.10.7.2": "segment arrives: LISTEN",
    "9293 3.10.7.3": "segment arrives: SYN-SENT",
    "9293 3.10.7.4": "segment arrives: other states",
    "9293 3.2": "options",
    "9293 3.3.1": "connections by their four numbers",
    "9293 3.4": "sequence numbers",
    "9293 3.4.1": "initial sequence numbers",
    "9293 3.5": "making a connection",
    "9293 3.5.1": "half-open connections",
    "9293 3.6": "closing a connection",
    "9293 3.6.1": "TIME-WAIT, half-closed connections",
    "9293 3.7.1": "maximum segment size",
    "9293 3.7.4": "Nagle's algorithm (not used)",
    "9293 3.7.5": "path MTU",
    "9293 3.8": "data",
    "9293 3.8.1": "retransmission",
    "9293 3.8.2": "congestion control",
    "9293 3.8.3": "connections given up",
    "9293 3.8.4": "keepalive",
    "9293 3.8.5": "urgent data",
    "9293 3.8.6": "window",
    "9293 3.8.6.1": "window of zero, probes",
    "9293 3.8.6.2.1": "silly window, sender",
    "9293 3.8.6.2.2": "silly window, receiver",
    "9293 3.8.6.3": "delayed acknowledgements",
    "9293 3.9.1": "what the user asks",
    "9293 3.9.2": "what is asked of IP",
    "9293 3.9.2.2": "ICMP messages",
    "9438 1": "CUBIC",
    "9438 4.6": "CUBIC: a loss",
}


def fail(text):
    sys.exit(f"table.py: {text}")


def cases(folder):
    """(file, case, [section…]) of every case."""
    found = []
    for path in sorted(pathlib.Path(folder).glob("*.tcp")):
        name = None
        for line in path.read_text(encoding="utf-8").splitlines():
            word, _, rest = line.strip().partition(" ")
            if word == "case":
                name = rest.strip()
                if any(name == n for _, n, _ in found):
                    fail(f"there are two cases {name}")
                found.append((path.stem, name, []))
            elif word == "rfc" and name:
                found[-1][2].extend(sections(rest))
    for stem, name, secs in found:
        if not secs:
            fail(f"{stem}.{name} names no RFC")
    return found


def sections(text):
    for part in re.sub(r"\([^)]*\)", "", text).split(";"):
        rfc, _, rest = part.strip().partition(" ")
        for section in rest.split(",") if rest.strip() else [""]:
            yield f"{rfc} {section.strip()}".strip()


def order(section):
    rfc, _, rest = section.partition(" ")
    return int(rfc), [(0, int(n), "") if n.isdigit() else (1, 0, n) for n in rest.split(".")]


def table(folder):
    by_section = {}
    every = cases(folder)
    for stem, name, secs in every:
        for section in secs:
            by_section.setdefault(section, []).append(f"{stem}.{name}")
    for section in sorted(by_section, key=order):
        if section not in ABOUT:
            fail(f"what RFC {section} is about is missing in table.py")
    for section in ABOUT:
        if section not in by_section:
            fail(f"no case shows RFC {section} any more")
    lines = [f"{len(every)} cases; those over both families count once.", "",
             "| RFC, section | about | cases |", "|---|---|---|"]
    for section in sorted(by_section, key=order):
        rfc, _, rest = section.partition(" ")
        where = f"{rfc} §{rest}" if rest else rfc
        lines.append(f"| {where} | {ABOUT[section]} | {', '.join(by_section[section])} |")
    return "\n".join(lines)


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in ("check", "write"):
        fail("usage: table.py check|write DOC CASES_DIR")
    doc = pathlib.Path(sys.argv[2])
    text = doc.read_text(encoding="utf-8")
    before, found, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        fail(f"{doc} has no place for the table")
    new = f"{before}{BEGIN}\n{table(sys.argv[3])}\n{END}{after}"
    if sys.argv[1] == "write":
        doc.write_text(new, encoding="utf-8")
    elif new != text:
        fail(f"the table in {doc.name} is not that of the cases: test/tcp/table.py write "
             "docs/tcp.md test/tcp/cases")


main()
