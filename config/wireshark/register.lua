-- SPDX-License-Identifier: BSD-3-Clause
-- ---------------------------------------------------------------------------------- registration

for name, proto in pairs(P) do
    local own = {}

    for full, f in pairs(F) do
        if full:match("^[^.]+") == name then
            own[#own + 1] = f
        end
    end
    proto.fields = own
end

function P.socklnd.init()
    streams, asked, answers = {}, {}, {}
    parts, whole_sends, part_frames = {}, {}, {}
end

opcode, dest_qp, packet_number = Field.new("infiniband.bth.opcode"), Field.new("infiniband.bth.destqp"),
                                 Field.new("infiniband.bth.psn")
P.o2iblnd:register_heuristic("infiniband.payload", heuristic_send)
P.o2iblnd:register_heuristic("infiniband.mad.cm.private", heuristic_private)
P.socklnd.prefs.ports = Pref.range("TCP ports", "988", "Ports of the acceptor", 65535)
DissectorTable.get("tcp.port"):add(ports, P.socklnd)

function P.socklnd.prefs_changed()
    if ports ~= P.socklnd.prefs.ports then
        DissectorTable.get("tcp.port"):remove(ports, P.socklnd)
        ports = P.socklnd.prefs.ports
        DissectorTable.get("tcp.port"):add(ports, P.socklnd)
    end
end

-- kfilnd has no transport that Wireshark knows: a user's link type or "Decode as" leads here.
DissectorTable.get("udp.port"):add_for_decode_as(P.kfilnd)
