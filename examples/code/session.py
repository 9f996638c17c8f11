"""The published code interpreter: code that remembers, and an exception that is told.

Prints:
    total 6
    ZeroDivisionError division by zero
    total is still 6
"""

import asyncio

from code_interpreter import CodeInterpreter, SupportedLanguage
from opensandbox import Sandbox


async def main():
    sandbox = await Sandbox.create("host")
    try:
        interpreter = await CodeInterpreter.create(sandbox)
        context = await interpreter.codes.create_context(SupportedLanguage.PYTHON)

        await interpreter.codes.run("total = sum([1, 2, 3])", context=context)
        printed = await interpreter.codes.run("print('total', total)", context=context)
        print(printed.logs.stdout[0].text.strip())

        failed = await interpreter.codes.run("total / 0", context=context)
        print(failed.error.name, failed.error.value)

        result = await interpreter.codes.run("total", context=context)
        print("total is still", result.result[0].text)
    finally:
        await sandbox.kill()
        await sandbox.close()


asyncio.run(main())
