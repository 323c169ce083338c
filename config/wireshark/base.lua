-- SPDX-License-Identifier: BSD-3-Clause
--
-- Wireshark dissector for LNet: socklnd on TCP, o2iblnd on RDMA with the private data of its
-- connection manager, kfilnd messages, LNet message headers, ping infos, lnet_selftest.
--
--   tshark -X lua_script:millrace.lua -r FILE
--
-- Written from docs/protocol alone, so that it can be compared with Millrace's own decoders, with
-- which it shares nothing. The names of its protocols and fields begin with socklnd, lnetmsg,
-- lnetping, lst, o2iblnd and kfilnd; Wireshark has an older dissector of its own by the name of lnet.
--
-- The build puts the parts together to one file, in the order base, message, socklnd, rdma, register,
-- so the locals of a part are there for the later ones.
--
-- Each layout below is a list of rows {name, kind, label, names of values}. Before a row is read its
-- bytes are known to be there: malformed and cut messages end in an expert info, never in an error.

local MAX_PAYLOAD = 1048576

-- ---------------------------------------------------------------------------------- protocols

local PROTOS = {
    {"socklnd", "LNet socklnd"},
    {"lnetmsg", "LNet message"},
    {"lnetping", "LNet ping info"},
    {"lst", "LNet selftest"},
    {"o2iblnd", "LNet o2iblnd"},
    {"kfilnd", "LNet kfilnd"},
}
local P = {}        -- protocols by name
local F = {}        -- fields by full name
local MALFORMED, NOTE, INCOMPLETE = {}, {}, {} -- expert infos by protocol

for _, p in ipairs(PROTOS) do
    local name = p[1]

    P[name] = Proto(name, p[2])
    MALFORMED[name] = ProtoExpert.new(name .. ".malformed", "Malformed", expert.group.MALFORMED,
                                      expert.severity.ERROR)
    INCOMPLETE[name] = ProtoExpert.new(name .. ".incomplete", "Not captured whole",
                                       expert.group.UNDECODED, expert.severity.NOTE)
    NOTE[name] = ProtoExpert.new(name .. ".note", "Note", expert.group.PROTOCOL,
                                 expert.severity.NOTE)
    P[name].experts = {MALFORMED[name], INCOMPLETE[name], NOTE[name]}
end

-- ---------------------------------------------------------------------------------- integers and NIDs
-- swap: the sender's byte order is big-endian.

local function u16(tvb, off, swap)
    return swap and tvb(off, 2):uint() or tvb(off, 2):le_uint()
end

local function u32(tvb, off, swap)
    return swap and tvb(off, 4):uint() or tvb(off, 4):le_uint()
end

local LND_NAMES = {
    [2] = "tcp", [5] = "o2ib", [9] = "lo", [13] = "gni", [14] = "gip", [15] = "ptlf", [16] = "kfi",
    [18] = "efa", [19] = "bxi3f",
}
local LND_HAS_IP = {[2] = true, [5] = true, [14] = true, [18] = true}

local function net_text(lnd, num)
    if not LND_NAMES[lnd] then
        return string.format("<%u:%u>", lnd, num)
    end
    return num == 0 and LND_NAMES[lnd] or LND_NAMES[lnd] .. num
end

-- A NID with an address of four bytes, as a number.
local function nid_text(lnd, num, addr)
    local text

    if LND_HAS_IP[lnd] then
        text = string.format("%u.%u.%u.%u", math.floor(addr / 16777216), math.floor(addr / 65536) % 256,
                             math.floor(addr / 256) % 256, addr % 256)
    elseif lnd == 9 then
        text = "0"
    else
        text = string.format(LND_NAMES[lnd] and "%u" or "%x", addr)
    end
    return text .. "@" .. net_text(lnd, num)
end

-- lnet-core.md §1.1. Returns the text, and what is wrong with it.
local function nid4(tvb, off, swap)
    local function byte(i)
        return tvb(off + (swap and 7 - i or i), 1):uint()
    end
    local lnd, num = byte(6), u16(tvb, off + (swap and 2 or 4), swap)
    local addr = u32(tvb, off + (swap and 4 or 0), swap)

    if byte(7) == 255 and lnd == 255 and num == 65535 and addr == 4294967295 then
        return "<?>", "a wildcard NID"
    end
    return nid_text(lnd, num, addr), (byte(7) ~= 0 or lnd == 255) and "no NID of 64 bits"
end

-- The longest run of at least two zero words becomes "::".
local function ipv6_text(tvb, off)
    local words, at, best, n = {}, 1, 0, 0

    for i = 1, 8 do
        words[i] = tvb(off + 2 * i - 2, 2):uint()
        n = words[i] == 0 and n + 1 or 0
        if n > best then
            at, best = i - n + 1, n
        end
    end
    for i = 1, 8 do
        words[i] = string.format("%x", words[i])
    end
    if best < 2 then
        return table.concat(words, ":")
    end
    return table.concat(words, ":", 1, at - 1) .. "::" .. table.concat(words, ":", at + best, 8)
end

-- lnet-core.md §1.2.
local function nid16(tvb, off)
    local size, lnd, num = tvb(off, 1):uint(), tvb(off + 1, 1):uint(), tvb(off + 2, 2):uint()
    local words, bad = {}, false

    if lnd == 255 then
        return "<?>", "a wildcard NID"
    end
    if size > 12 then
        return string.format("?@%s", net_text(lnd, num)), "a NID with an address longer than 16 bytes"
    end
    for i = size + 4, 15 do
        bad = bad or tvb(off + 4 + i, 1):uint() ~= 0
    end
    bad = bad and "a NID with bytes behind its address"
    if size == 0 then
        return nid_text(lnd, num, tvb(off + 4, 4):uint()), bad
    elseif size == 12 and LND_HAS_IP[lnd] then
        return ipv6_text(tvb, off + 4) .. "@" .. net_text(lnd, num), bad
    end
    for i = 0, math.floor((size + 3) / 4) do
        words[#words + 1] = string.format("%x", tvb(off + 4 + 4 * i, 4):uint())
    end
    return string.format("%s@<%u:%u>", table.concat(words, ":"), lnd, num), bad
end

-- ---------------------------------------------------------------------------------- layouts

local KINDS = { -- bytes, constructor of the field, base
    u8 = {1, ProtoField.uint8, base.DEC}, x8 = {1, ProtoField.uint8, base.HEX},
    u16 = {2, ProtoField.uint16, base.DEC}, x16 = {2, ProtoField.uint16, base.HEX},
    u32 = {4, ProtoField.uint32, base.DEC}, x32 = {4, ProtoField.uint32, base.HEX},
    i32 = {4, ProtoField.int32, base.DEC},
    u64 = {8, ProtoField.uint64, base.DEC}, x64 = {8, ProtoField.uint64, base.HEX},
    le64 = {8, ProtoField.uint64, base.HEX}, -- opaque to all but the node that made it
    nid4 = {8, ProtoField.string}, nid16 = {20, ProtoField.string}, nid4le = {8, ProtoField.string},
    name = {32, ProtoField.string}, ip = {4, ProtoField.ipv4}, gap = {4},
}

local function field(name, constructor, label, ...)
    if not F[name] then
        F[name] = constructor(name, label, ...)
    end
    return F[name]
end

-- Makes a layout: the fields of its rows have names that begin with prefix. Rows of two layouts with
-- one name are one field.
local function layout(prefix, rows)
    local out = {size = 0}

    for _, row in ipairs(rows) do
        local kind = KINDS[row[2]]
        local name = prefix .. "." .. row[1]
        local r = {name = row[1], kind = row[2], size = kind[1]}

        if kind[3] then
            r.field = field(name, kind[2], row[3], kind[3], row[4])
        elseif kind[2] then
            r.field = field(name, kind[2], row[3])
        end
        r.label = row[3]
        out[#out + 1] = r
        out.size = out.size + r.size
    end
    return out
end

local function complain(t, what, text)
    t:add_proto_expert_info(what, text)
end

local function add_nid(t, proto, row, range, text, bad, any_ok)
    local item = t:add(row.field, range, text)

    if bad and not (any_ok and text == "<?>") then
        complain(item, MALFORMED[proto], row.label .. " is " .. bad)
    end
    return text
end

-- Adds the rows of a layout at off and returns their values by name, and whether all were there.
local function put(t, proto, rows, tvb, off, swap, any_ok)
    local v = {}

    for _, r in ipairs(rows) do
        if off + r.size > tvb:len() then
            complain(t, INCOMPLETE[proto], "the capture ends before " .. r.label)
            return v, false
        end
        local range, order = tvb(off, r.size), swap and "add" or "add_le"

        if r.kind == "nid4" then
            v[r.name] = add_nid(t, proto, r, range, nid4(tvb, off, swap))
        elseif r.kind == "nid4le" then
            local text, bad = nid4(tvb, off, false)
            v[r.name] = add_nid(t, proto, r, range, text, bad, any_ok)
        elseif r.kind == "nid16" then
            local text, bad = nid16(tvb, off)
            v[r.name] = add_nid(t, proto, r, range, text, bad, any_ok)
        elseif r.kind == "name" then
            v[r.name] = range:stringz()
            t:add(r.field, range, v[r.name])
        elseif r.kind == "le64" then
            t:add_le(r.field, range)
        elseif r.kind ~= "gap" then
            t[order](t, r.field, range)
            if r.size <= 4 then
                v[r.name] = swap and range:uint() or range:le_uint()
            else
                v[r.name] = swap and range:uint64() or range:le_uint64()
            end
        end
        off = off + r.size
    end
    return v, true
end

-- Appends to the line of the packet.
local function say(pinfo, text)
    pinfo.cols.info:append((tostring(pinfo.cols.info) == "" and "" or "; ") .. text)
end

-- Begins the tree of a protocol.
local function begin(proto, root, range, pinfo)
    pinfo.cols.protocol = proto == "lnetmsg" and "LNet" or proto
    return root:add(P[proto], range)
end

local BIG_ENDIAN = {}

for _, p in ipairs(PROTOS) do
    BIG_ENDIAN[p[1]] = field(p[1] .. ".big_endian", ProtoField.bool, "Sender is big-endian")
end

local function show_order(t, proto, swap)
    if swap then
        t:add(BIG_ENDIAN[proto], true)
    end
end
