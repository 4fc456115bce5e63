#!/usr/bin/env python3
"""Writes json-schema.json: schemas, and documents that the package jsonschema (PyPI) accepts or not.

    pip install jsonschema rfc3339-validator
    tests/golden/json-schema-make.py > tests/golden/json-schema.json

Documents are those given with each schema, values of every kind, and changes of the former: a member left out, further
members, values exchanged. Left out are spellings that the grammars do not admit on purpose (see engine/json_schema.h):
members out of order, 1.0 for an integer, and so on; the changes never make those.
"""

import copy
import json
import random
import sys

import jsonschema

ANY = [None, True, False, 0, -1, 7, 42, 100, 1234567, 0.5, -2.25, 12.75, "", "a", "ab", "abc", "hello world", "\u00e4\u20ac\U0001f600",
       "quote\" back\\slash", "tab\tline\n", [], [1], [1, 2], ["a"], [[]], {}, {"a": 1}, {"b": "x"}, {"zz": None}]

# (schema, documents)
CASES = [
    ({}, [{"a": [1, {"b": None}]}]),
    (True, []),
    ({"type": "null"}, []),
    ({"type": "boolean"}, []),
    ({"type": "integer"}, [-123, 10**17]),
    ({"type": "number"}, [1e-7, 3.25, -0.125, 2.5e20]),
    ({"type": "string"}, ["\u0001", "/"]),
    ({"type": "array"}, [[1, "a", None, {"x": []}]]),
    ({"type": "object"}, [{"k": {"k": {}}}]),
    ({"type": ["string", "null"]}, []),
    ({"type": ["integer", "boolean"]}, []),
    ({"type": ["integer", "number"]}, []),
    ({"type": "integer", "minimum": 3}, [2, 3, 4, 9, 10, 29, 30, 1000]),
    ({"type": "integer", "maximum": 255}, [-99999, 199, 200, 249, 250, 255, 256, 260, 300, 1000]),
    ({"type": "integer", "minimum": -12, "maximum": 345}, list(range(-15, 350))),
    ({"type": "integer", "minimum": -345, "maximum": -12}, list(range(-350, -8)) + [3]),
    ({"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 10}, list(range(-2, 13))),
    ({"type": "integer", "minimum": 0.5, "maximum": 3.5}, list(range(-2, 6))),
    ({"type": "integer", "minimum": 998, "maximum": 1002}, list(range(990, 1010)) + [98, 9980]),
    ({"type": "integer", "minimum": 5, "maximum": 4}, [4, 5]),
    ({"type": "number", "minimum": 0}, [-0.5, 0.25, 10.5, 1000]),
    ({"type": "number", "minimum": 0, "maximum": 1}, [0, 1, 0.5, 0.0001, 1.25, -0.25, 1.0001, 10]),
    ({"type": "number", "exclusiveMinimum": 0, "maximum": 2}, [0, 0.25, 1, 1.75, 2, 2.25, 20, -1]),
    ({"type": "number", "minimum": -3, "exclusiveMaximum": 3}, [-3, -3.25, -2.75, 0, 2.75, 3, 3.25, -0.5, 2]),
    ({"type": "number", "exclusiveMinimum": -20, "maximum": -10}, [-20, -19.75, -10, -9.75, -10.25, -15, 0, 15]),
    ({"type": "string", "minLength": 2}, ["\u00e4\u00f6", "\u20ac", "\U0001f600\U0001f600"]),
    ({"type": "string", "maxLength": 2}, ["\u00e4\u00f6", "\U0001f600\U0001f600", "\"\"", "\"\"\"", "\\n\\"]),
    ({"type": "string", "minLength": 1, "maxLength": 3}, ["\n\n\n", "\n\n\n\n"]),
    ({"type": "string", "maxLength": 0}, []),
    ({"enum": ["red", "green", 3, None, [1, "x"], {"k": True}]}, ["red", "gree", 3, 33, [1, "x"], {"k": True}, {"k": False}]),
    ({"type": "string", "enum": ["a", "b", 3]}, ["b", "c", 3]),
    ({"const": "a\"b"}, ["a\"b", "a"]),
    ({"const": 12}, [12, 1, 123]),
    ({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 1}]}, []),
    ({"oneOf": [{"type": "null"}, {"type": "array", "items": {"type": "integer"}}]}, []),
    ({"type": "array", "items": {"type": "integer"}, "minItems": 1}, [[1, 2, 3], [1, "a"]]),
    ({"type": "array", "items": {"type": "integer"}, "maxItems": 2}, [[1, 2, 3]]),
    ({"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3}, [[True] * n for n in range(6)]),
    ({"type": "array", "maxItems": 0}, []),
    ({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
     [[1], [1, "a"], [1, "a", 2], ["a"], [1, 2]]),
    ({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": {"type": "null"}, "minItems": 2},
     [[1], [1, "a"], [1, "a", None], [1, "a", None, None], [1, "a", 2], []]),
    ({"type": "array", "prefixItems": [{"type": "integer"}], "maxItems": 3}, [[1], [1, "a"], [1, "a", 2], [1, 2, 3, 4], ["a"]]),
    ({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"],
      "additionalProperties": False}, [{"a": 1, "b": "x"}, {"a": 1, "c": 2}]),
    ({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}, "c": {}},
      "additionalProperties": False}, [{"a": 1, "b": "x", "c": None}, {"b": "y"}, {"a": 2, "c": 1}, {"c": []}]),
    ({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}, "c": {"type": "null"}, "d": {}},
      "required": ["b", "d"], "additionalProperties": False},
     [{"a": 1, "b": "x", "c": None, "d": 1}, {"b": "x", "d": 1}, {"a": 1, "b": "x", "d": 0}, {"b": "x", "c": None, "d": 2}]),
    ({"type": "object", "properties": {"a": {"type": "integer"}, "ab": {"type": "string"}},
      "additionalProperties": {"type": "boolean"}},
     [{"a": 1, "ab": "x", "abc": True}, {"abc": True, "": False, "b": True}, {"abc": 1}, {"a": True}, {"ab": True}]),
    ({"type": "object", "properties": {"a": {"type": "integer"}}}, [{"a": 1, "x": [1]}, {"\u00e4": 1}]),
    ({"type": "object", "properties": {"\"q\\": {"type": "integer"}, "\u00e4\n": {"type": "integer"}}, "required": ["\"q\\"]},
     [{"\"q\\": 1, "\u00e4\n": 2, "\"": None, "\u00e4": "", "\n": 1}, {"\"q\\": "", "a": 1}]),
    ({"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1, "maxProperties": 2},
     [{"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}, {"a": "x"}]),
    ({"type": "object", "required": ["x"]}, [{"x": 1}, {"x": 1, "y": 2}, {"y": 2}]),
    ({"type": "object", "properties": {"a": False, "b": True}}, [{"b": 1}, {"a": 1}, {"a": 1, "b": 2}]),
    ({"$defs": {"node": {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
                         "required": ["v"], "additionalProperties": False}}, "$ref": "#/$defs/node"},
     [{"v": 1}, {"v": 1, "next": {"v": 2}}, {"v": 1, "next": {"v": 2, "next": {"v": 3}}}, {"v": 1, "next": {"next": {"v": 3}}}]),
    ({"definitions": {"t": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/definitions/t"}}]}},
      "$ref": "#/definitions/t"}, [["a", ["b", ["c", []]]], ["a", [1]], [[[[1]]]]]),
    ({"type": "array", "items": {"$ref": "#"}}, [[[], [[]]], [1], [[1]]]),
    ({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                {"properties": {"b": {"type": "string"}}, "required": ["b"]}]},
     [{"a": 1, "b": "x"}, {"a": 1}, {"b": "x"}, {"a": "x", "b": "x"}]),
    ({"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 8}, {"minimum": 5}]}, list(range(12))),
    ({"allOf": [{"type": "object", "properties": {"a": {}, "b": {}}, "additionalProperties": False},
                {"properties": {"a": {"type": "integer"}, "c": {}}}]}, [{"a": 1}, {"a": "x"}, {"a": 1, "b": 2}, {"a": 1, "c": 1}]),
    ({"$defs": {"base": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}, "allOf": [
        {"allOf": [{"$ref": "#/$defs/base"}]}, {"$ref": "#/$defs/base", "minimum": 5}]}, []),
    ({"type": "object", "properties": {"k": {"const": 1}}, "anyOf": [
        {"properties": {"x": {"type": "integer"}}, "required": ["x"]},
        {"properties": {"y": {"type": "string"}}, "required": ["y"]}]},
     [{"k": 1, "x": 2}, {"k": 1, "y": "s"}, {"k": 1}, {"k": 2, "x": 1}, {"x": 1}]),
    ({"anyOf": [{"type": "integer"}, {"type": "string"}], "oneOf": [{"type": "string"}, {"type": "null"}]}, []),
    ({"allOf": [{"type": "integer"}, {"type": "string"}]}, []),
    ({"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"type": "array", "items": {
        "type": "object", "properties": {"c": {"enum": ["x", "y"]}}, "required": ["c"], "additionalProperties": False}}},
        "required": ["b"]}}, "required": ["a"]},
     [{"a": {"b": [{"c": "x"}, {"c": "y"}]}}, {"a": {"b": [{"c": "z"}]}}, {"a": {"b": [{}]}}, {"a": {}}]),
    ({"type": "string", "pattern": "^[a-c]+$"}, ["abcabc", "abd", ""]),
    ({"type": "string", "pattern": "^(foo|bar)-\\d{2,3}(\\.[^x\\]]?)?$"}, ["foo-12", "bar-123.", "bar-123.y", "bar-123.x", "baz-12",
                                                                        "foo-1", "foo-1234", "foo-12.\"", "foo-12.]"]),
    ({"type": "string", "pattern": "^\\w\\s\\S\\\\\"?.$"}, ["a b\\\"c", "a b\\c", "- b\\c", "a bb\\c", "a\tb\\c", "ab\\\\c"]),
    ({"type": "string", "pattern": "^(?:a|b*?){1,2}$"}, ["aa", "ab", "bbba", "aaa", "abba"]),
    ({"type": "string", "pattern": "^$"}, []),
    ({"type": "string", "format": "date"}, ["2024-02-29", "2023-02-29", "2000-02-29", "1900-02-29", "2024-04-31", "2024-12-31",
                                            "2024-13-01", "2024-1-01", "2024-00-10", "2024-01-32", "1999-11-30"]),
    ({"type": "string", "format": "date-time"}, ["2024-02-29T12:34:56Z", "2024-02-29T23:59:59.123+05:30", "2024-02-29 12:34:56Z",
                                                 "2024-02-30T12:34:56Z", "2024-02-29T24:00:00Z", "2024-02-29T12:34:56"]),
    ({"type": "string", "format": "uuid"}, ["123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-12d3-a456-42661417400",
                                            "123e4567e89b-12d3-a456-4266141740000"]),
    ({"type": "string", "format": "ipv4"}, ["1.2.3.4", "255.255.255.255", "256.1.1.1", "1.2.3", "01.2.3.4", "1.2.3.4.5"]),
    ({"type": ["string", "null"], "maxLength": 3, "title": "t", "description": "d", "default": None}, []),
]


def changes(doc, rng):
    """Documents one step away, members always in the order that they had."""
    if isinstance(doc, dict):
        for k in doc:
            yield {a: b for a, b in doc.items() if a != k}
            yield {a: (rng.choice(ANY) if a == k else b) for a, b in doc.items()}
            for v in changes(doc[k], rng):
                yield {a: (v if a == k else b) for a, b in doc.items()}
        yield {**doc, "zzz": rng.choice(ANY)}
    elif isinstance(doc, list):
        for i in range(len(doc)):
            yield doc[:i] + doc[i + 1:]
            yield doc[:i] + [rng.choice(ANY)] + doc[i + 1:]
            for v in changes(doc[i], rng):
                yield doc[:i] + [v] + doc[i + 1:]
        yield doc + [rng.choice(ANY)]
    elif isinstance(doc, str) and len(doc) < 20:
        yield doc + "a"
        yield doc[1:]


def in_order(schema, doc):
    """False for members that the grammar wants in another order: known ones first."""
    names = list(schema.get("properties", {})) if isinstance(schema, dict) else []
    keys = list(doc) if isinstance(doc, dict) else []
    known = [k for k in names if k in keys]
    return keys[:len(known)] == known


def main():
    rng = random.Random(1)
    out = []
    for schema, given in CASES:
        check = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        docs = given + ANY + [c for d in given for c in changes(copy.deepcopy(d), rng)]
        seen, valid, invalid = set(), [], []
        for d in docs:
            text = json.dumps(d, ensure_ascii=False)
            if text in seen or not in_order(schema, d):
                continue
            seen.add(text)
            (valid if check.is_valid(d) else invalid).append(d)
        out.append({"schema": schema, "valid": valid[:150], "invalid": invalid[:150]})
    lines = ",\n".join(json.dumps(c, ensure_ascii=True) for c in out)
    sys.stdout.write("[\n" + lines + "\n]\n")


if __name__ == "__main__":
    main()
