"""Answers held against api/openapi.json. Standard library only.

    document = Document(path)
    document.check("GET", "/v1/files/file-1?x=y", 200, "application/json", body)

An answer is right when its path, method and status are described, its type is one of those described, and its body
is of the schema. Beyond what JSON Schema asks, an object whose properties are described has no others, unless the
schema says `additionalProperties`: what is answered is documented. A keyword that is not known here is an error, so
that nothing of the document goes unchecked. The document itself is validated by tests/sdk.
"""
import json
import re

TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
SAID = {"description", "title", "default", "examples", "contentMediaType", "format", "x-unit"}  # say nothing of a value
# Keywords that count for values of one type only.
OF_TYPE = {**dict.fromkeys(("required", "properties", "additionalProperties", "propertyNames", "maxProperties"), "object"),
           **dict.fromkeys(("items", "prefixItems", "minItems", "maxItems", "uniqueItems"), "array"),
           **dict.fromkeys(("pattern", "minLength", "maxLength"), "string"),
           **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum"), "number")}


class Mismatch(AssertionError):
    """An answer that is not as described."""


def is_of(value, kind):
    if kind in ("integer", "number"):
        number = isinstance(value, int) or (kind == "number" and isinstance(value, float))
        return number and not isinstance(value, bool)
    return isinstance(value, TYPES[kind])


class Document:
    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.root = json.load(file)
        self.paths = [(re.compile(self.pattern(path)), methods) for path, methods in self.root["paths"].items()]

    @staticmethod
    def pattern(path):
        parts = re.split(r"(\{\w+\})", path)
        return "^" + "".join({"{model}": ".+"}.get(part, "[^/]+") if part.startswith("{") else re.escape(part)
                             for part in parts) + "$"

    # ---- schemas

    def resolve(self, reference):
        value = self.root
        for name in reference.removeprefix("#/").split("/"):
            value = value[name]
        return value

    def validate(self, value, schema, at):
        """Raises Mismatch at the first fault; `at` says where the value is."""
        for key in schema:
            if key in SAID or (key in OF_TYPE and not is_of(value, OF_TYPE[key])):
                continue
            wrong = self.fault(value, schema, key, at)
            if wrong:
                raise Mismatch(f"{at}: {wrong}: {json.dumps(value)[:300]}")

    def fault(self, value, schema, key, at):
        """What is wrong with a value by one keyword of its schema; faults inside it are raised."""
        want, size = schema[key], len(value) if isinstance(value, (dict, list, str)) else 0
        if key == "$ref":
            return self.validate(value, self.resolve(want), at)
        if key in ("anyOf", "oneOf"):
            fits = sum(self.fits(value, one, at) for one in want)
            return (fits < 1 or (key == "oneOf" and fits > 1)) and f"fits {fits} of {key}"
        if key in ("properties", "additionalProperties", "propertyNames"):
            return self.fault_of_members(value, schema, key, at)
        if key in ("items", "prefixItems"):
            first = len(schema.get("prefixItems", [])) if key == "items" else 0
            for i, one in enumerate(value[first:] if key == "items" else value[:len(want)], first):
                self.validate(one, want if key == "items" else want[i], f"{at}[{i}]")
            return None
        kinds = want if isinstance(want, list) else [want]
        return not {
            "type": lambda: any(is_of(value, kind) for kind in kinds),
            "const": lambda: value == want,
            "enum": lambda: value in want,
            "required": lambda: set(want) <= set(value),
            "uniqueItems": lambda: len({json.dumps(one) for one in value}) == size,
            "pattern": lambda: re.search(want, value),
            "maxProperties": lambda: size <= want, "maxItems": lambda: size <= want, "maxLength": lambda: size <= want,
            "minItems": lambda: size >= want, "minLength": lambda: size >= want,
            "minimum": lambda: value >= want, "maximum": lambda: value <= want,
            "exclusiveMinimum": lambda: value > want,
        }[key]() and f"not so: {key} {want}"

    def fault_of_members(self, value, schema, key, at):
        described, want = schema.get("properties", {}), schema[key]
        others = sorted(set(value) - set(described))
        if key == "propertyNames":
            for name in value:
                self.validate(name, want, f"{at}, key")
        elif key == "properties":
            for name in set(value) & set(described):
                self.validate(value[name], described[name], f"{at}.{name}")
        elif isinstance(want, dict):
            for name in others:
                self.validate(value[name], want, f"{at}.{name}")
        closed = schema.get("additionalProperties", "properties" not in schema) is False
        return closed and others and f"{others} not described"

    def fits(self, value, schema, at):
        try:
            self.validate(value, schema, at)
            return True
        except Mismatch:
            return False

    # ---- answers

    def operation(self, method, path):
        verb = "get" if method == "HEAD" else method.lower()
        for pattern, methods in self.paths:
            if pattern.match(path) and verb in methods:
                return methods[verb]
        return None

    def check(self, method, target, status, content_type, body):
        what = f"{method} {target} -> {status}"
        operation = self.operation(method, target.split("?", 1)[0])
        if operation is not None:
            content = operation["responses"]["200" if status < 400 else "default"]["content"]
        elif status >= 400:
            content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
        else:
            raise Mismatch(f"{what}: the document has no such path")
        kind = next((one for one in content if content_type.startswith(one)), None)
        if kind is None:
            raise Mismatch(f"{what}: type {content_type}, not {list(content)}")
        if method != "HEAD" and kind == "application/json":
            self.validate(json.loads(body), content[kind]["schema"], what)
