"""Sentences and names of the API documents as the writers of tools/sdk-types put them into code."""

import re


def sentence(text):
    return " ".join(text.split())


def wrapped(text, prefix, width=100):
    lines, line = [], ""
    for word in sentence(text).split(" "):
        if line and len(prefix) + len(line) + len(word) + 1 > width:
            lines.append(prefix + line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return lines + [prefix + line] if line else lines


def snake(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
