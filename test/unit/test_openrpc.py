#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""What rpc.discover returns is an OpenRPC 1.2 document.

usage: test_openrpc.py RPC_DOCS

The schema below says what https://spec.open-rpc.org/ asks of the objects that Millrace uses; it is written from that text. Schemas of
parameters and results are checked by JSON Schema draft 7's own meta-schema (python3-jsonschema).
"""

import copy
import json
import subprocess
import sys

import jsonschema

TEXT = {"type": "string", "minLength": 1}
SCHEMA = {"$ref": "http://json-schema.org/draft-07/schema#"}


def fixed(needed, **properties):
    """An object of the specification: fixed fields, and extensions that begin with x-."""
    return {"type": "object", "required": needed, "properties": properties, "additionalProperties": False,
            "patternProperties": {"^x-": {}}}


REFERENCE = {"type": "object", "required": ["$ref"], "properties": {"$ref": TEXT}, "additionalProperties": False}
DESCRIPTOR = fixed(["name", "schema"], name=TEXT, summary={"type": "string"}, description={"type": "string"},
                   required={"type": "boolean"}, deprecated={"type": "boolean"}, schema=SCHEMA)
# Codes of applications are outside what JSON-RPC keeps for itself.
OWN_CODE = {"type": "integer", "not": {"minimum": -32768, "maximum": -32000}}
ANY_CODE = {"type": "integer"}


def error(code):
    return {"type": "object", "required": ["code", "message"], "properties": {"code": code, "message": TEXT, "data": {}},
            "additionalProperties": False}


METHOD = fixed(["name", "params", "result"], name=TEXT, summary={"type": "string"}, description={"type": "string"},
               params={"type": "array", "items": {"oneOf": [DESCRIPTOR, REFERENCE]}},
               result={"oneOf": [DESCRIPTOR, REFERENCE]},
               errors={"type": "array", "items": {"oneOf": [error(OWN_CODE), REFERENCE]}},
               paramStructure={"enum": ["by-name", "by-position", "either"]}, deprecated={"type": "boolean"})
COMPONENTS = {"type": "object", "additionalProperties": False, "properties": {
    "schemas": {"type": "object", "propertyNames": {"pattern": r"^[a-zA-Z0-9._-]+$"}, "additionalProperties": SCHEMA},
    "errors": {"type": "object", "propertyNames": {"pattern": r"^[a-zA-Z0-9._-]+$"}, "additionalProperties": error(ANY_CODE)}}}
DOCUMENT = fixed(["openrpc", "info", "methods"], openrpc={"type": "string", "pattern": r"^1\.2\.[0-9]+$"},
                 info=fixed(["title", "version"], title=TEXT, version=TEXT, description={"type": "string"},
                            license=fixed(["name"], name=TEXT, url=TEXT)),
                 methods={"type": "array", "items": {"oneOf": [METHOD, REFERENCE]}}, components=COMPONENTS)


def references(value):
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        value = list(value.values())
    if isinstance(value, list):
        for v in value:
            yield from references(v)


def resolves(document, ref):
    at = document
    for word in ref.removeprefix("#/").split("/"):
        if not isinstance(at, dict) or word not in at:
            return False
        at = at[word]
    return ref.startswith("#/")


def faults(document):
    """In words, what is wrong with a document."""
    found = [f"{'/'.join(map(str, e.absolute_path))}: {e.message[:200]}"
             for e in jsonschema.Draft7Validator(DOCUMENT).iter_errors(document)]
    if found:
        return found
    names = [m["name"] for m in document["methods"]]
    found += [f"two methods {n}" for n in set(names) if names.count(n) > 1]
    found += [f"{ref} leads nowhere" for ref in references(document) if not resolves(document, ref)]
    for m in document["methods"]:
        params = [p["name"] for p in m["params"]]
        found += [f"{m['name']}: two parameters {n}" for n in set(params) if params.count(n) > 1]
        optional = False
        for p in m["params"]:   # by position those that are required come first
            if p.get("required") and optional:
                found.append(f"{m['name']}: {p['name']} is required but comes behind one that is not")
            optional = optional or not p.get("required")
        codes = [e["code"] for e in m.get("errors", [])]
        found += [f"{m['name']}: two errors {c}" for c in set(codes) if codes.count(c) > 1]
    return found


def broken(document):
    """Documents with one thing wrong each."""
    def change(how):
        d = copy.deepcopy(document)
        how(d, d["methods"][0], next(m for m in d["methods"] if m["params"]))
        return d

    yield "version", change(lambda d, m, p: d.update(openrpc="2.0.0"))
    yield "no info", change(lambda d, m, p: d.pop("info"))
    yield "a foreign member", change(lambda d, m, p: d.update(foo=1))
    yield "no name", change(lambda d, m, p: m.pop("name"))
    yield "no result", change(lambda d, m, p: m.pop("result"))
    yield "foreign member of a method", change(lambda d, m, p: m.update(role="admin"))
    yield "the same name", change(lambda d, m, p: d["methods"].append(m))
    yield "no schema", change(lambda d, m, p: p["params"][0].pop("schema"))
    yield "bad schema", change(lambda d, m, p: p["params"][0].update(schema={"type": "integr"}))
    yield "bad result schema", change(lambda d, m, p: m["result"].update(schema={"required": "x"}))
    yield "reserved code", change(lambda d, m, p: m.update(errors=[{"code": -32001, "message": "x"}]))
    yield "the same code", change(lambda d, m, p: m.update(errors=2 * [{"code": -1, "message": "x"}]))
    yield "reference", change(lambda d, m, p: m["result"].update(schema={"$ref": "#/components/schemas/Nothing"}))
    yield "order", change(lambda d, m, p: p["params"].append({**p["params"][0], "name": "late", "required": True})
                          or p["params"][0].update(required=False))


def main():
    out = subprocess.run([sys.argv[1], "openrpc"], capture_output=True, text=True, check=True).stdout
    document = json.loads(out)
    assert len(document["methods"]) > 15, len(document["methods"])
    for name in ("NID", "Net"):
        assert name in document["components"]["schemas"]
    found = faults(document)
    assert not found, "\n".join(found[:20])
    print(f"PASS openrpc.document: {len(document['methods'])} methods")
    for what, bad in broken(document):
        assert faults(bad), f"not noticed: {what}"
    print("PASS openrpc.broken_documents")


if __name__ == "__main__":
    main()
