-- SPDX-License-Identifier: BSD-3-Clause
-- ---------------------------------------------------------------------------------- ping info, lnet-core.md §3.2

local PING_MAGIC = 0x70696e67
local UP, DOWN = 0x15aac0de, 0xdeadface
local STATUS = {[UP] = "UP", [DOWN] = "DOWN", [0] = "invalid"}
local FEATURES = {
    {1, "base"}, {2, "ni_status"}, {4, "routing_disabled"}, {8, "multi_rail"}, {16, "discovery"},
    {32, "large_addr"}, {64, "primary_large"}, {128, "metadata"},
}
local PING_HEAD = layout("lnetping", {
    {"magic", "x32", "Magic"}, {"features", "x32", "Features"}, {"pid", "u32", "PID"},
    {"nnis", "u32", "NIs with a NID of 64 bits"},
})
local PING_LO = layout("lnetping", {
    {"lo", "nid4", "Loopback NID"}, {"seqno", "u32", "Sequence number"}, {"size", "u32", "Size of the info"},
})
local PING_NI = layout("lnetping", {
    {"nid", "nid4", "NID"}, {"status", "x32", "Status", STATUS}, {"unused", "gap", "Unused"},
})
local PING_STATUS = layout("lnetping", {{"status", "x32", "Status", STATUS}})
local PING_LARGE = layout("lnetping", {{"nid", "nid16", "NID"}})

for _, f in ipairs(FEATURES) do
    f[3] = field("lnetping.feature." .. f[2], ProtoField.bool, f[2], 32, nil, f[1])
end

-- Entries with a NID of more than 4 address bytes; each is as long as its NID says.
local function ping_large(t, tvb, off, stop, swap)
    while off + 8 <= stop do
        local size = tvb(off + 4, 1):uint()
        local used = 4 + math.floor((size + 8 + 3) / 4) * 4

        if size > 12 or off + used > stop then
            if size > 12 then
                complain(t, MALFORMED.lnetping, "an entry whose NID is longer than 20 bytes")
            end
            return
        end
        -- The entry holds as much of the NID as its address needs; the rest of the 20 bytes is zero.
        local bytes = tvb(off + 4, size + 8):bytes()
        bytes:set_size(20)
        put(t, "lnetping", PING_LARGE, bytes:tvb("NID"), 0, swap)
        put(t, "lnetping", PING_STATUS, tvb, off, swap)
        off = off + used
    end
end

-- all: no byte of the payload is missing in the capture.
local function dissect_ping(tvb, pinfo, root, all)
    local t = begin("lnetping", root, tvb(), pinfo)
    local swap = tvb:len() >= 4 and tvb(0, 4):uint() == PING_MAGIC
    local head, whole = put(t, "lnetping", PING_HEAD, tvb, 0, swap)
    local off = PING_HEAD.size

    if not whole then
        return all and complain(t, MALFORMED.lnetping, "the info is shorter than its first 16 bytes")
    elseif head.magic ~= PING_MAGIC then
        return complain(t, MALFORMED.lnetping, "the magic of a ping info is another")
    end
    local features = t:add("Features")
    for _, f in ipairs(FEATURES) do
        features[swap and "add" or "add_le"](features, f[3], tvb(4, 4))
    end
    show_order(t, "lnetping", swap)
    if math.floor(head.features / 2) % 2 == 0 then
        return complain(t, MALFORMED.lnetping, "the feature ni_status is not set")
    elseif head.nnis < 1 or head.nnis > 4096 then
        return complain(t, MALFORMED.lnetping, "no or too many NIs")
    end
    local lo, has_lo = put(t, "lnetping", PING_LO, tvb, off, swap)
    if not has_lo then
        return
    elseif lo.lo ~= "0@lo" then
        return complain(t, MALFORMED.lnetping, "the first entry is not 0@lo")
    end
    off = off + PING_LO.size
    for _ = 2, head.nnis do
        if not select(2, put(t, "lnetping", PING_NI, tvb, off, swap)) then
            return
        end
        off = off + PING_NI.size
    end
    if math.floor(head.features / 32) % 2 == 1 then
        local size = lo.size - lo.size % 4

        if size < off then
            return complain(t, MALFORMED.lnetping, "the size is less than that of the entries")
        end
        ping_large(t, tvb, off, math.min(size, tvb:len()), swap)
    end
end

-- ---------------------------------------------------------------------------------- lnet_selftest, selftest.md §2

local LST_MAGIC = 0xeeb0f00d
local LST_TYPES = {
    [0] = "MAKE_SESSION", "MAKE_SESSION reply", "REMOVE_SESSION", "REMOVE_SESSION reply", "BATCH",
    "BATCH reply", "QUERY_STAT", "QUERY_STAT reply", "TEST", "TEST reply", "DEBUG", "DEBUG reply",
    "BRW", "BRW reply", "PING", "PING reply", "JOIN", "JOIN reply",
}
local LST_HEAD = layout("lst", {
    {"magic", "x32", "Magic"}, {"version", "u32", "Version"}, {"type", "u32", "Type", LST_TYPES},
    {"reserved1", "gap", "Reserved"}, {"reserved2", "gap", "Reserved"},
    {"features", "x32", "Session features"},
})
local RPYID, BULKID = {"rpyid", "x64", "Match bits of the reply"}, {"bulkid", "x64", "Match bits of the bulk"}
local SID, STAMP = {"sid", "nid4", "Session NID"}, {"stamp", "u64", "Session stamp"}
local ERROR, TIMEOUT = {"status", "u32", "Status (errno)"}, {"timeout", "u32", "Timeout (s)"}
local NAME, BATCH = {"name", "name", "Name"}, {"batch", "x64", "Batch"}
local BRW_OPS = {"read", "write"}
local BRW_FLAGS = {"none", "simple", "full", "discard"}
local STAT = {ERROR, SID, STAMP}

for _, name in ipairs({"running_ms", "active_batches", "zombie_sessions", "brw_errors", "ping_errors", "rpc_errors",
                       "rpc_sent", "rpc_rcvd", "rpc_dropped", "rpc_expired"}) do
    STAT[#STAT + 1] = {name, "u32", name}
end
STAT[#STAT + 1] = {"bulk_get", "u64", "bulk_get"}
STAT[#STAT + 1] = {"bulk_put", "u64", "bulk_put"}
for _, name in ipairs({"msgs_alloc", "msgs_max", "errors", "send_count", "recv_count", "route_count", "drop_count"}) do
    STAT[#STAT + 1] = {name, "u32", name}
end
for _, name in ipairs({"send_length", "recv_length", "route_length", "drop_length"}) do
    STAT[#STAT + 1] = {name, "u64", name}
end

local LST_BODIES = {
    [0] = layout("lst", {RPYID, SID, STAMP, {"force", "u32", "Force"}, NAME}),
    layout("lst", {ERROR, SID, STAMP, TIMEOUT, NAME}),
    layout("lst", {RPYID, SID, STAMP}),
    layout("lst", {ERROR, SID, STAMP}),
    layout("lst", {RPYID, SID, STAMP, BATCH, {"opcode", "u32", "Operation", {"run", "stop", "query"}},
                   {"index", "u32", "Test index"}, {"arg", "u32", "Argument"}}),
    layout("lst", {ERROR, SID, STAMP, {"active", "u32", "Active"}, {"time", "u32", "Time"}}),
    layout("lst", {RPYID, SID, STAMP, {"stat_type", "u32", "Kind of statistics"}}),
    layout("lst", STAT),
    layout("lst", {RPYID, BULKID, SID, STAMP, BATCH, {"service", "u32", "Service", {[11] = "BRW", [12] = "PING"}},
                   {"loop", "i32", "Loop"}, {"concurrency", "u32", "Concurrency"}, {"is_client", "u8", "Client"},
                   {"stop_on_error", "u8", "Stop on error"}, {"ndest", "u32", "Destinations"}}),
    layout("lst", {ERROR, SID, STAMP}),
    layout("lst", {RPYID, SID, STAMP, {"debug_flags", "u32", "Flags"}}),
    layout("lst", {ERROR, SID, STAMP, TIMEOUT, {"nbatch", "u32", "Batches"}, NAME}),
    layout("lst", {RPYID, BULKID, {"rw", "u32", "Operation", BRW_OPS}, {"length", "u32", "Length"},
                   {"flags", "u32", "Check", BRW_FLAGS}}),
    layout("lst", {ERROR}),
    layout("lst", {RPYID, {"ping_magic", "x32", "Magic"}, {"seq", "u32", "Sequence number"},
                   {"seconds", "u64", "Seconds"}, {"nanoseconds", "u64", "Nanoseconds"}}),
    layout("lst", {ERROR, {"ping_magic", "x32", "Magic"}, {"seq", "u32", "Sequence number"}}),
    layout("lst", {RPYID, SID, STAMP, NAME}),
    layout("lst", {ERROR, SID, STAMP, TIMEOUT, NAME}),
}
local TEST_PING = layout("lst", {{"ping_size", "u32", "Size"}, {"ping_flags", "u32", "Flags"}})
local TEST_BULK0 = layout("lst", {{"rw", "u32", "Operation", BRW_OPS}, {"pages", "u32", "Pages"},
                                  {"flags", "u32", "Check", BRW_FLAGS}})
local TEST_BULK1 = layout("lst", {{"test_rw", "u16", "Operation", BRW_OPS}, {"test_flags", "u16", "Check", BRW_FLAGS},
                                  {"length", "u32", "Length"}, {"offset", "u32", "Offset"}})
local LST_SIZE, LST_BODY, LST_TEST, TYPE_TEST = 160, 24, 82, 8

local function lst_swap(tvb) -- nil: it is none
    if tvb:len() < 4 then
        return nil
    elseif tvb(0, 4):le_uint() == LST_MAGIC then
        return false
    elseif tvb(0, 4):uint() == LST_MAGIC then
        return true
    end
end

local function dissect_lst(tvb, pinfo, root)
    local swap = lst_swap(tvb)
    local t = begin("lst", root, tvb(), pinfo)
    local head, whole = put(t, "lst", LST_HEAD, tvb, 0, swap)
    local rows = LST_BODIES[head.type]

    if not whole then
        return
    end
    pinfo.cols.info:append(", selftest " .. (LST_TYPES[head.type] or "of unknown type " .. head.type))
    show_order(t, "lst", swap)
    if tvb:reported_len() ~= LST_SIZE then
        complain(t, MALFORMED.lst, "the message has not 160 bytes")
    elseif head.version ~= 1 then
        complain(t, MALFORMED.lst, "the version is not 1")
    end
    if not rows then
        return complain(t, MALFORMED.lst, "the type is unknown")
    end
    local body = put(t, "lst", rows, tvb, LST_BODY, swap)
    if head.type ~= TYPE_TEST or not body.service then
        return
    elseif body.service == 12 then
        put(t, "lst", TEST_PING, tvb, LST_TEST, swap)
    elseif body.service == 11 then
        put(t, "lst", head.features % 2 == 1 and TEST_BULK1 or TEST_BULK0, tvb, LST_TEST, swap)
    end
end

-- ---------------------------------------------------------------------------------- LNet message, lnet-core.md §2

local MSG_TYPES = {[0] = "ACK", "PUT", "GET", "REPLY", "HELLO"}
local ACK, PUT, GET, REPLY = 0, 1, 2, 3
local HDR_TAIL = {
    {"dest_pid", "u32", "Destination PID"}, {"src_pid", "u32", "Source PID"}, {"type", "u32", "Type", MSG_TYPES},
    {"payload_length", "u32", "Payload length"},
}
local HDR4 = layout("lnetmsg", {{"dest_nid", "nid4", "Destination NID"}, {"src_nid", "nid4", "Source NID"},
                                unpack(HDR_TAIL)})
local HDR16 = layout("lnetmsg", {{"dest_nid", "nid16", "Destination NID"}, {"src_nid", "nid16", "Source NID"},
                                 unpack(HDR_TAIL)})
local HDR4_SIZE, HDR16_SIZE, BODY_SIZE = 72, 96, 40
local HANDLE1 = {"handle_interface", "le64", "Handle, interface cookie"}
local HANDLE2 = {"handle_object", "le64", "Handle, object cookie"}
local MATCH, PORTAL = {"match_bits", "x64", "Match bits"}, {"portal", "u32", "Portal"}
local BODIES = {
    [ACK] = layout("lnetmsg", {HANDLE1, HANDLE2, MATCH, {"mlength", "u32", "Length stored"}}),
    [PUT] = layout("lnetmsg", {HANDLE1, HANDLE2, MATCH, {"hdr_data", "le64", "Header data"}, PORTAL,
                               {"offset", "u32", "Offset"}}),
    [GET] = layout("lnetmsg", {HANDLE1, HANDLE2, MATCH, PORTAL, {"src_offset", "u32", "Offset at the source"},
                               {"sink_length", "u32", "Length of the sink"}}),
    [REPLY] = layout("lnetmsg", {HANDLE1, HANDLE2}),
}
local PAYLOAD = field("lnetmsg.payload", ProtoField.bytes, "Payload")
local ANSWER_TO = field("lnetmsg.request_in", ProtoField.framenum, "Answer to the request in", base.NONE,
                        frametype.REQUEST)
local PING_MATCH = "8000000000000000"
-- Of a file: frames of PUTs and GETs, and whether they were of the ping portal, by handle; and what each answer found then.
local asked, answers

-- Returns what is wrong with a type and a payload length.
local function message_fault(kind, payload)
    if kind > REPLY then
        return "the type of the message is unknown"
    elseif payload > MAX_PAYLOAD then
        return "the payload is longer than 1 MiB"
    elseif (kind == ACK or kind == GET) and payload ~= 0 then
        return "an ACK or a GET with payload"
    end
end

-- Remembers requests by their handle; returns the request that a REPLY or ACK answers.
local function match_request(kind, handle, is_ping, pinfo)
    local key = (kind == GET or kind == REPLY) and "GET " .. handle or "PUT " .. handle
    local answer = pinfo.number .. " " .. key

    if kind == GET or kind == PUT then
        if not pinfo.visited and handle ~= string.rep("f", 32) then
            asked[key] = {frame = pinfo.number, ping = is_ping}
        end
        return nil
    elseif not pinfo.visited then
        answers[answer] = asked[key]
    end
    return answers[answer]
end

local function dissect_payload(tvb, pinfo, root, kind, body, is_ping, all)
    local portal = kind == PUT and body.portal

    if is_ping or (kind == REPLY and is_ping == nil and tvb:len() >= 16 and
                   (tvb(0, 4):uint() == PING_MAGIC or tvb(0, 4):le_uint() == PING_MAGIC)) then
        dissect_ping(tvb, pinfo, root, all)
    elseif (portal == 50 or portal == 51 or portal == 52) and lst_swap(tvb) ~= nil then
        dissect_lst(tvb, pinfo, root)
    elseif portal == 50 or portal == 51 then
        complain(begin("lst", root, tvb(), pinfo), MALFORMED.lst, "no selftest message on its portal")
    end
end

-- A message from its header on; large: the header has NIDs of 20 bytes. carried: payload bytes that
-- the transport has, nil where the header's length decides. Returns the payload length it says.
local function dissect_message(tvb, pinfo, root, large, carried)
    local hdr, off = large and HDR16 or HDR4, (large and HDR16_SIZE or HDR4_SIZE) - BODY_SIZE
    local t = begin("lnetmsg", root, tvb(), pinfo)
    local v, whole = put(t, "lnetmsg", hdr, tvb, 0, false)
    local body, fault, is_ping

    if not whole then
        return
    end
    local what = MSG_TYPES[v.type] or "unknown"
    say(pinfo, string.format("%s %s > %s", what, v.src_nid, v.dest_nid))
    t:append_text(string.format(", %s, %s to %s", what, v.src_nid, v.dest_nid))
    fault = message_fault(v.type, v.payload_length)
    if fault then
        return complain(t, MALFORMED.lnetmsg, fault)
    end
    body, whole = put(t, "lnetmsg", BODIES[v.type], tvb, off, false)
    if not whole then
        return
    end
    if v.type == PUT or v.type == GET then
        is_ping = body.portal == 0 and body.match_bits:tohex() == PING_MATCH and (body.src_offset or 0) == 0
    end
    local request = match_request(v.type, tvb(off, 16):bytes():tohex(true), is_ping, pinfo)
    if request then
        t:add(ANSWER_TO, request.frame):set_generated()
        is_ping = v.type == REPLY and request.ping
    end
    pinfo.cols.info:append(body.portal and ", portal " .. body.portal or "")
    if is_ping then
        pinfo.cols.info:append(", ping info")
    end
    off = off + BODY_SIZE
    local there = math.min(v.payload_length, carried or v.payload_length)
    if there > 0 then
        if tvb:len() > off then
            local payload = tvb(off, math.min(there, tvb:len() - off))

            t:add(PAYLOAD, payload)
            dissect_payload(payload:tvb(), pinfo, root, v.type, body, is_ping, payload:len() == there)
        end
        if tvb:len() - off < there then
            complain(t, INCOMPLETE.lnetmsg, "the capture ends before the payload does")
        end
    end
    return v.payload_length
end
