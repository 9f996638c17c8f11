"""Whether a result is what a scenario expects, and the values that steps hand to each other.

A scalar must be equal, a list equal in length and element by element, an object must have at least
the keys expected. An object with one key that begins with `$` is an operator; see OPERATORS.
"""

import hashlib
import re


def contains(value, wanted):
    if isinstance(value, str):
        return None if wanted in value else f"{shown(value)} does not contain {wanted!r}"
    if isinstance(value, list):
        found = any(mismatch(item, wanted) is None for item in value)
        return None if found else f"no element of {shown(value)} is {shown(wanted)}"
    return f"{shown(value)} contains nothing"


def is_not(value, wanted):
    return f"{shown(value)} is what it must not be" if mismatch(value, wanted) is None else None


def one_of(value, wanted):
    reasons = [mismatch(value, each) for each in wanted]
    return None if None in reasons else "; ".join(reasons)


def repeated(value, wanted):
    expected = wanted["text"] * wanted["count"]
    return None if value == expected else f"{shown(value)} ({len(value)} characters) is not {wanted['text']!r} × {wanted['count']}"


def numbered(value, wanted):
    """Lines from 1 to a number, as `seq` prints them: none is missing, none comes twice."""
    expected = "".join(f"{number}\n" for number in range(1, wanted + 1))
    if value == expected:
        return None
    have, want = value.split("\n"), expected.split("\n")
    for at, (a, b) in enumerate(zip(have, want)):
        if a != b:
            return f"line {at + 1} is {shown(a)} and not {b!r}"
    return f"{len(have) - 1} lines and not {wanted}"


def compare(symbol, holds):
    def check(value, wanted):
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return None if is_number and holds(value, wanted) else f"{shown(value)} is not {symbol} {wanted}"
    return check


OPERATORS = {
    "$contains": contains,
    "$not": is_not,
    "$one_of": one_of,
    "$repeat": repeated,
    "$numbered": numbered,
    "$matches": lambda v, w: None if isinstance(v, str) and re.search(w, v, re.S) else f"{shown(v)} does not match {w}",
    "$prefix": lambda v, w: None if isinstance(v, str) and v.startswith(w) else f"{shown(v)} does not begin with {w!r}",
    "$length": lambda v, w: mismatch(len(v), w) if isinstance(v, (str, list, dict)) else f"{shown(v)} has no length",
    "$exact": lambda v, w: None if v == w else f"{shown(v)} is not exactly {shown(w)}",
    "$present": lambda v, w: None if (v is not None) == w else f"{shown(v)} is {'absent' if w else 'present'}",
    "$sha256": lambda v, w: None if hashlib.sha256(v.encode()).hexdigest() == w else "the text has another sha256",
    "$ge": compare("≥", lambda v, w: v >= w),
    "$le": compare("≤", lambda v, w: v <= w),
}


def shown(value):
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:150]}…{text[-150:]}"


def mismatch(value, wanted):
    """Why the value is not what is wanted; nothing if it is."""
    if isinstance(wanted, dict):
        if len(wanted) == 1 and next(iter(wanted)).startswith("$"):
            name, argument = next(iter(wanted.items()))
            if name not in OPERATORS:
                raise ValueError(f"there is no operator {name}")
            return OPERATORS[name](value, argument)
        if not isinstance(value, dict):
            return f"{shown(value)} is not an object"
        for key, inner in wanted.items():
            reason = mismatch(value.get(key), inner)
            if reason:
                return f"{key}: {reason}"
        return None
    if isinstance(wanted, list):
        if not isinstance(value, list) or len(value) != len(wanted):
            return f"{shown(value)} is not {shown(wanted)}"
        for at, (a, b) in enumerate(zip(value, wanted)):
            reason = mismatch(a, b)
            if reason:
                return f"[{at}]: {reason}"
        return None
    if type(value) is not type(wanted) and not (isinstance(value, (int, float)) and isinstance(wanted, (int, float))):
        return f"{shown(value)} is not {shown(wanted)}"
    return None if value == wanted else f"{shown(value)} is not {shown(wanted)}"


def look_up(variables, path):
    value = variables
    for part in path.split("."):
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


def filled(value, variables):
    """The value with every `${name.path}` replaced; one that stands alone keeps its type."""
    if isinstance(value, str):
        alone = re.fullmatch(r"\$\{([^}]+)\}", value)
        if alone:
            return look_up(variables, alone[1])
        return re.sub(r"\$\{([^}]+)\}", lambda found: str(look_up(variables, found[1])), value)
    if isinstance(value, list):
        return [filled(inner, variables) for inner in value]
    if isinstance(value, dict):
        return {key: filled(inner, variables) for key, inner in value.items()}
    return value
