"""The interactive commands, in a pseudo-terminal."""

import re

from conftest import IMAGE

LEAVE = b"\x10\x11"  # ctrl-p, ctrl-q
LEFT, UP = "\x1b[D", "\x1b[A"


def test_a_shell_has_keys_size_interrupt_and_exit_code(osb, shared):
    with osb.at_terminal("shell", shared) as shell:
        shell.type("echo ready-$((1+1))\n")
        shell.expect("ready-2")
        # At its prompt: before that readline writes the size that it has read back (set_winsize in its
        # rltty.c), and a new size that comes in between is lost.
        shell.expect("# ")
        shell.resize(120, 40)
        # The new size travels beside the keys: asked until it has arrived.
        shell.type("until [ \"$(stty size)\" = '40 120' ]; do :; done; echo resized-$((2+2))\n")
        shell.expect("resized-4")
        # The keys appear before the program runs; only what it prints shows that it is there to
        # be interrupted, in the foreground and with the terminal as a program finds it.
        shell.type("sh -c 'echo asleep-$((3+3)); exec sleep 1000'\n")
        shell.expect("asleep-6")
        shell.type(b"\x03")
        # An interrupted shell throws away what was typed before its next prompt.
        shell.expect("^C")
        shell.expect("# ")
        shell.type("echo after-$?-x\n")
        shell.expect("after-130-x")
        shell.type("exit 7\n")
        assert shell.end() == 7


def test_a_terminal_is_left_and_come_back_to(osb, shared):
    with osb.at_terminal("shell", shared) as first:
        first.type("NAME=kept; echo begun-$((3+3))\n")
        first.expect("begun-6")
        first.type(LEAVE)
        first.expect("osb attach ")
        words = first.expect("\n").split()
        assert first.end() == 0
    with osb.at_terminal("attach", *words, columns=100, rows=30) as second:
        second.expect("begun-6")
        second.type("until [ \"$(stty size)\" = '30 100' ]; do :; done; echo sized-$((1+1))\n")
        second.expect("sized-2")
        second.type("echo $NAME-$((4+4))\n")
        second.expect("kept-8")
        # Another client takes it; this one is told, and nothing is lost.
        with osb.at_terminal("attach", "--no-replay", *words) as third:
            second.expect("another client took the terminal over")
            assert second.end() == 125
            third.type("echo $NAME-$((5+5)); exit 0\n")
            third.expect("kept-10")
            assert third.end() == 0


def test_exec_at_a_terminal(osb, shared):
    with osb.at_terminal("exec", "-it", shared, "--", "sh", "-c", "test -t 0 && echo tty-yes; exit 5") as run:
        run.expect("tty-yes")
        assert run.end() == 5


def test_an_end_by_a_signal_has_the_code_of_shells(osb, shared):
    with osb.at_terminal("exec", "-it", shared, "--", "sh", "-c", "kill -9 $$") as run:
        assert run.end() == 137


def test_keys_to_leave_can_be_chosen(osb, shared):
    with osb.at_terminal("exec", "-it", "--detach-keys", "ctrl-]", shared, "--", "cat") as cat:
        cat.type("one\n")
        cat.expect("one\r\none")
        cat.type(b"\x1d")
        cat.expect("left running")
        assert cat.end() == 0


def test_a_shell_without_a_terminal_says_what_works(osb, shared):
    said = osb("shell", shared, code=125, stdin="").stderr
    assert "needs a terminal" in said and "osb exec" in said


def test_an_interpreter_has_editing_history_and_blocks(osb, shared):
    with osb.at_terminal("code", shared, columns=30) as code:
        code.expect(">>> ")
        # The missing letter is put in after going back.
        code.type("prnt(6*7)" + 7 * LEFT + "i\r")
        code.expect("\r\n42\r\n")
        code.type(UP + "\x7f+1)\r")
        code.expect("\r\n43\r\n")
        # A block ends with an empty line, is indented by the tab key, and may be wider than the screen.
        code.type("def double(number):\r\treturn number + number + 0 + 0 + 0\r\rdouble(22)\r")
        code.expect("\r\n44\r\n")
        code.type("print('thrown' + ")
        code.expect("thrown")
        code.type(b"\x03")
        code.expect("^C")
        code.type("double(23)\r")
        code.expect("\r\n46\r\n")
        code.type(b"\x04")
        assert code.end() == 0


def test_an_interrupt_ends_the_cell_and_not_the_interpreter(osb, shared):
    with osb.at_terminal("code", shared) as code:
        code.expect(">>> ")
        code.type("kept = 47\rimport time\rprint('be' + 'gun', flush=True); time.sleep(1000)\r")
        code.expect("begun\r\n")
        code.type(b"\x03")
        code.expect("KeyboardInterrupt")
        code.type("kept + 1\r")
        code.expect("\r\n48\r\n")
        code.type(b"\x04")
        assert code.end() == 0


def test_an_interpreter_at_a_simple_terminal(osb, shared):
    with osb.at_terminal("code", shared, "-l", "bash", env={"TERM": "dumb"}) as code:
        code.expect(">>> ")
        code.type("x=48\n")
        code.type("echo value-$((x+1))\n")
        code.expect("value-49")
        code.expect(">>> ")
        assert b"\x1b" not in code.screen
        code.type(b"\x04")
        assert code.end() == 0


def test_run_in_a_terminal_of_its_own(osb):
    with osb.at_terminal("run", "-it", IMAGE, "--", "sh", "-c", "echo in-$((6+6)); exit 3") as run:
        run.expect("in-12")
        assert run.end() == 3


def test_stats_are_live(osb, shared):
    with osb.at_terminal("stats", shared, columns=120) as stats:
        # Ids are short where people read them.
        stats.expect(shared[:8])
        # Drawn anew with the next sample.
        stats.expect("\x1b[H\x1b[2J")
        stats.expect(shared[:8])
        stats.type(b"\x03")
        assert stats.end() == 0


def test_tables_fit_the_terminal(osb, shared):
    for columns in (30, 60, 100):
        with osb.at_terminal("ls", "-m", "for=shared", columns=columns) as listing:
            assert listing.end() == 0
            text = re.sub(rb"\x1b\[[0-9;]*m", b"", listing.screen).decode()
            if columns >= 40:
                assert all(len(line) <= columns for line in text.splitlines()), text
                assert "╭" in text
            else:
                assert shared[:8] in text and "╭" not in text


def test_colours_can_be_turned_off(osb, shared):
    for words, env in ((["--no-color"], {}), ([], {"NO_COLOR": "1"}), ([], {"TERM": "dumb"})):
        with osb.at_terminal(*words, "ls", env=env) as listing:
            assert listing.end() == 0
            assert b"\x1b[1" not in listing.screen
