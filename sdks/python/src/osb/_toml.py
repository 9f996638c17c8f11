"""Reads the settings file: by the standard library, and before Python 3.11, which has no reader of
TOML, by a small one for tables of text, numbers, booleans and lists of text."""

from __future__ import annotations

import json
import re
import sys
from typing import Any


def read_toml(text: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib

        return tomllib.loads(text)
    return read_small(text)


def read_small(text: str) -> dict[str, Any]:
    """Tables and `name = value`; what is not understood is an error with its line."""
    root: dict[str, Any] = {}
    table = root
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        heading = re.fullmatch(r"\[\s*([A-Za-z0-9_.\- ]+?)\s*\]\s*(#.*)?", line)
        if heading:
            table = root
            for part in heading[1].split("."):
                table = table.setdefault(part.strip(), {})
            continue
        pair = re.fullmatch(r"([A-Za-z0-9_-]+|\"[^\"]+\")\s*=\s*(.+)", line)
        if not pair:
            raise ValueError(f"line {number} is not name = value")
        table[pair[1].strip('"')] = _value(pair[2], number)
    return root


def _value(text: str, number: int) -> Any:
    literal = re.fullmatch(r"'([^']*)'\s*(#.*)?", text)
    if literal:
        return literal[1]
    quoted = re.fullmatch(r'("(?:[^"\\]|\\.)*")\s*(#.*)?', text)
    if quoted:
        return json.loads(quoted[1])
    plain = text.split("#")[0].strip()
    if plain in ("true", "false"):
        return plain == "true"
    if plain.startswith("[") and plain.endswith("]"):
        try:
            return json.loads(plain.replace("'", '"'))
        except ValueError:
            raise ValueError(f"line {number}: this list is not readable") from None
    try:
        return float(plain.replace("_", "")) if re.search(r"[.eE]", plain) else int(plain.replace("_", ""))
    except ValueError:
        raise ValueError(f"line {number}: {plain!r} is no value") from None
