"""What no schema can say, for check_schemathesis.py: requests that the schemas of /openapi.json admit are changed so that
they keep the rules which the descriptions there state in words. Values of a wrong type or out of range stay as they are:
they must be refused.

Grammars and JSON schemas are texts of languages of their own: each is replaced by one that is right. And what would only
take long is made short: answers of many tokens, many answers."""
import schemathesis

LONGEST, ANSWERS = 16, 8
GBNF = ['root ::= "yes" | "no"', "root ::= [a-z]{1,8}", 'root ::= item ("," item){0,3}\nitem ::= [0-9]+', 'root ::= "é" | "🙂"']
SCHEMAS = [{"type": "integer", "minimum": 0, "maximum": 9}, {"enum": ["a", "b", None]}, {"type": "boolean"}, True,
           {"type": "object", "properties": {"x": {"type": "string", "maxLength": 3}}, "required": ["x"],
            "additionalProperties": False},
           {"type": "array", "items": {"const": 1}, "minItems": 1, "maxItems": 3}]
OBJECTS = [s for s in SCHEMAS if isinstance(s, dict) and s.get("type") == "object"] + [{}, {"type": "object"}]
TEXTS = ['{"type": "boolean"}', "{}", '{"enum": [1, "x"]}']


def pick(values, v):
    return values[len(repr(v)) % len(values)]


def replace(o, key, values, kinds):
    """A right value instead of any of these kinds; the empty text means none and stays."""
    if isinstance(o, dict) and isinstance(o.get(key), kinds) and o[key] != "":
        o[key] = pick(values, o[key])


def schemas_of(body):
    for key in ("grammar", "ebnf", "guided_grammar"):
        replace(body, key, GBNF, str)
    for key in ("json_schema", "guided_json"):
        replace(body, key, TEXTS if isinstance(body.get(key), str) else SCHEMAS, (dict, bool, str))
    text = body.get("text")
    for f in (body.get("response_format"), text.get("format") if isinstance(text, dict) else None):
        if isinstance(f, dict):
            replace(f, "schema", SCHEMAS, (dict, bool))
            replace(f.get("json_schema"), "schema", SCHEMAS, (dict, bool))


def tools_of(body):
    names = []
    for i, tool in enumerate(body["tools"] if isinstance(body.get("tools"), list) else []):
        f = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(f, dict):
            continue
        replace(f, "parameters", OBJECTS, dict)
        name = f.get("name")
        if isinstance(name, str) and 0 < len(name) <= 128 and "\0" not in name:
            if name in names:
                f["name"] = name = f"name {i}"
            names.append(name)
    choice = body.get("tool_choice")
    f = choice.get("function") if isinstance(choice, dict) else None
    if isinstance(f, dict) and isinstance(f.get("name"), str) and "\0" not in f["name"] and names:
        f["name"] = names[0]


def is_count(v, high):
    return isinstance(v, (int, float)) and not isinstance(v, bool) and 1 <= v <= high and v == int(v)


def lengths_of(body, most, least):
    """most: the fields that limit the answer, the last one counts."""
    limit = None
    for key in most:
        if is_count(body.get(key), 1 << 24):
            limit = body[key] = min(int(body[key]), LONGEST)
    if is_count(body.get(least), 1 << 24):
        body[least] = min(int(body[least]), limit or 1)


def choices_of(body, n_prompts):
    most = max(1, ANSWERS // max(1, n_prompts))
    if is_count(body.get("n"), 128):
        body["n"] = min(int(body["n"]), most)
    if is_count(body.get("best_of"), 128):
        n = int(body["n"]) if is_count(body.get("n"), 128) else 1
        body["best_of"] = n if body.get("stream") is True else max(n, min(int(body["best_of"]), most))


def prompts_of(body):
    for key in ("prompt", "text", "input_ids"):
        v = body.get(key)
        if isinstance(v, list) and v and isinstance(v[0], (str, list)):
            return len(v)
    return 1


@schemathesis.hook
def before_call(context, case, kwargs):
    body = case.body
    if not isinstance(body, dict):
        return
    if case.path == "/completion":
        for key in ("max_tokens", "n_predict"):
            if body.get(key) in (-1, -2):  # to the end of the context
                body[key] = LONGEST
    schemas_of(body)
    tools_of(body)
    lengths_of(body, ("max_tokens", "n_predict", "max_completion_tokens", "max_output_tokens"), "min_tokens")
    choices_of(body, prompts_of(body))
    sampling = body.get("sampling_params")
    if isinstance(sampling, dict):
        schemas_of(sampling)
        lengths_of(sampling, ("max_new_tokens",), "min_new_tokens")
        choices_of(sampling, prompts_of(body))
