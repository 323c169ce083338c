-- SPDX-License-Identifier: BSD-3-Clause
-- ---------------------------------------------------------------------------------- socklnd, socklnd.md §1, §2, §4

local ACCEPTOR, LNET, TCP_V1 = 0xacce7100, 0x45726963, 0xeebc0ded
local CTYPES = {[-1] = "NONE", [0] = "ANY", "CONTROL", "BULK_IN", "BULK_OUT"}
local FRAME_TYPES = {[0xc0] = "NOOP", [0xc1] = "LNET"}
local MAGIC, VERSION = {"magic", "x32", "Magic"}, {"version", "u32", "Version"}
local REQ_HEAD = layout("socklnd.req", {MAGIC, VERSION})
local REQ = {[1] = layout("socklnd.req", {{"nid", "nid4", "Target NID"}}),
             [2] = layout("socklnd.req", {{"nid", "nid16", "Target NID"}})}
local REPLY_LAYOUT = layout("socklnd.refusal", {MAGIC, VERSION, {"unused", "le64", "Unused"}})
local HELLO_HEAD = layout("socklnd.hello", {MAGIC, VERSION})
local HELLO_TAIL = {
    {"src_pid", "u32", "Source PID"}, {"dst_pid", "u32", "Destination PID"},
    {"src_incarnation", "x64", "Source incarnation"}, {"dst_incarnation", "x64", "Destination incarnation"},
    {"ctype", "i32", "Connection type", CTYPES}, {"nips", "u32", "Addresses"},
}
local HELLO4 = layout("socklnd.hello", {{"src_nid", "nid4", "Source NID"}, {"dst_nid", "nid4", "Destination NID"},
                                        unpack(HELLO_TAIL)})
local HELLO16 = layout("socklnd.hello", {{"src_nid", "nid16", "Source NID"}, {"dst_nid", "nid16", "Destination NID"},
                                         unpack(HELLO_TAIL)})
local HELLO_IP = layout("socklnd.hello", {{"ip", "ip", "Address"}})
local HELLO_V1 = layout("socklnd.hello", {
    MAGIC, {"major", "u16", "Major version"}, {"minor", "u16", "Minor version"}, {"src_nid", "nid4", "Source NID"},
    {"dst_pid", "u32", "Destination PID"}, {"src_pid", "u32", "Source PID"}, {"type", "u32", "Type"},
    {"payload_length", "u32", "Payload length"}, {"src_incarnation", "x64", "Source incarnation"},
    {"ctype", "i32", "Connection type", CTYPES},
})
local FRAME = layout("socklnd.frame", {
    {"type", "x32", "Type", FRAME_TYPES}, {"csum", "x32", "Checksum of the payload"},
    {"cookie0", "u64", "Cookie 0 (ZC request, or first ZC-ACK)"}, {"cookie1", "u64", "Cookie 1 (ZC-ACK)"},
})
local UNDECODED = field("socklnd.undecoded", ProtoField.bytes, "Bytes that were not decoded")
local FRAME_SIZE, HELLO_MIN, HELLO_V1_SIZE = 24, 8, 72
local NIPS_MAX = 16

local tcp_stream, tcp_dstport = Field.new("tcp.stream"), Field.new("tcp.dstport")
local tcp_lost, tcp_seen = Field.new("tcp.analysis.lost_segment"), Field.new("tcp.completeness")
local streams -- of a file, by number: version of the HELLO, what was found per direction

-- Both byte orders of a word that says what a unit is. Returns swap, or nil.
local function order_of(tvb, off, value)
    if tvb(off, 4):le_uint() == value then
        return false
    elseif tvb(off, 4):uint() == value then
        return true
    end
end

-- Whether the bytes can be a NID of 64 bits of a type that there is.
local function likely_nid4(tvb, off)
    return tvb(off + 7, 1):uint() == 0 and LND_NAMES[tvb(off + 6, 1):uint()] ~= nil
end

local function likely_nid16(tvb, off)
    local size = tvb(off, 1):uint()

    return (size == 0 or size == 12) and LND_NAMES[tvb(off + 1, 1):uint()] ~= nil
end

-- Version of a stream whose HELLO was not captured, from the header of a message.
local function infer_version(tvb, off)
    if tvb:len() < off + HDR4_SIZE then
        return nil
    elseif likely_nid4(tvb, off) and likely_nid4(tvb, off + 8) then
        return 3
    elseif likely_nid16(tvb, off) and likely_nid16(tvb, off + 20) then
        return 4
    end
end

-- What begins at off: {kind, size, fault, swap}. size nil: more bytes must be there before it is known.
-- A fault ends the decoding of the segment behind the unit. Returns nil when nothing begins here.
local function hello_unit(tvb, off, swap)
    if tvb:len() < off + HELLO_MIN then
        return {kind = "hello", swap = swap}
    end
    local version = u32(tvb, off + 4, swap)
    local u = {kind = "hello", swap = swap, version = version}

    if version == 4 then
        u.size = HELLO_MIN + HELLO16.size
    elseif version ~= 2 and version ~= 3 then
        u.size, u.fault = HELLO_MIN, "the version of the HELLO is unknown"
    elseif tvb:len() >= off + HELLO_MIN + HELLO4.size then
        u.nips = u32(tvb, off + 52, swap)
        u.size = HELLO_MIN + HELLO4.size + 4 * (u.nips <= NIPS_MAX and u.nips or 0)
        u.fault = u.nips > NIPS_MAX and "more than 16 addresses" or nil
    end
    return u
end

local function req_unit(tvb, off, swap, to_server)
    local u = {kind = to_server and "req" or "refusal", swap = swap}

    if not to_server then
        u.size = REPLY_LAYOUT.size
    elseif tvb:len() >= off + REQ_HEAD.size then
        u.version = u32(tvb, off + 4, swap)
        if REQ[u.version] then
            u.size = REQ_HEAD.size + REQ[u.version].size
        else
            u.size, u.fault = REQ_HEAD.size, "the version of the acceptor request is unknown"
        end
    end
    return u
end

-- large: 20-byte NIDs. head: bytes before the LNet header.
local function message_unit(tvb, off, u, large, head)
    local size = head + (large and HDR16_SIZE or HDR4_SIZE)

    if tvb:len() < off + size then
        return u
    end
    local at = off + head + (large and 48 or 24)
    local payload = u32(tvb, at + 4, false)

    u.size, u.fault, u.large, u.head = size, message_fault(u32(tvb, at, false), payload), large, head
    if not u.fault then
        u.size = size + payload
    end
    return u
end

local function frame_unit(tvb, off, swap, s)
    local kind = u32(tvb, off, swap)
    local u = {kind = kind == 0xc0 and "noop" or "lnet", swap = swap}

    if kind == 0xc0 then
        u.size = FRAME_SIZE
        return u
    end
    if not s.version then
        s.version = infer_version(tvb, off + FRAME_SIZE)
        s.inferred = s.version ~= nil
    end
    return message_unit(tvb, off, u, s.version == 4, FRAME_SIZE)
end

local function unit_at(tvb, off, s, to_server)
    local swap

    if tvb:len() < off + 4 then
        return {kind = "unknown"}
    end
    swap = order_of(tvb, off, ACCEPTOR)
    if swap ~= nil then
        return req_unit(tvb, off, swap, to_server)
    end
    swap = order_of(tvb, off, LNET)
    if swap ~= nil then
        return hello_unit(tvb, off, swap)
    end
    if tvb(off, 4):le_uint() == TCP_V1 then
        return {kind = "hello1", size = HELLO_V1_SIZE, swap = false}
    elseif s.version == 1 then
        return message_unit(tvb, off, {kind = "lnet", swap = false}, false, 0)
    end
    for kind = 0xc0, 0xc1 do
        swap = order_of(tvb, off, kind)
        if swap ~= nil then
            return frame_unit(tvb, off, swap, s)
        end
    end
end

local function show_req(t, tvb, u)
    put(t, "socklnd", REQ_HEAD, tvb, 0, u.swap)
    if REQ[u.version] then
        local v = put(t, "socklnd", REQ[u.version], tvb, REQ_HEAD.size, u.swap)
        return "connection request for " .. (v.nid or "?")
    end
    return "connection request"
end

local function show_hello(t, tvb, u, s)
    put(t, "socklnd", HELLO_HEAD, tvb, 0, u.swap)
    if u.size <= HELLO_MIN or not u.version then
        return "HELLO"
    end
    s.version = u.version
    local rows = u.version == 4 and HELLO16 or HELLO4
    local v = put(t, "socklnd", rows, tvb, HELLO_MIN, u.swap, true)
    local ctype = v.ctype and (v.ctype < 2147483648 and v.ctype or v.ctype - 4294967296)

    if v.src_nid == "<?>" then
        complain(t, MALFORMED.socklnd, "the source is the wildcard NID")
    elseif ctype and not CTYPES[ctype] then
        complain(t, MALFORMED.socklnd, "the connection type is unknown")
    end
    for i = 1, u.version ~= 4 and not u.fault and u.nips or 0 do
        local at = HELLO_MIN + rows.size + 4 * i - 4

        put(t, "socklnd", HELLO_IP, tvb, at, u.swap)
        if at + 4 <= tvb:len() and tvb(at, 4):uint() == 0 then
            complain(t, MALFORMED.socklnd, "an address is zero")
        end
    end
    return string.format("HELLO v%u %s, %s", u.version, CTYPES[ctype] or "?", v.src_nid or "?")
end

local function show_frame(t, tvb, u)
    local v = put(t, "socklnd", FRAME, tvb, 0, u.swap)

    if u.kind == "lnet" then
        return nil
    elseif v.csum and v.csum ~= 0 and v.csum ~= 4294967295 then
        complain(t, MALFORMED.socklnd, "a NOOP with a checksum")
    end
    if not v.cookie1 then
        return "NOOP"
    end
    local first, second = tostring(v.cookie0), tostring(v.cookie1)
    if second == "1" and first ~= "0" and first ~= "1" then
        complain(t, MALFORMED.socklnd, "the cookie of the keepalive with another")
    end
    if second == "0" then
        return "NOOP"
    elseif second == "1" then
        return "keepalive"
    elseif first == "0" or first == second then
        return "ZC-ACK of " .. second
    end
    return string.format("ZC-ACK of %s%s%s", first, v.cookie0 < v.cookie1 and ".." or ", ", second)
end

-- socklnd.md §4.6: of the payload alone, seed all ones, no inversion at the end.
local function crc32(tvb, off)
    local crc, bytes = 4294967295, tvb(off):bytes()

    for i = 0, bytes:len() - 1 do
        crc = bit32.bxor(crc, bytes:get_index(i))
        for _ = 1, 8 do
            crc = bit32.bxor(bit32.rshift(crc, 1), crc % 2 == 1 and 0xedb88320 or 0)
        end
    end
    return crc
end

-- A checksum is seldom there: nodes of today send none. Version 2 has another coverage.
local function check_payload(t, tvb, u, s)
    local csum = u.head > 0 and tvb:len() >= FRAME_SIZE and u32(tvb, 4, u.swap) or 0
    local off = u.head + (u.large and HDR16_SIZE or HDR4_SIZE)

    if csum == 0 or u.fault or s.version == 2 or tvb:len() < tvb:reported_len() then
        return
    elseif csum ~= (tvb:len() > off and crc32(tvb, off) or 4294967295) then
        complain(t, MALFORMED.socklnd, "the checksum is not that of the payload")
    end
end

local function show_unit(tvb, pinfo, root, u, s)
    local head = u.kind == "lnet" and u.head > 0 and FRAME_SIZE or tvb:len()
    local t = begin("socklnd", root, tvb(0, math.min(tvb:len(), head)), pinfo)
    local line

    show_order(t, "socklnd", u.swap)
    if u.kind == "req" then
        line = show_req(t, tvb, u)
    elseif u.kind == "refusal" then
        put(t, "socklnd", REPLY_LAYOUT, tvb, 0, u.swap)
        line = "acceptor refuses"
    elseif u.kind == "hello" then
        line = show_hello(t, tvb, u, s)
    elseif u.kind == "hello1" then
        put(t, "socklnd", HELLO_V1, tvb, 0, false)
        s.version, line = 1, "HELLO v1"
    elseif u.head ~= 0 then
        line = show_frame(t, tvb, u)
    end
    if line then
        t:append_text(", " .. line)
        say(pinfo, line)
    end
    if u.unasked then
        complain(t, MALFORMED.socklnd, "a HELLO without a connection request before it")
    end
    if u.fault and u.kind ~= "lnet" then
        complain(t, MALFORMED.socklnd, u.fault)
    end
    if s.inferred and u.kind == "lnet" then
        s.noted = s.noted or pinfo.number
        if s.noted == pinfo.number then
            complain(t, NOTE.socklnd, "the HELLO was not captured: the form of the header is inferred")
        end
    end
    if u.kind == "lnet" then
        check_payload(t, tvb, u, s)
        if tvb:len() > u.head then
            dissect_message(tvb(u.head):tvb(), pinfo, root, u.large, nil)
        else
            complain(t, INCOMPLETE.socklnd, "the capture ends before the message")
        end
    end
end

-- Bytes in which no unit begins. Which of the reasons it is, is decided in the first pass.
local function show_undecoded(tvb, off, pinfo, root, d)
    local t = begin("socklnd", root, tvb(off), pinfo)
    local key = pinfo.number .. "/" .. off

    if not pinfo.visited then
        d.why[key] = d.synced and "bytes that begin no unit" or d.lost or
                         "the capture begins in the middle of a message"
        d.bad[key], d.synced = d.synced, false
        d.lost = d.bad[key] and "what follows bytes that begin no unit" or d.lost
    end
    say(pinfo, "undecoded bytes")
    t:add(UNDECODED, tvb(off))
    complain(t, (d.bad[key] and MALFORMED or NOTE).socklnd, d.why[key] or "bytes that begin no unit")
end

local function stream_state(pinfo, to_server)
    local n = tcp_stream() and tcp_stream().value or -1

    if not streams[n] then
        -- Where the SYN was captured the first bytes are the beginning.
        local begun = tcp_seen() and tcp_seen().value % 4 > 0

        streams[n] = {}
        for _, way in ipairs({true, false}) do
            streams[n][way] = {why = {}, bad = {}, synced = begun, begun = begun}
        end
    end
    local d = streams[n][to_server]
    if not pinfo.visited and tcp_lost() then
        d.synced, d.lost = false, "a segment before this one was not captured"
    end
    return streams[n], d
end

local ports = "988"

local function is_server_port(port)
    for first, last in ports:gmatch("(%d+)%s*-?%s*(%d*)") do
        if port >= tonumber(first) and port <= (tonumber(last) or tonumber(first)) then
            return true
        end
    end
    return false
end

-- The unit goes on in the next segment: asks for it. False: it cannot be had.
local function want_more(tvb, pinfo, off, u)
    if pinfo.can_desegment == 0 or tvb:len() < tvb:reported_len() then
        return false
    end
    pinfo.desegment_offset = off
    pinfo.desegment_len = u.size and off + u.size - tvb:len() or DESEGMENT_ONE_MORE_SEGMENT
    return true
end

local function dissect_segment(tvb, pinfo, root, s, d, to_server)
    local off = 0

    while off < tvb:len() do
        local u = unit_at(tvb, off, s, to_server)

        if u and (u.kind == "hello" or u.kind == "hello1") then
            u.unasked = to_server and d.begun and not d.requested
            u.size = u.size or u.unasked and tvb:len() - off or nil
        end
        if not u then
            return show_undecoded(tvb, off, pinfo, root, d)
        elseif (not u.size or off + u.size > tvb:len()) and want_more(tvb, pinfo, off, u) then
            return
        end
        d.requested = d.requested or u.kind == "req"
        d.synced = true
        u.head = u.head or FRAME_SIZE
        u.size = math.min(u.size or tvb:len() - off, tvb:len() - off)
        show_unit(tvb(off, u.size):tvb(), pinfo, root, u, s)
        pinfo.cols.info:fence()
        off = off + u.size
        if u.fault and off < tvb:len() then
            return show_undecoded(tvb, off, pinfo, root, d)
        end
    end
end

function P.socklnd.dissector(tvb, pinfo, root)
    local to_server = tcp_dstport() ~= nil and is_server_port(tcp_dstport().value)
    local s, d = stream_state(pinfo, to_server)

    pinfo.cols.protocol = "socklnd"
    pinfo.cols.info:clear()
    dissect_segment(tvb, pinfo, root, s, d, to_server)
    if not pinfo.visited and tvb:len() < tvb:reported_len() then
        d.synced, d.lost = false, "a segment before this one was not captured whole"
    end
    return tvb:len()
end
