"""Which programs files of this repository start, and which ones `tools/setup` installs.

Reads `Command::new("...")` in Rust, `subprocess` in Python and the commands of shell scripts and the
Makefile. A program whose name is computed is not seen. Used by `tools/tidy`.
"""

import re
import shlex
from pathlib import Path

# What a Debian system has before anything is installed: its essential packages, the shell's own
# commands, and Debian's package manager.
BASE = set("""
[ alias apt-get awk basename bash break cat cd chgrp chmod chown cmp command comm continue cp cut date dd declare
diff dirname dpkg-query du echo env eval exec exit export expr false find flock getent grep groups gunzip gzip head
hostname id install ipcrm ipcs kill ln local ls mapfile md5sum mkdir mkfifo mknod mktemp mount mv nice nohup nproc
nsenter pivot_root printf pwd read readlink readonly realpath return rm rmdir sed seq set setpriv setsid sh
sha256sum shift sleep sort source stat sync tail tar tee test timeout touch tr trap true truncate ulimit umask
umount uname uniq unset unshare wait wc which xargs :
""".split())
# Come with the toolchain that rust-toolchain.toml names.
RUST = {"cargo", "rustc", "rustup"}
# Replaces `sudo` in tools/setup where the user is root already.
OPTIONAL = {"sudo"}
KEYWORDS = {"if", "then", "else", "elif", "do", "while", "until", "!", "{", "}", "time"}
ENDINGS = {"fi", "done", "esac"}
# Programs are in small letters; what is not, is a variable of make.
WORD = re.compile(r"[a-z][\w.+-]*")
RUST_START = re.compile(r'Command::new\(\s*"([^"]+)"')
PYTHON_START = re.compile(
    r"(?:subprocess\.(?:run|Popen|check_output|check_call|call)|create_subprocess_exec|os\.execvpe?)"
    r'\(\s*\[?\s*"([^"]+)"'
)


def installed():
    """The commands whose packages tools/setup installs."""
    text = Path("tools/setup").read_text()
    tables = re.findall(r"^\w+_needs=\((.*?)^\)", text, re.S | re.M)
    words = re.sub(r"#.*", "", "\n".join(tables))
    return {probe.partition(":")[0] for probe in words.split()}


def is_shell(path, text):
    first = text.partition("\n")[0]
    return path.suffix == ".sh" or first.startswith("#!") and re.search(r"\b(ba|da)?sh\b", first)


def is_python(path, text):
    return path.suffix == ".py" or re.match(r"#!.*\bpython3?\b", text)


def commands(text):
    """The words in the place of a command in a shell script."""
    text = re.sub(r"<<-?\s*(['\"]?)(\w+)\1([^\n]*)\n.*?\n\s*\2\b",
                  lambda m: m[3] + "\n" * m[0].count("\n"), text, flags=re.S)
    text = re.sub(r"\bcase\b[^\n]*\besac\b|\bfor \(\([^\n]*\)\)", "", text).replace("\\\n", "  ")
    # Quotes within a substitution within quotes would end the outer ones.
    text = re.sub(r"\$\([^()\n]*\)", lambda m: m[0].replace('"', ""), text)
    lexer = shlex.shlex(text, posix=False, punctuation_chars="();|&<>\n")
    lexer.whitespace = " \t\r"
    lexer.commenters = "#"
    lexer.wordchars += "=$@%+,:!{}[]*?~^`"
    is_command, in_case, in_array = True, False, False
    previous = begun = ""
    while True:
        try:
            token = lexer.get_token()
        except ValueError:
            return
        if not token:
            return
        for inner in [] if token.startswith("'") else re.findall(r"\$\(([^()]*)\)", token):
            yield from commands(inner)
        if set(token) <= set("();|&<>\n"):
            if in_array:
                in_array = ")" not in token
                continue
            if previous.endswith("=") and token.startswith("("):
                in_array = ")" not in token
                continue
            if ";;" in token or in_case and ")" not in token:
                in_case, is_command = True, False
            elif in_case:
                in_case, is_command = False, True
            elif "<" in token or ">" in token:
                pass
            else:
                is_command = True
        elif in_array or in_case:
            in_case = in_case and token != "esac"
        elif token in ("for", "case", "function", "select"):
            is_command, begun = False, token
        elif token == "in" and begun:
            in_case, is_command, begun = begun == "case", False, ""
        elif is_command:
            if token in KEYWORDS or re.match(r"\w+\+?=", token):
                pass
            else:
                if WORD.fullmatch(token) and token not in ENDINGS:
                    yield token
                is_command = token == "exec"
        previous = token


def functions(directory):
    """The shell functions that scripts of a directory share."""
    scripts = [path for path in directory.iterdir() if path.is_file()]
    texts = [path.read_text(errors="replace") for path in scripts]
    return {name for text in texts for name in re.findall(r"^\s*([\w-]+)\(\)", text, re.M)}


def started(path):
    """The programs that a file starts."""
    text = path.read_text(errors="replace")
    if path.suffix == ".rs":
        code = "\n".join(line.split("//")[0] for line in text.splitlines())
        names = RUST_START.findall(code)
    elif is_python(path, text):
        names = PYTHON_START.findall(text)
    elif is_shell(path, text):
        names = set(commands(text)) - functions(path.parent)
    elif path.name == "Makefile":
        recipes = [line.lstrip("\t@-") for line in text.splitlines() if line.startswith("\t")]
        # Variables and functions of make; the shell's own substitutions begin with $$.
        text = "\n".join(recipes).replace("$$", "\0")
        while (less := re.sub(r"\$\([^()]*\)", "", text)) != text:
            text = less
        names = commands(text.replace("\0", "$"))
    else:
        names = ()
    # A path that is written out whole is a file of the base system, or one that was built.
    return sorted({name for name in names if not name.startswith(("/", "."))})


def missing(path):
    """The programs that a file starts and that nobody installs. Scripts that go into an image start what
    the image's own recipe puts there."""
    if path.parts[:1] == ("images",) and "root" in path.parts:
        return []
    known = BASE | RUST | OPTIONAL | installed()
    return [name for name in started(path) if name not in known]
