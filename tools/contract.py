#!/usr/bin/env python3
"""Makes the tables in crates/api/contract from published OpenAPI documents.

    tools/contract.py DIRECTORY

Every *.json and *.yaml document of DIRECTORY becomes a table of the same name. A table holds the
facts that the contract test compares with our own documents, and nothing else of the document:

    param   GET /a/{}   query              name     type   required|optional
    body    POST /a     application/json   -        type   required|optional
    answer  POST /a     202                media    type   -
    header  POST /a     202                name     type   -
    field   Schema      -                  name     type   required|optional

Types are string, integer, number, boolean, any, [type], {type} for maps, the name of a schema, and
string(a|b) for a choice. Path parameters are named by their place, because their names are free.

Needs PyYAML for YAML documents.
"""

import json
import pathlib
import re
import sys

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
OUTPUT = pathlib.Path(__file__).resolve().parent.parent / "crates/api/contract"


class Document:
    def __init__(self, root):
        self.root = root
        self.fields = {}

    def resolve(self, node):
        while "$ref" in node:
            target = self.root
            for step in node["$ref"].removeprefix("#/").split("/"):
                target = target[step]
            node = target
        return node

    def type_of(self, schema, name):
        """The type of a schema; objects with members are noted under a name."""
        if not schema:
            return "any"
        if "$ref" in schema:
            name = schema["$ref"].rsplit("/", 1)[1]
            schema = self.resolve(schema)
        choices = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
        if choices:
            choices = [c for c in choices if c.get("type") != "null"]
            if len(choices) == 1:
                return self.type_of(choices[0], name)
            members = [self.resolve(c) for c in choices]
            if all(m.get("properties") for m in members):
                return self.note(name, members, "allOf" in schema)
            return "any"
        kind = schema.get("type")
        if isinstance(kind, list):
            kinds = [k for k in kind if k != "null"]
            kind = kinds[0] if len(kinds) == 1 else None
        if schema.get("properties"):
            return self.note(name, [schema], False)
        if kind == "array":
            return "[" + self.type_of(schema.get("items"), name + "[]") + "]"
        if kind == "object":
            values = schema.get("additionalProperties")
            return "{" + (self.type_of(values, name + "{}") if isinstance(values, dict) else "any") + "}"
        if kind == "string":
            options = schema.get("enum") or ([schema["const"]] if "const" in schema else None)
            return "string(" + "|".join(sorted(options)) + ")" if options else "string"
        return kind or "any"

    def note(self, name, members, is_sum):
        """Notes the fields of an object. Of several alternatives a field is required only when
        each of them requires it."""
        if name in self.fields:
            return name
        fields = self.fields[name] = {}
        for member in members:
            for field, schema in member["properties"].items():
                required = field in member.get("required", [])
                if not is_sum:
                    required = all(field in m.get("required", []) for m in members)
                written = self.type_of(schema, f"{name}.{field}")
                known = fields.get(field)
                if known and known[0] != written:
                    written = union(known[0], written)
                fields[field] = (written, required)
        return name


def union(one, other):
    choice = re.compile(r"string\((.*)\)")
    a, b = choice.fullmatch(one), choice.fullmatch(other)
    if a and b:
        return "string(" + "|".join(sorted(set(a[1].split("|")) | set(b[1].split("|")))) + ")"
    return "any"


def need(flag):
    return "required" if flag else "optional"


def rows_of(root):
    document = Document(root)
    rows = []
    for path, item in root["paths"].items():
        names = re.findall(r"\{([^}]*)\}", path)
        for method in METHODS:
            if method not in item:
                continue
            operation = item[method]
            subject = f"{method.upper()} {re.sub(r'{[^}]*}', '{}', path)}"
            slug = re.sub(r"\W+", "_", subject)
            for parameter in item.get("parameters", []) + operation.get("parameters", []):
                parameter = document.resolve(parameter)
                name = parameter["name"]
                if parameter["in"] == "path":
                    name = str(names.index(name) + 1)
                written = document.type_of(parameter.get("schema"), f"{slug}.{name}")
                rows.append(("param", subject, parameter["in"], name, written, need(parameter.get("required"))))
            body = operation.get("requestBody")
            if body:
                for media, content in body["content"].items():
                    written = document.type_of(content.get("schema"), f"{slug}.request")
                    rows.append(("body", subject, media, "-", written, need(body.get("required"))))
            for status, answer in operation["responses"].items():
                answer = document.resolve(answer)
                for media, content in (answer.get("content") or {"-": {}}).items():
                    written = document.type_of(content.get("schema"), f"{slug}.{status}")
                    rows.append(("answer", subject, str(status), media, written, "-"))
                for name, header in answer.get("headers", {}).items():
                    written = document.type_of(document.resolve(header).get("schema"), f"{slug}.{name}")
                    rows.append(("header", subject, str(status), name, written, "-"))
    for schema, fields in document.fields.items():
        for field, (written, required) in fields.items():
            rows.append(("field", schema, "-", field, written, need(required)))
    return sorted(rows)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    for source in sorted(pathlib.Path(sys.argv[1]).iterdir()):
        if source.suffix == ".json":
            root = json.loads(source.read_text())
        elif source.suffix in (".yaml", ".yml"):
            import yaml

            root = yaml.safe_load(source.read_text())
        else:
            continue
        rows = rows_of(root)
        table = OUTPUT / f"{source.stem}.tsv"
        table.write_text("".join("\t".join(row) + "\n" for row in rows))
        print(f"{table.name}: {len(rows)} rows")


if __name__ == "__main__":
    main()
