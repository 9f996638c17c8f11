"""Every language of the image: state across runs, isolation, errors, interrupts."""

import base64
import struct
import threading
import zlib

import pytest

# For each language: cells that set, read and fail, and one that prints a sign and never ends.
CELLS = {
    "python": ("x = 20", "print(x + 1)", "missing_name", "NameError", "print('on', flush=True)\nwhile True: pass"),
    "bash": ("x=20", "echo $((x + 1))", "no_such_command", "", "echo on; while :; do :; done"),
    "javascript": ("let x = 20", "console.log(x + 1)", "missingName", "ReferenceError",
                   "console.log('on'); while (true) {}"),
    "typescript": ("let x: number = 20", "console.log(x + 1)", "missingName", "ReferenceError",
                   "console.log('on'); while (true) {}"),
    "java": ("int x = 20;", "System.out.println(x + 1);", "int z = 1 / (x - x);", "Exception",
             # One statement: the kernel runs each by itself and forgets an interrupt between two.
             'for (int i = 0; ; i++) { if (i == 0) System.out.println("on"); Thread.sleep(10); }'),
    "go": ("var x = 20", 'import "fmt"\nfunc main() { fmt.Println(x + 1) }', "func main() { missing() }", "",
           'import "fmt"\nfunc main() { fmt.Println("on"); for {} }'),
}


@pytest.mark.parametrize("language", CELLS)
def test_state_errors_interrupts_and_isolation(context, language):
    setting, reading, failing, error_name, endless = CELLS[language]
    one = context(language)
    assert one.run(setting).error is None
    assert one.stdout(reading) == "21\n"

    failed = one.run(failing)
    assert failed.error is not None
    assert error_name in failed.error.name
    assert one.stdout(reading) == "21\n", "an error leaves the state"

    stopped = one.interrupted(endless, "on")
    assert stopped.id == one.context.id
    assert one.stdout(reading) == "21\n", "an interrupt leaves the state"

    other = context(language)
    apart = other.run(reading)
    output = "".join(message.text for message in apart.logs.stdout)
    assert apart.error is not None or output != "21\n", "contexts know nothing of each other"


def test_java_gives_values_and_keeps_methods_and_imports(context):
    java = context("java")
    java.run("import java.util.stream.*;\nint twice(int n) { return 2 * n; }")
    assert java.value("IntStream.of(1, 2, 3).map(n -> twice(n)).sum()") == "12"
    failed = java.run("int y = \"text\";")
    assert failed.error is not None and "incompatible types" in "".join(failed.error.traceback)


def test_go_keeps_functions_and_runs_whole_programs(context):
    go = context("go")
    assert go.run("func twice(n int) int { return 2 * n }").error is None
    assert go.stdout("%%\nfmt.Println(twice(21))") == "42\n"
    whole = 'package main\n\nimport "fmt"\n\nfunc main() {\n\tfmt.Println("2 + 2 =", 2+2)\n}\n'
    assert "2 + 2 = 4" in go.stdout(whole)


@pytest.mark.parametrize("language", ["python", "java", "go"])
def test_contexts_are_made_listed_found_and_deleted(interpreter, language):
    codes = interpreter.codes
    made = codes.create_context(language)
    assert made.language == language
    assert codes.get_context(made.id).id == made.id
    assert made.id in [one.id for one in codes.list_contexts(language)]
    codes.delete_context(made.id)
    assert made.id not in [one.id for one in codes.list_contexts(language)]
    codes.create_context(language)
    codes.delete_contexts(language)
    assert codes.list_contexts(language) == []


def test_contexts_run_side_by_side(context):
    languages = ["python", "bash", "java", "go"]
    contexts = [context(language) for language in languages]
    outputs = {}

    def work(language, one):
        one.run(CELLS[language][0])
        outputs[language] = one.stdout(CELLS[language][1])

    threads = [threading.Thread(target=work, args=pair) for pair in zip(languages, contexts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
    assert outputs == dict.fromkeys(languages, "21\n")


def test_a_figure_comes_back_as_a_valid_picture(raw_results):
    results = raw_results("import matplotlib.pyplot as plt\nplt.plot([1, 4, 9])\nplt.show()")
    pictures = [result["image/png"] for result in results if "image/png" in result]
    picture = base64.b64decode(pictures[0], validate=True)
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    at, kinds, data = 8, [], b""
    while at < len(picture):
        (length,), kind = struct.unpack(">I", picture[at:at + 4]), picture[at + 4:at + 8]
        body, (check,) = picture[at + 8:at + 8 + length], struct.unpack(">I", picture[at + 8 + length:at + 12 + length])
        assert zlib.crc32(kind + body) == check
        kinds.append(kind)
        data += body if kind == b"IDAT" else b""
        at += 12 + length
    assert kinds[0] == b"IHDR" and kinds[-1] == b"IEND"
    assert len(zlib.decompress(data)) > 10_000


def test_a_table_comes_back_as_html_and_text(raw_results):
    results = raw_results("import pandas, numpy\npandas.DataFrame({'a': numpy.arange(3)})")
    assert "<table" in results[-1]["text/html"]
    assert results[-1]["text"].split() == ["a", "0", "0", "1", "1", "2", "2"]
