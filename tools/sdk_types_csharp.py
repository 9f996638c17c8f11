"""The C# side of tools/sdk-types: classes that System.Text.Json reads and writes, documented throughout.

What may be absent is null and is left out when written. Text of which some values are known stays text, so
that a value that a later server adds can be read; the known ones are constants of a class of that name.
"""

import json
import re
from xml.sax.saxutils import escape

PLAIN = {"text": "string", "time": "DateTimeOffset", "number": "double", "boolean": "bool", "any": "object"}
# A property may not have the name of its class.
RENAMED_FIELDS = {("Endpoint", "endpoint"): "Address"}
WIDTH = 110


def pascal(name):
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[^A-Za-z0-9]+", name) if part)


def type_name(kind, aliases):
    if kind.name == "integer":
        return "long" if kind.wide else "int"
    if kind.name in PLAIN:
        return PLAIN[kind.name]
    if kind.name == "named":
        alias = aliases.get(kind.inner)
        return type_name(alias.alias, aliases) if alias else kind.inner
    if kind.name == "optional":
        return f"{type_name(kind.inner, aliases)}?"
    if kind.name == "list":
        return f"List<{type_name(kind.inner, aliases)}>"
    return f"Dictionary<string, {type_name(kind.inner, aliases)}>"


def default(kind, aliases):
    """What a property without which the wire is wrong holds before it is read."""
    name = type_name(kind, aliases)
    if name == "string":
        return ' = "";'
    return "" if name in ("long", "int", "double", "bool", "DateTimeOffset") else f" = new {name}();"


def summary(about, indent):
    text = re.sub(r"\[?`([^`]+)`\]?", r"<c>\1</c>", escape(" ".join(about.split())))
    head, lines, line = f"{indent}/// ", [], ""
    for word in f"<summary>{text}</summary>".split(" "):
        if line and len(head) + len(line) + len(word) + 1 > WIDTH:
            lines.append(head + line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return [*lines, head + line]


def constants(found):
    lines = [*summary(found.about or found.name, "    "), f"    public static class {found.name}", "    {"]
    for value in found.values:
        lines += summary(f"The value `{value}`.", "        ")
        lines.append(f"        public const string {pascal(value)} = {json.dumps(value)};")
    return [*lines, "    }", ""]


def one_class(found, aliases):
    lines = [*summary(found.about or found.name, "    "), f"    public sealed class {found.name}", "    {"]
    for field in found.fields:
        name = RENAMED_FIELDS.get((found.name, field.wire), pascal(field.wire))
        about = field.about or f"The field `{field.wire}`."
        if field.kind.name == "named" and field.kind.inner in aliases and aliases[field.kind.inner].values:
            about += f" One of `{field.kind.inner}`."
        lines += summary(about, "        ")
        lines.append(f"        [JsonPropertyName({json.dumps(field.wire)})]")
        mark = "?" if field.optional else ""
        value = "" if field.optional else default(field.kind, aliases)
        lines += [f"        public {type_name(field.kind, aliases)}{mark} {name} {{ get; set; }}{value}", ""]
    return [*lines[:-1 if found.fields else None], "    }", ""]


def csharp(types, notice):
    aliases = {found.name: found for found in types if found.alias}
    lines = [f"// The words of the protocol, as classes. {notice}", "",
             "using System;", "using System.Collections.Generic;", "using System.Text.Json.Serialization;", "",
             "namespace OpenSandbox.Wire", "{"]
    for found in types:
        if found.alias and found.values:
            lines += constants(found)
        elif not found.alias:
            lines += one_class(found, aliases)
    return "\n".join([*lines[:-1], "}"]) + "\n"
