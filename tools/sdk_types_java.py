"""The Java writer of tools/sdk-types: a record for each type, in a file of its own, which reads and writes the wire by the
names in Fields.java. Types of text are String, with a class of constants for the values that are known. What goes into
requests has a constructor of the required fields alone and a method with...() for each of the others.
"""

import json
import re

from sdk_types_text import sentence, snake, wrapped

JAVA_WORDS = {"default", "class", "public", "new", "import", "package", "switch", "case", "enum", "native"}
# A record shows its fields in every log; these it does not show.
JAVA_SECRETS = {"ImageAuth": "password", "InlineCredentialSource": "value", "OssfsVolume": "accessKeySecret"}


def java_name(wire):
    words = [word for word in re.split(r"[^A-Za-z0-9]+", wire) if word]
    name = words[0][:1].lower() + words[0][1:] + "".join(word[:1].upper() + word[1:] for word in words[1:])
    return f"{name}_" if name in JAVA_WORDS else name


def java_type(kind, aliases, boxed=True):
    if kind.name == "named" and kind.inner in aliases:
        return java_type(aliases[kind.inner], aliases, boxed)
    if kind.name == "integer":
        return ("Long" if boxed else "long") if kind.wide else ("Integer" if boxed else "int")
    simple = {"text": "String", "time": "Instant", "any": "Object",
              "number": "Double" if boxed else "double", "boolean": "Boolean" if boxed else "boolean"}
    if kind.name in simple:
        return simple[kind.name]
    if kind.name == "named":
        return kind.inner
    if kind.name == "optional":
        return java_type(kind.inner, aliases)
    if kind.name == "list":
        return f"List<{java_type(kind.inner, aliases)}>"
    return f"Map<String, {java_type(kind.inner, aliases)}>"


def java_reader(kind, aliases):
    """The method that reads a value, as a method reference."""
    if kind.name == "named" and kind.inner in aliases:
        return java_reader(aliases[kind.inner], aliases)
    if kind.name in ("optional", "named"):
        return java_reader(kind.inner, aliases) if kind.name == "optional" else f"{kind.inner}::fromJson"
    if kind.name in ("list", "map"):
        return f"value -> Fields.{kind.name}(value, {java_reader(kind.inner, aliases)})"
    name = {"integer": "wide" if kind.wide else "integer", "boolean": "truth"}.get(kind.name, kind.name)
    return f"Fields::{name}"


def javadoc(about):
    """A sentence as javadoc reads it."""
    for sign, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("@", "&#64;"), ("*/", "* /")):
        about = about.replace(sign, name)
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", sentence(about))


def java_comment(about, indent=""):
    lines = wrapped(javadoc(about), f"{indent} * ", 120)
    return [f"{indent}/** {lines[0].strip()[2:]} */"] if len(lines) == 1 else [f"{indent}/**", *lines, f"{indent} */"]


def java_constants(found):
    lines = [*java_comment(found.about or found.name), f"public final class {found.name} {{"]
    for value in found.values:
        name = re.sub(r"\W+", "_", snake(value)).upper()
        lines += [f"    /** {{@code {value}}} */", f"    public static final String {name} = {json.dumps(value)};"]
    return [*lines, "", f"    private {found.name}() {{}}", "}"]


def java_record(found, aliases, is_sent):
    fields = [(java_name(field.wire), java_type(field.kind, aliases, field.optional), field) for field in found.fields]
    about = java_comment(found.about or found.name)
    parameters = [f" * @param {name} {javadoc(field.about) or field.wire}{' (may be null)' if field.optional else ''}"
                  for name, _, field in fields]
    head = about[1:-1] if len(about) > 1 else [f" * {about[0][4:-3]}"]
    lines = ["/**", *head, *([" *"] if parameters else []), *parameters, " */"]
    joined = ", ".join(f"{kind} {name}" for name, kind, _ in fields)
    lines += [f"public record {found.name}({joined}) implements WireType {{"]
    lines += ["    /** Reads what {@link Json#parse} gives. */", f"    public static {found.name} fromJson(Object json) {{"]
    reads = []
    for _, kind, field in fields:
        how = "optional" if field.optional else "required"
        reads.append(f'fields.{how}({json.dumps(field.wire)}, {java_reader(field.kind, aliases)})')
    if reads:
        lines += [f'        Fields fields = new Fields(json, "{found.name}");',
                  f"        return new {found.name}(", *[f"            {read}," for read in reads[:-1]], f"            {reads[-1]});"]
    else:
        lines += [f"        return new {found.name}();"]
    lines += ["    }", "", "    @Override", "    public Map<String, Object> toJson() {",
              "        Map<String, Object> json = new LinkedHashMap<>();"]
    lines += [f"        Fields.put(json, {json.dumps(field.wire)}, {name});" for name, _, field in fields]
    lines += ["        return json;", "    }"]
    secret = JAVA_SECRETS.get(found.name)
    if secret:
        shown = ", ".join(f'{name}=" + {name} + "' for name, _, _ in fields if name != secret)
        lines += ["", f"    /** Without {{@code {secret}}}, which no log should show. */", "    @Override",
                  "    public String toString() {", f'        return "{found.name}[{shown}]";', "    }"]
    if is_sent and any(field.optional for _, _, field in fields):
        lines += java_sent(found.name, fields)
    return [*lines, "}"]


def java_sent(type_name, fields):
    needed = [(name, kind) for name, kind, field in fields if not field.optional]
    given = ", ".join("null" if field.optional else name for name, _, field in fields)
    lines = ["", "    /** With what is required alone. */",
             f"    public {type_name}({', '.join(f'{kind} {name}' for name, kind in needed)}) {{",
             f"        this({given});", "    }"]
    for name, kind, field in fields:
        if field.optional:
            lines += ["", f"    /** The same with another {{@code {name}}}. */",
                      f"    public {type_name} with{name[:1].upper()}{name[1:].rstrip('_')}({kind} {name}) {{",
                      f"        return new {type_name}({', '.join(other for other, _, _ in fields)});", "    }"]
    return lines


def java(types, in_requests, notice):
    """The files of the package by their names. `in_requests` are the names of the types that are sent."""
    aliases = {found.name: found.alias for found in types if found.alias}
    files = {}
    for found in types:
        if found.alias and not found.values:
            continue
        body = java_constants(found) if found.alias else java_record(found, aliases, found.name in in_requests)
        text = "\n".join(body)
        uses = {"Instant": "java.time.Instant", "LinkedHashMap": "java.util.LinkedHashMap", "List": "java.util.List",
                "Map": "java.util.Map"}
        imports = [f"import {path};" for name, path in uses.items() if re.search(rf"\b{name}\b", text)]
        head = [notice, "", "package dev.osb.wire;", "", *imports, *([""] if imports else [])]
        files[f"{found.name}.java"] = "\n".join(head) + "\n" + text + "\n"
    return files
