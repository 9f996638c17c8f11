# Starts the Python driver, whose text is the last argument, under a name of its own, so that it
# can leave its frames out of tracebacks, in a namespace that user code does not see.
#
# Compiling takes more than a megabyte that an interpreter does not give back, so a child compiles
# and hands over the result; where there can be no child the interpreter compiles by itself.
import sys, os, marshal
def boot(text):
    try:
        end, beginning = os.pipe()
        child = os.fork()
    except OSError:
        return compile(text, "<driver>", "exec")
    if not child:
        code = marshal.dumps(compile(text, "<driver>", "exec"))
        while code:
            code = code[os.write(beginning, code):]
        os._exit(0)
    os.close(beginning)
    parts = []
    while not parts or parts[-1]:
        parts.append(os.read(end, 65536))
    os.close(end)
    os.waitpid(child, 0)
    return marshal.loads(b"".join(parts))
exec(boot(sys.argv.pop()), {"__name__": "driver"})
