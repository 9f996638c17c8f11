"""docs/agents.md taken apart: its blocks of commands and settings, by the heading they stand under."""

import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

GUIDE = Path(__file__).resolve().parents[3] / "docs/agents.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
AGENTS = ("Claude Code", "Codex", "Gemini CLI", "Cursor")


@dataclass
class Block:
    heading: str
    language: str
    text: str

    def filled(self, values):
        """The text with what a reader would put in place of the examples."""
        text = self.text
        for example, value in values.items():
            text = text.replace(example, value)
        return text


def blocks():
    found = []
    for part in re.split(r"^#+ ", GUIDE.read_text(), flags=re.M)[1:]:
        heading, _, body = part.partition("\n")
        found += [Block(heading, language, text) for language, text in BLOCK.findall(body)]
    return found


def commands(heading):
    """The lines of a heading's commands."""
    return [line for block in blocks() if (block.heading, block.language) == (heading, "sh")
            for line in block.text.splitlines()]


def registrations(text, language):
    """The servers that settings of an agent name."""
    if language == "toml":
        return list(tomllib.loads(text)["mcp_servers"].values())
    return list(json.loads(text)["mcpServers"].values())


def settings():
    """Every block of an agent's settings."""
    return [block for block in blocks() if block.language in ("json", "toml")]
