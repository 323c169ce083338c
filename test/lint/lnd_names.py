#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Nothing outside an LND's folder and the registration in lib/lnds names an LND.

Names are those of nets (o2ib), of the protocols (socklnd, o2iblnd), of the folders' headers and of
their functions and types. ALLOWED lists what may stay, each with its reason. The Ethernet side below
the LND (lib/lnd_eth/port, ip, tcp, ports.h, stream.h) is no LND.
"""
import os
import re
import sys

NAME = re.compile(
    r"o2ib|O2IB|\bverbs|[a-z]_verbs|socklnd|SOCKLND|LNET_LND_SOCK|lnd_sock|lib/lnd_verbs/"
    r"|lib/lnd_eth/(?:lnd_eth\.h|socklnd/)|\bsock_(?:drops|opts|type|code|ops|home)\b|\bib_[a-z]+\b")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ROOMS = ["app", "config", "control", "lib", "rpc"]
OWN = ("lib/lnd_eth/", "lib/lnd_verbs/", "lib/lnds/")
# (file, what may stand there, why)
ALLOWED = [
    (r"lib/lnet/wire/nid\.[ch]", r".*", "the table of LNet's net types and their names"),
    (r"lib/log/log\.[ch]", r"socklnd|SOCKLND", "a module of the log, which documents name"),
    (r"config/config_keys\.c|rpc/methods/log\.def", r"socklnd|SOCKLND", "the same module"),
    (r"app/millrace/(modprobe|convert).*", r".*", "converts options of the two modules that the kernel has"),
    (r"app/millrace/doctor.*", r".*", "looks on the host for what nets of these types need"),
    (r"app/millrace/(complete|node|table)\.c", r"verbs|o2ib", "examples and words of commands"),
    (r"app/millrace/cli\.h|app/millrace-perf/main\.c", r"o2ib", "examples in help texts"),
    (r"config/(config_read|netspec|nid_list|ip2nets)\.[ch]|rpc/engine/.*", r"o2ib|LNET_LND_SOCK",
     "a net in an example or a rule of lnetctl's about tcp"),
    (r"app/millrace-perf/options\.c", r"LNET_LND_SOCK", "tcp is the net when none is given"),
    (r"lib/lnet/.*", r"o2ib|socklnd", "a reference to docs/protocol"),
    (r"app/millrace-perf/(memory\.c|perf\.h)", r"o2ib", "comments: the nets whose devices register memory"),
]


def allowed(path, name):
    return any(re.fullmatch(f, path) and re.fullmatch(n, name) for f, n, _ in ALLOWED)


def main():
    files = [os.path.relpath(os.path.join(folder, name), ROOT)
             for room in ROOMS for folder, _, names in os.walk(os.path.join(ROOT, room)) for name in sorted(names)]
    found = 0
    for path in files:
        if not path.endswith((".c", ".h", ".def")) or path.startswith(OWN):
            continue
        with open(os.path.join(ROOT, path), encoding="utf-8") as f:
            for number, line in enumerate(f, 1):
                for name in {m.group() for m in NAME.finditer(line)}:
                    if not allowed(path, name):
                        print(f"{path}:{number}: {name}: {line.strip()}")
                        found += 1
    print(f"{found} names of LNDs outside their folders and their registration")
    return found > 0


if __name__ == "__main__":
    sys.exit(main())
