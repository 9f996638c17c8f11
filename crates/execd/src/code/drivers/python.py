# The Python side of a code context: runs cells one after another in one namespace.
#
# Started by execd as `python3 -c <boot> <fd> <this file>`, where <boot> compiles this file under
# the name <driver> so that tracebacks can leave its frames out; <fd> is one end of a socket pair on which
# frames go both ways. Output of user code goes to descriptors 1 and 2 as always, so that what
# child processes print is caught too. Everything here is written for start-up time and memory:
# only built-in modules are imported before the first cell, the rest on first use.
#
# The frames are specified in README.md beside this file.
#
# Deliberately not here: magics, history, comms. Works on Python 3.6 and later.
import sys, os, _ast, _signal, _thread, builtins


def _driver(channel, main):
    PID, MAIN = os.getpid(), _thread.get_ident()
    ONLY_AST, TOP_LEVEL_AWAIT, COROUTINE, FUTURES = 0x400, 0x2000, 0x80, 0x1FE0000
    if sys.version_info < (3, 8):
        TOP_LEVEL_AWAIT = 0
    state = {"running": False, "count": 0, "flags": 0, "loop": None}
    sources = []

    # Frames. An interrupt in the middle of one waits for its end.

    class Whole:
        depth, is_interrupted = 0, False

        def __enter__(self):
            self.depth += 1

        def __exit__(self, *ignored):
            self.depth -= 1
            if self.is_interrupted and not self.depth:
                self.is_interrupted = False
                raise KeyboardInterrupt

    whole = Whole()

    def send(kind, *fields):
        body = [kind]
        for field in fields:
            if isinstance(field, str):
                field = field.encode("utf-8", "replace")
            body.append(len(field).to_bytes(4, "big"))
            body.append(field)
        body = b"".join(body)
        data = memoryview(len(body).to_bytes(4, "big") + body)
        with whole:
            try:
                while data:
                    data = data[os.write(channel, data):]
            except OSError:
                # User code has closed it: nothing can be told any more.
                os._exit(1)

    def receive():
        def exactly(n):
            parts = []
            while n:
                part = os.read(channel, min(n, 1 << 20))
                if not part:
                    os._exit(0)
                parts.append(part)
                n -= len(part)
            return b"".join(parts)

        with whole:
            body = exactly(int.from_bytes(exactly(4), "big"))
        fields, at = [], 1
        while at < len(body):
            size = int.from_bytes(body[at:at + 4], "big")
            fields.append(body[at + 4:at + 4 + size])
            at += 4 + size
        return body[:1], fields

    def flush():
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass

    # Interrupts reach user code only. When nothing runs they are dropped, by a handler rather
    # than by SIG_IGN, which child processes would inherit.

    def on_interrupt(number, frame):
        if os.getpid() == PID and whole.depth:
            whole.is_interrupted = state["running"]
        elif state["running"] or os.getpid() != PID:
            raise KeyboardInterrupt

    # Rich results.

    METHODS = (
        ("_repr_html_", "text/html"), ("_repr_markdown_", "text/markdown"),
        ("_repr_svg_", "image/svg+xml"), ("_repr_png_", "image/png"),
        ("_repr_jpeg_", "image/jpeg"), ("_repr_pdf_", "application/pdf"),
        ("_repr_latex_", "text/latex"), ("_repr_json_", "application/json"),
        ("_repr_javascript_", "application/javascript"),
    )

    def as_text(mime, value):
        if isinstance(value, (bytes, bytearray)):
            import binascii
            return binascii.b2a_base64(value, newline=False).decode("ascii")
        if isinstance(value, str):
            return value
        import json
        return json.dumps(value)

    def figure_png(figure):
        import io
        picture = io.BytesIO()
        figure.savefig(picture, format="png", bbox_inches="tight")
        return picture.getvalue()

    def is_figure(value):
        module = sys.modules.get("matplotlib.figure")
        return module is not None and isinstance(value, module.Figure)

    def bundle(value):
        """Mime type to value, in the order they were found; text/plain is always there."""
        found, kind = {}, type(value)
        method = getattr(kind, "_repr_mimebundle_", None)
        if method is not None:
            answer = method(value)
            if isinstance(answer, tuple):
                answer = answer[0]
            for mime, part in (answer or {}).items():
                found[mime] = as_text(mime, part)
        if is_figure(value):
            found["image/png"] = as_text("image/png", figure_png(value))
        for name, mime in METHODS:
            method = getattr(kind, name, None)
            if mime in found or method is None:
                continue
            part = method(value)
            if isinstance(part, tuple):
                part = part[0]
            if part is not None:
                found[mime] = as_text(mime, part)
        if "text/plain" not in found:
            found["text/plain"] = repr(value)
        return found

    def pairs(found):
        return [part for pair in found.items() for part in pair]

    class Handle:
        """What display(..., display_id=True) answers: a way to show something else there."""

        def __init__(self, display_id):
            self.display_id = display_id

        def update(self, value, **options):
            display(value, display_id=self.display_id, update=True, **options)

        def display(self, value, **options):
            display(value, display_id=self.display_id, **options)

    def display(*values, display_id=None, update=False, raw=False, clear=False, **ignored):
        if clear:
            clear_output(wait=True)
        if display_id is True:
            display_id = os.urandom(8).hex()
        flush()
        for value in values:
            found = {m: as_text(m, v) for m, v in value.items()} if raw else bundle(value)
            send(b"D", display_id or "", "1" if update else "", *pairs(found))
            keep_order()
        return Handle(display_id) if display_id and not update else None

    def keep_order():
        """Waits until execd has read the frames so far: what is printed next must not overtake
        them on its other way. Only the thread that reads frames anyway can wait."""
        if state["running"] and os.getpid() == PID and _thread.get_ident() == MAIN:
            with whole:
                send(b"Q")
                receive()

    def clear_output(wait=False):
        flush()
        send(b"L", "1" if wait else "")

    def ask(prompt="", password=False):
        if os.getpid() != PID:
            raise EOFError("input() is not available in a forked process")
        if _thread.get_ident() != MAIN:
            raise EOFError("input() is available in the main thread only")
        flush()
        with whole:
            send(b"I", str(prompt), "1" if password else "")
            receive()
        raise EOFError("this execution has no input; pass data in the code or in a file")

    # Figures: shown by plt.show() and at the end of a cell, then closed, as a notebook does.

    def show_figures(*ignored, **also_ignored):
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is None or not hasattr(pyplot, "get_fignums"):
            return
        for number in pyplot.get_fignums():
            display(pyplot.figure(number))
        pyplot.close("all")

    def mend_pyplot(module):
        if "MPLBACKEND" not in os.environ:
            module.switch_backend("agg")
        module.show = show_figures

    def mend_getpass(module):
        module.getpass = lambda prompt="Password: ", stream=None, **ignored: ask(prompt, True)

    MENDED = {"matplotlib.pyplot": mend_pyplot, "getpass": mend_getpass}

    class WatchImports:
        """Notices the import of modules that expect a screen or a terminal, and gives them what
        works without: pyplot a show(), getpass the same input as everything else."""

        @staticmethod
        def find_spec(name, path=None, target=None):
            if name not in MENDED:
                return None
            for finder in sys.meta_path:
                if finder is WatchImports or not hasattr(finder, "find_spec"):
                    continue
                spec = finder.find_spec(name, path, target)
                if spec is None or spec.loader is None:
                    continue
                execute = spec.loader.exec_module

                def exec_module(module):
                    execute(module)
                    MENDED[name](module)

                spec.loader.exec_module = exec_module
                return spec
            return None

    # Running a cell.

    def remember_sources():
        """Lets tracebacks and inspect show the lines of cells."""
        import linecache
        for name, text in sources:
            lines = [line + "\n" for line in text.split("\n")]
            linecache.cache[name] = (len(text), None, lines, name)

    def await_(coroutine):
        import asyncio
        loop = state["loop"]
        if loop is None or loop.is_closed():
            loop = state["loop"] = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        task = loop.create_task(coroutine)
        try:
            return loop.run_until_complete(task)
        except BaseException:
            if not task.done():
                task.cancel()
                try:
                    loop.run_until_complete(task)
                except BaseException:
                    pass
            raise

    def evaluate(code):
        value = eval(code, main)
        state["flags"] |= code.co_flags & FUTURES
        return await_(value) if code.co_flags & COROUTINE else value

    def execute(text, name):
        flags = state["flags"]
        tree = compile(text, name, "exec", ONLY_AST | TOP_LEVEL_AWAIT | flags, True)
        last = None
        if tree.body and isinstance(tree.body[-1], _ast.Expr) and not text.rstrip().endswith(";"):
            last = _ast.Expression(tree.body.pop().value)
        if tree.body:
            evaluate(compile(tree, name, "exec", TOP_LEVEL_AWAIT | flags, True))
        if last is None:
            return None
        return evaluate(compile(last, name, "eval", TOP_LEVEL_AWAIT | state["flags"], True))

    def leave_out_driver(shown):
        """Takes this file's frames out of a traceback and of those it follows from."""
        while shown is not None:
            shown.stack[:] = [frame for frame in shown.stack if frame.filename != "<driver>"]
            shown = shown.__cause__ or shown.__context__

    def report(error):
        """Sends the error as Python itself would print it, without this file's frames."""
        kind = type(error)
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename == "<driver>":
            frames = frames.tb_next
        try:
            value = str(error)
        except BaseException:
            value = "<the exception's text cannot be shown>"
        try:
            import traceback
            remember_sources()
            shown = traceback.TracebackException(kind, error, frames)
            leave_out_driver(shown)
            lines = "".join(shown.format()).rstrip("\n").split("\n")
        except BaseException:
            lines = [kind.__name__ + ": " + value]
        send(b"E", kind.__name__, value, *lines)

    def forked_child_ends(code):
        """A child that user code forked and that came back here must not go on as the driver."""
        if os.getpid() != PID:
            flush()
            os._exit(code)

    def run(text):
        state["count"] += 1
        name = "<cell %d>" % state["count"]
        sources.append((name, text))
        if len(sources) > 1000:
            del sources[:500]
        if "linecache" in sys.modules:
            remember_sources()
        failure = None
        try:
            state["running"] = True
            try:
                send(b"B")
                value = execute(text, name)
                if value is not None:
                    main["_"] = value
                    found = bundle(value)
                    forked_child_ends(0)
                    state["running"] = False
                    if is_figure(value) and "matplotlib.pyplot" in sys.modules:
                        sys.modules["matplotlib.pyplot"].close(value)
                    flush()
                    send(b"R", str(state["count"]), *pairs(found))
                show_figures()
            finally:
                state["running"] = False
        except BaseException as error:
            failure = error
        if failure is not None:
            forked_child_ends(failure.code if isinstance(getattr(failure, "code", None), int) else 1)
            flush()
            report(failure)
        forked_child_ends(0)
        flush()
        send(b"F", str(state["count"]))

    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # Not unbuffered, whatever the environment says: print() would cut every line in two.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
            if sys.version_info >= (3, 7):
                stream.reconfigure(write_through=False)
    _signal.signal(_signal.SIGINT, on_interrupt)
    os.set_inheritable(channel, False)
    sys.meta_path.insert(0, WatchImports)
    sys.argv[:] = [""]
    builtins.display, builtins.clear_output, builtins.input = display, clear_output, ask
    send(b"H", sys.version.split()[0])
    while True:
        kind, fields = receive()
        if kind == b"X":
            run(fields[0].decode("utf-8", "replace"))


def _start():
    module = type(sys)("__main__")
    channel = int(sys.argv[1])
    module.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = module
    if sys.path and sys.path[0] != "":
        sys.path.insert(0, "")
    _driver(channel, module.__dict__)


_start()
