"""How code of each language becomes a program that runs. Shell text, run in the directory of the code."""

from typing import NamedTuple


class Language(NamedTuple):
    """What the code is called, what compiles it, and what runs it."""

    file: str
    run: str
    compile: str | None = None


LANGUAGES = {
    "python": Language("main.py", "python3 main.py"),
    "pytest": Language("test_main.py", "python3 -m pytest -q test_main.py"),
    "bash": Language("main.sh", "bash main.sh"),
    "nodejs": Language("main.js", "node main.js"),
    "cpp": Language("main.cpp", "./main", "g++ -std=c++17 main.cpp -o main"),
    "go": Language("main.go", "./main", "go build -o main main.go"),
    "java": Language("Main.java", "java -cp . Main", "javac -cp . Main.java"),
    "rust": Language("main.rs", "./main", "rustc main.rs -o main"),
    "php": Language("main.php", "php main.php"),
    "perl": Language("main.pl", "perl main.pl"),
    "ruby": Language("main.rb", "ruby main.rb"),
    "lua": Language("main.lua", "lua main.lua"),
    "R": Language("main.R", "Rscript main.R"),
}
