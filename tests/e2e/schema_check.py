"""A small validator for the schemas of /openapi.json (JSON Schema 2020-12 as far as they use it). Standard library only.

An unknown keyword is an error, so that nothing is passed over."""
import re

PASSED_OVER = {"description", "format", "contentMediaType"}
TYPES = {"null": lambda v: v is None, "boolean": lambda v: isinstance(v, bool), "string": lambda v: isinstance(v, str),
         "array": lambda v: isinstance(v, list), "object": lambda v: isinstance(v, dict),
         "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
         "integer": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool) and v == int(v)}


def equal(a, b):
    """1 and True are different values in JSON, 1 and 1.0 are not."""
    if isinstance(a, bool) != isinstance(b, bool):
        return False
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    return a == b


class Document:
    def __init__(self, d):
        self.d = d
        self.rules = {name[3:]: getattr(self, name) for name in dir(self) if name.startswith("on_")}

    def body(self, path, method="post"):
        return self.d["paths"][path][method]["requestBody"]["content"]["application/json"]["schema"]

    def at(self, ref):
        node = self.d
        for part in ref.removeprefix("#/").split("/"):
            node = node[part]
        return node

    def ok(self, schema, v):
        if isinstance(schema, bool):
            return schema
        return all(self.rules[k.removeprefix("$")](schema, schema[k], v) for k in schema if k not in PASSED_OVER)

    def on_ref(self, _s, ref, v):
        return self.ok(self.at(ref), v)

    def on_type(self, _s, kinds, v):
        return any(TYPES[k](v) for k in ([kinds] if isinstance(kinds, str) else kinds))

    def on_enum(self, _s, values, v):
        return any(equal(e, v) for e in values)

    def on_const(self, _s, value, v):
        return equal(value, v)

    def on_anyOf(self, _s, parts, v):
        return any(self.ok(p, v) for p in parts)

    def on_oneOf(self, _s, parts, v):
        return sum(self.ok(p, v) for p in parts) == 1

    def on_allOf(self, _s, parts, v):
        return all(self.ok(p, v) for p in parts)

    def on_not(self, _s, part, v):
        return not self.ok(part, v)

    def on_required(self, _s, names, v):
        return not isinstance(v, dict) or all(n in v for n in names)

    def on_properties(self, _s, members, v):
        return not isinstance(v, dict) or all(self.ok(s, v[n]) for n, s in members.items() if n in v)

    def on_patternProperties(self, _s, patterns, v):
        return not isinstance(v, dict) or all(self.ok(s, x) for p, s in patterns.items() for n, x in v.items() if re.search(p, n))

    def on_additionalProperties(self, s, part, v):
        if not isinstance(v, dict):
            return True
        known = set(s.get("properties", {}))
        others = [n for n in v if n not in known and not any(re.search(p, n) for p in s.get("patternProperties", {}))]
        return all(self.ok(part, v[n]) for n in others)

    def on_propertyNames(self, _s, part, v):
        return not isinstance(v, dict) or all(self.ok(part, n) for n in v)

    def on_maxProperties(self, _s, most, v):
        return not isinstance(v, dict) or len(v) <= most

    def on_prefixItems(self, _s, parts, v):
        return not isinstance(v, list) or all(map(self.ok, parts, v))

    def on_items(self, _s, part, v):
        return not isinstance(v, list) or all(self.ok(part, e) for e in v)

    def on_contains(self, _s, part, v):
        return not isinstance(v, list) or any(self.ok(part, e) for e in v)

    def on_minItems(self, _s, least, v):
        return not isinstance(v, list) or len(v) >= least

    def on_maxItems(self, _s, most, v):
        return not isinstance(v, list) or len(v) <= most

    def on_minLength(self, _s, least, v):
        return not isinstance(v, str) or len(v) >= least

    def on_maxLength(self, _s, most, v):
        return not isinstance(v, str) or len(v) <= most

    def on_pattern(self, _s, pattern, v):
        return not isinstance(v, str) or re.search(pattern, v) is not None

    def on_minimum(self, _s, least, v):
        return not TYPES["number"](v) or v >= least

    def on_maximum(self, _s, most, v):
        return not TYPES["number"](v) or v <= most
