"""The first example on the page of each published SDK beside the same with ours, as the READMEs show them. `run --check`
holds ours to be no longer than theirs; the package tests of each language run ours at a real server."""

import re
from pathlib import Path

SDKS = Path(__file__).resolve().parents[1]
# The published ones are in these languages.
LANGUAGES = ("python", "typescript", "go", "java", "csharp")
TABLE = re.compile(r"<table><tr><th>[^\n]*</th></tr><tr><td>\n\n```\w+\n(.*?)```\n\n</td><td>\n\n```\w+\n(.*?)```\n\n</td></tr></table>", re.S)


def examples(language):
    """Theirs and ours."""
    found = TABLE.findall((SDKS / language / "README.md").read_text())
    if len(found) != 1:
        raise ValueError(f"sdks/{language}/README.md has {len(found)} tables with two examples side by side; one is wanted")
    return found[0]


def ours(language, address, key):
    """Our example, for this server and the image `host`."""
    text = examples(language)[1]
    for old in ("api.opensandbox.io", "localhost:8080"):
        text = text.replace(f'"{old}"', f'"{address}"')
    text = text.replace('"your-api-key"', f'"{key}"')
    return text.replace('"ubuntu"', '"host"').replace('"python:3.12"', '"host"')


def problems():
    """Where ours is longer than theirs: in lines that are not blank, or in characters."""
    found = []
    for language in LANGUAGES:
        try:
            pair = examples(language)
        except ValueError as error:
            found.append(str(error))
            continue
        theirs, own = ([line.strip() for line in text.splitlines() if line.strip()] for text in pair)
        if len(own) > len(theirs) or sum(map(len, own)) > sum(map(len, theirs)):
            found.append(f"sdks/{language}/README.md: our first page has {len(own)} lines with {sum(map(len, own))} characters, "
                         f"theirs {len(theirs)} with {sum(map(len, theirs))}")
    return found
