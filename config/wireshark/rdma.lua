-- SPDX-License-Identifier: BSD-3-Clause
-- ---------------------------------------------------------------------------------- o2iblnd, o2iblnd.md §1.3, §1.4, §2

local IB_MAGIC = 0x0be91b91
local IB_TYPES = {
    [0xc0] = "CONNREQ", [0xc1] = "CONNACK", [0xd0] = "NOOP", [0xd1] = "IMMEDIATE", [0xd2] = "PUT_REQ",
    [0xd3] = "PUT_NAK", [0xd4] = "PUT_ACK", [0xd5] = "PUT_DONE", [0xd6] = "GET_REQ", [0xd7] = "GET_DONE",
}
local IB_WHY = {"CONN_RACE", "NO_RESOURCES", "FATAL", "CONN_UNCOMPAT", "CONN_STALE", "RDMA_FRAGS", "MSG_QUEUE_SIZE",
                "INVALID_SRV_ID", "EARLY"}
local IB_HEAD = layout("o2iblnd", {
    {"magic", "x32", "Magic"}, {"version", "x16", "Version"}, {"type", "x8", "Type", IB_TYPES},
    {"credits", "u8", "Credits returned"}, {"nob", "u32", "Length"}, {"cksum", "x32", "Checksum"},
    {"src_nid", "nid4", "Source NID of this hop"}, {"src_stamp", "x64", "Source incarnation"},
    {"dst_nid", "nid4", "Destination NID of this hop"}, {"dst_stamp", "x64", "Destination incarnation"},
})
local DEPTH, FRAGS = {"queue_depth", "u16", "Queue depth"}, {"max_frags", "u16", "Fragments at most"}
local MSG_SIZE = {"max_msg_size", "u32", "Message size at most"}
local IB_PARAMS = layout("o2iblnd", {DEPTH, FRAGS, MSG_SIZE})
local IB_REJECT = layout("o2iblnd", {
    {"magic", "x32", "Magic"}, {"version", "x16", "Version"}, {"why", "u8", "Reason", IB_WHY},
})
local IB_REJECT_MORE = layout("o2iblnd", {{"stamp", "x64", "Incarnation"}, DEPTH, FRAGS, MSG_SIZE})
local COOKIE = layout("o2iblnd", {{"cookie", "le64", "Cookie"}})
local DST_COOKIE = layout("o2iblnd", {{"dst_cookie", "le64", "Destination cookie"}})
local COMPLETION = layout("o2iblnd", {{"status", "i32", "Status"}})
local RD = layout("o2iblnd", {{"key", "x32", "Key"}, {"nfrags", "u32", "Fragments"}})
local FRAG = layout("o2iblnd", {{"frag_nob", "u32", "Fragment length"}, {"frag_addr", "x64", "Fragment address"}})
local IB_HEAD_SIZE, IB_LNET_END, IB_FRAGS_MAX, IB_MSG_MAX = 48, 120, 257, 4096
local IB_MIN = {
    [0xc0] = 56, [0xc1] = 56, [0xd0] = 48, [0xd1] = 120, [0xd2] = 128, [0xd3] = 60, [0xd4] = 72, [0xd5] = 60,
    [0xd6] = 136, [0xd7] = 60,
}

local function show_rd(t, tvb, off, swap)
    local rd = put(t, "o2iblnd", RD, tvb, off, swap)

    off = off + RD.size
    if rd.nfrags and (rd.nfrags < 1 or rd.nfrags > IB_FRAGS_MAX) then
        return complain(t, MALFORMED.o2iblnd, "no or more than 257 fragments")
    end
    for _ = 1, rd.nfrags or 0 do
        if not select(2, put(t, "o2iblnd", FRAG, tvb, off, swap)) then
            return complain(t, MALFORMED.o2iblnd, "the message ends before its fragments do")
        end
        off = off + FRAG.size
    end
end

local function show_ib_body(t, tvb, pinfo, root, kind, swap)
    local off = IB_HEAD_SIZE

    if kind == 0xc0 or kind == 0xc1 then
        put(t, "o2iblnd", IB_PARAMS, tvb, off, swap)
        return
    end
    if kind == 0xd2 or kind == 0xd6 then
        put(t, "o2iblnd", COOKIE, tvb, IB_LNET_END, swap)
        off = IB_LNET_END + COOKIE.size
    elseif kind ~= 0xd0 and kind ~= 0xd1 then
        put(t, "o2iblnd", COOKIE, tvb, off, swap)
        off = off + COOKIE.size
    end
    if kind == 0xd4 then
        put(t, "o2iblnd", DST_COOKIE, tvb, off, swap)
        off = off + DST_COOKIE.size
    end
    if kind == 0xd4 or kind == 0xd6 then
        show_rd(t, tvb, off, swap)
    elseif kind == 0xd3 or kind == 0xd5 or kind == 0xd7 then
        put(t, "o2iblnd", COMPLETION, tvb, off, swap)
    end
    if kind == 0xd1 or kind == 0xd2 or kind == 0xd6 then
        local carried = kind == 0xd1 and tvb:len() - IB_LNET_END or 0
        local payload = dissect_message(tvb(IB_HEAD_SIZE, (kind == 0xd1 and tvb:len() or IB_LNET_END) - IB_HEAD_SIZE):tvb(),
                                        pinfo, root, false, carried)

        if kind == 0xd1 and payload and payload > carried then
            complain(t, MALFORMED.o2iblnd, "the message carries less payload than its header says")
        end
    end
end

local function ib_swap(tvb)
    return tvb:len() >= 6 and order_of(tvb, 0, IB_MAGIC)
end

local function dissect_ib(tvb, pinfo, root)
    local swap = ib_swap(tvb)
    local nob = tvb:len() >= IB_HEAD_SIZE and u32(tvb, 8, swap) or tvb:len()
    local whole = tvb:len() == tvb:reported_len()

    if nob >= IB_HEAD_SIZE and nob <= tvb:len() then
        tvb = tvb(0, nob):tvb() -- what is behind it is padding
    end
    local t = begin("o2iblnd", root, tvb(), pinfo)
    show_order(t, "o2iblnd", swap)
    local v, got = put(t, "o2iblnd", IB_HEAD, tvb, 0, swap)
    if not got then
        return whole and complain(t, MALFORMED.o2iblnd, "the message is shorter than a header")
    end
    local name = IB_TYPES[v.type] or string.format("unknown type 0x%x", v.type)
    t:append_text(string.format(", %s, %s to %s", name, v.src_nid, v.dst_nid))
    pinfo.cols.info:set(string.format("%s %s > %s", name, v.src_nid, v.dst_nid))
    if v.version ~= 0x11 and v.version ~= 0x12 then
        return complain(t, MALFORMED.o2iblnd, "the version is unknown")
    elseif not IB_TYPES[v.type] then
        return complain(t, MALFORMED.o2iblnd, "the type is unknown")
    elseif v.nob > IB_MSG_MAX or (whole and v.nob > tvb:len()) then
        return complain(t, MALFORMED.o2iblnd, "the length is more than there is")
    elseif v.nob < IB_MIN[v.type] then
        return complain(t, MALFORMED.o2iblnd, "the length is less than that of the type")
    elseif tvb:len() < IB_MIN[v.type] then
        return complain(t, INCOMPLETE.o2iblnd, "the capture ends in the message")
    end
    show_ib_body(t, tvb, pinfo, root, v.type, swap)
end

local function dissect_reject(tvb, pinfo, root, swap)
    local t = begin("o2iblnd", root, tvb(), pinfo)
    local v = put(t, "o2iblnd", IB_REJECT, tvb, 0, swap)

    show_order(t, "o2iblnd", swap)
    pinfo.cols.info:set("reject " .. (IB_WHY[v.why] or "for an unknown reason"))
    if tvb:len() >= 24 and v.version and v.version > 0x11 then
        put(t, "o2iblnd", IB_REJECT_MORE, tvb, 8, swap)
    end
end

-- A SEND of several packets is put together by destination queue pair and packet number.
local opcode, dest_qp, packet_number
local parts, whole_sends, part_frames -- of a file
local SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY = 0, 1, 2, 4

local function take_part(tvb, pinfo, op)
    local key = string.format("%s %s %s", pinfo.net_src, pinfo.net_dst, dest_qp().value)
    local psn, p = packet_number().value, parts[key]

    if op == SEND_FIRST then
        parts[key] = {bytes = tvb(0, tvb:len()):bytes(), psn = psn}
        part_frames[pinfo.number] = true
    elseif p and psn == (p.psn + 1) % 16777216 then
        p.bytes:append(tvb(0, tvb:len()):bytes())
        p.psn = psn
        part_frames[pinfo.number] = true
        if op == SEND_LAST then
            whole_sends[pinfo.number], parts[key] = p.bytes, nil
        end
    end
end

local function heuristic_send(tvb, pinfo, root)
    local op = opcode() and opcode().value

    if not op or op > SEND_ONLY or op == 3 then
        return false
    elseif op == SEND_ONLY then
        if not ib_swap(tvb) and ib_swap(tvb) ~= false or tvb:len() < 6 then
            return false
        end
        dissect_ib(tvb, pinfo, root)
        return true
    end
    if op == SEND_FIRST and (tvb:len() < 6 or ib_swap(tvb) == nil) then
        return false
    end
    if not pinfo.visited and tvb:len() == tvb:reported_len() then
        take_part(tvb, pinfo, op)
    end
    if whole_sends[pinfo.number] then
        dissect_ib(whole_sends[pinfo.number]:tvb("o2iblnd message"), pinfo, root)
    elseif part_frames[pinfo.number] then
        begin("o2iblnd", root, tvb(), pinfo):append_text(", part of a message")
    end
    return part_frames[pinfo.number] == true
end

local function heuristic_private(tvb, pinfo, root)
    local swap = tvb:len() >= 7 and order_of(tvb, 0, IB_MAGIC)
    local generic = tvb:len() == 148 and order_of(tvb, 0, LNET)

    if swap == nil or tvb:len() < 7 then
        if tvb:len() ~= 148 or generic == nil then
            return false
        end
        swap = generic
    end
    if tvb(6, 1):uint() >= 0xc0 then
        dissect_ib(tvb, pinfo, root)
    else
        dissect_reject(tvb, pinfo, root, swap)
    end
    return true
end

function P.o2iblnd.dissector(tvb, pinfo, root)
    if tvb:len() >= 6 and ib_swap(tvb) ~= nil then
        dissect_ib(tvb, pinfo, root)
        return tvb:len()
    end
    return 0
end

-- ---------------------------------------------------------------------------------- kfilnd, kfilnd.md §2

local KFI_MAGIC = 0xdeadbeef
local KFI_TYPES = {"IMMEDIATE", "BULK_PUT_REQ", "BULK_GET_REQ", "HELLO_REQ", "HELLO_RSP"}
local KFI_HEAD = layout("kfilnd", {
    {"magic", "x32", "Magic"}, {"version", "u16", "Version"}, {"type", "u8", "Type", KFI_TYPES},
    {"reserved", "x8", "Reserved"}, {"nob", "u16", "Length"}, {"cksum", "x16", "Checksum"},
    {"src_nid", "nid4", "Source NID of this hop"}, {"dst_nid", "nid4", "Destination NID of this hop"},
})
local KFI_HELLO = layout("kfilnd", {
    {"hello_version", "u16", "Version offered"}, {"rx_base", "u16", "Receive context"},
    {"session_key", "x32", "Session key"}, {"rx_count", "u16", "Receive contexts"},
})
local KFI_BULK = layout("kfilnd", {{"response_rx", "u32", "Context of the response"}, {"key", "x16", "Memory key"}})
local KFI_KEY = layout("kfilnd", {{"session_key", "x32", "Session key"}})
local KFI_HEAD_SIZE, KFI_LNET_END, KFI_MAX = 28, 100, 4096

local function kfi_min(kind, version)
    if kind >= 4 then
        return 38
    elseif kind == 1 then
        return KFI_LNET_END
    end
    return version >= 2 and 110 or 106
end

local function show_kfi(t, tvb, pinfo, root, v, swap)
    if v.type >= 4 then
        put(t, "kfilnd", KFI_HELLO, tvb, KFI_HEAD_SIZE, swap)
        return
    end
    if v.type ~= 1 then
        put(t, "kfilnd", KFI_BULK, tvb, KFI_LNET_END, swap)
        if v.version >= 2 then
            put(t, "kfilnd", KFI_KEY, tvb, KFI_LNET_END + KFI_BULK.size, swap)
        end
    end
    local carried = v.type == 1 and tvb:len() - KFI_LNET_END or 0
    local stop = v.type == 1 and tvb:len() or KFI_LNET_END
    local payload = dissect_message(tvb(KFI_HEAD_SIZE, stop - KFI_HEAD_SIZE):tvb(), pinfo, root, false, carried)
    if v.type == 1 and payload and payload > carried then
        complain(t, MALFORMED.kfilnd, "the message carries less payload than its header says")
    end
end

function P.kfilnd.dissector(tvb, pinfo, root)
    local swap = tvb:len() >= 4 and order_of(tvb, 0, KFI_MAGIC)
    local whole = tvb:len() == tvb:reported_len()

    if swap == nil or tvb:len() < 4 then
        return 0
    end
    pinfo.cols.info:set("")
    local t = begin("kfilnd", root, tvb(), pinfo)
    show_order(t, "kfilnd", swap)
    local v, got = put(t, "kfilnd", KFI_HEAD, tvb, 0, swap)
    if not got then
        return tvb:len()
    end
    pinfo.cols.info:set(string.format("%s %s > %s", KFI_TYPES[v.type] or "unknown", v.src_nid, v.dst_nid))
    local fault = not KFI_TYPES[v.type] and "the type is unknown" or v.version > 2 and "the version is unknown" or
                      (v.type >= 4) ~= (v.version == 0) and "the version does not belong to the type" or
                      (v.nob > KFI_MAX or (whole and v.nob > tvb:len())) and "the length is more than there is" or
                      v.nob < kfi_min(v.type, v.version) and "the length is less than that of the type"
    if fault then
        complain(t, MALFORMED.kfilnd, fault)
    elseif tvb:len() < kfi_min(v.type, v.version) then
        complain(t, INCOMPLETE.kfilnd, "the capture ends in the message")
    else
        show_kfi(t, tvb(0, math.min(v.nob, tvb:len())):tvb(), pinfo, root, v, swap)
    end
    return tvb:len()
end
