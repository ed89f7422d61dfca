"""Edge: the command line. Reads it, runs what it asks for, turns errors into one line and an exit code.

Must not know how a run is made. The one idea: a command line that is wrong is answered by what would be right,
in one line; docopt reads the ones that are. docopt guesses at misspelt options, shortens and says nothing useful
when it fails, so the words are compared with its own list of options first.

Start-up is lean: help needs neither docopt nor numpy, and a command imports only what it runs.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from ncps_capture.errors import EnvironmentFault, FileFault, NcpsError, UsageError

from ncps_raw import __version__, usage

if TYPE_CHECKING:
    from ncps_raw.interrupts import Interrupts
    from ncps_raw.plan import ClientPlan, ServerPlan

INTERRUPTED: Final = 130
DIALECT_USAGE: Final = 255
"""NCPS's exit status for a command line it cannot use."""
MACHINE_FORMATS: Final = ("json", "jsonl")


def main(argv: list[str] | None = None) -> int:
    """Run one command line (without the program's name; default: this process's). Returns the exit code.

    Never raises for what a person can cause. With ``--format json`` or ``jsonl`` a failure is also one JSON
    object on standard output: ``{"error": {"message": ..., "exit_code": ...}}``.
    """
    # No command needs numpy's linear algebra: starting its threads would be a fifth of the time to the first line.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _run(args)
        _out()
    except NcpsError as error:
        return _tell(error, args)
    except BrokenPipeError:
        # Whoever read the results has left: nobody is there to be told.
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        if os.environ.get("NCPS_TRACEBACK"):
            raise
        return _tell(_machine_fault(error), args)
    except Exception as error:
        if os.environ.get("NCPS_TRACEBACK"):
            raise
        return _tell(_our_fault(error), args)
    return code


def _machine_fault(error: OSError) -> NcpsError:
    """What the system refused and nobody foresaw."""
    what = f" ({error.filename})" if error.filename else ""
    return EnvironmentFault(f"this machine refused: {error.strerror or error}{what}; see ulimit -a and df")


def _our_fault(error: Exception) -> NcpsError:
    """An error nobody foresaw, as one line a person can report."""
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    place = f" at {os.path.basename(where.tb_frame.f_code.co_filename)}:{where.tb_lineno}" if where else ""  # noqa: PTH119
    return NcpsError(
        f"a fault of this program: {type(error).__name__}: {error}{place}; "
        "run again with NCPS_TRACEBACK=1 in the environment and report what it prints"
    )


def _is_dialect(args: Sequence[str]) -> bool:
    return bool(args) and args[0] in ("-s", "-c")


def _run(args: list[str]) -> int:
    if not args:
        print(usage.TOP, end="", file=sys.stderr)
        return UsageError.exit_code
    if _is_dialect(args):
        return _run_dialect(args)
    command, rest = args[0], args[1:]
    if command in ("-h", "--help", "help"):
        _out(usage.COMMANDS.get(rest[0], usage.TOP) if rest else usage.TOP)
        return 0
    if command == "--version":
        _out(f"ncps {__version__}\n")
        return 0
    if command not in usage.COMMANDS:
        raise _unknown_command(command)
    values = _read(command, rest)
    if values is None:
        _out(usage.COMMANDS[command])
        return 0
    if command == "demo":
        return _run_demo(values)
    if command == "report":
        return _run_report(values)
    if command == "analyze":
        return _run_analyze(values, _command_line(args))
    if command == "capture":
        return _run_capture(values, _command_line(args))
    if command in ("send", "recv"):
        return _run_link(command, values)
    plan = _plan(command, values, _command_line(args))
    return _show(plan) if values["--dry-run"] else _start(plan)


# ---- the commands ----------------------------------------------------------------------------------------------


def _run_dialect(args: list[str]) -> int:
    if "--help" in args or "-h" in args:
        _out(usage.NCPS)
        return 0
    from ncps_raw import dialect

    reading = dialect.parse(args, _command_line(args))
    for text in reading.ignored:
        print(f"ncps: {text}", file=sys.stderr)
    return _show(reading.plan) if reading.dry_run else _start(reading.plan)


def _run_demo(values: dict[str, Any]) -> int:
    from ncps_raw import units

    duration_ns = units.duration(values["--duration"] or "3s", "--duration")

    def run(interrupts: Interrupts) -> int:
        from ncps_raw.demo import run_demo

        return run_demo(duration_ns, interrupts)

    return _interruptible(run)


def _run_link(command: str, values: dict[str, Any]) -> int:
    from ncps_raw.link.plan import build

    plan = build(command, values)

    def run(interrupts: Interrupts) -> int:
        from ncps_raw.link.command import run_link

        return run_link(plan, interrupts)

    return _interruptible(run)


def _run_report(values: dict[str, Any]) -> int:
    from ncps_raw.plan import FORMATS
    from ncps_raw.report import run_report

    format_ = values["--format"] or "text"
    if format_ not in FORMATS:
        raise UsageError(f"--format must be {' or '.join(FORMATS)}, not {format_}")
    pcap = () if values["--pcap"] is None else (values["--pcap"],)
    return run_report(values["RUN"], format_=format_, output=values["--output"], pcap=pcap, quiet=values["--quiet"])


def _run_analyze(values: dict[str, Any], command_line: str) -> int:
    def run(interrupts: Interrupts) -> int:
        from ncps_raw.analyze import run_analyze

        return run_analyze(values["FILE"], values, command_line, interrupts)

    return _interruptible(run)


def _run_capture(values: dict[str, Any], command_line: str) -> int:
    def run(interrupts: Interrupts) -> int:
        from ncps_raw.capture_command import run_capture

        return run_capture(values, command_line, interrupts)

    return _interruptible(run)


def _start(plan: ClientPlan | ServerPlan) -> int:
    from ncps_raw.plan import ClientPlan

    def run(interrupts: Interrupts) -> int:
        if isinstance(plan, ClientPlan):
            from ncps_raw.client import run_client

            return run_client(plan, interrupts)
        from ncps_raw.server import run_server

        return run_server(plan, interrupts)

    return _interruptible(run)


def _interruptible(run: Callable[[Interrupts], int]) -> int:
    """Signals are flags before ``run`` imports what is heavy: an exception of a signal would break that in half."""
    from ncps_raw.interrupts import LEFT_BY_SECOND, Interrupts, LeaveNow

    interrupts = Interrupts()
    try:
        with interrupts:
            return run(interrupts)
    except LeaveNow:
        return LEFT_BY_SECOND
    except Exception:
        if interrupts.leaving:
            return LEFT_BY_SECOND
        raise


def _show(plan: ClientPlan | ServerPlan) -> int:
    from ncps_raw import dry_run
    from ncps_raw.machine import machine_for

    write = dry_run.as_json if plan.format in MACHINE_FORMATS else dry_run.as_text
    _out(write(plan, machine_for(plan)))
    return 0


# ---- reading our own commands ------------------------------------------------------------------------------


def _plan(command: str, values: dict[str, Any], command_line: str) -> ClientPlan | ServerPlan:
    from ncps_raw.options import OPTIONS, build

    if values.get("--capture") and values.get("--no-capture"):
        raise UsageError("--capture and --no-capture contradict each other: leave out one of them")
    given: dict[str, Any] = {"command_line": command_line}
    if command == "client":
        given["target"] = values["HOST"]
    for name, option in OPTIONS.items():
        value = values.get(name)
        if value is None or value is False:
            continue
        given[option.field] = option.value if option.read is None else option.read(value, name)
    return build(command, given)


def _read(command: str, args: Sequence[str]) -> dict[str, Any] | None:
    """docopt's values for ``command``, or None if help is asked for. Raises ``UsageError``."""
    import docopt

    text = usage.COMMANDS[command]
    options = docopt.parse_options(docopt.parse_docstring_sections(text).after_usage)
    takes_value = {name: bool(o.argcount) for o in options for name in (o.short, o.longer) if name}
    long_of = {o.short: o.longer for o in options if o.short and o.longer}

    seen: set[str] = set()
    words: list[str] = []
    read: list[str] = []
    queue = _recorded(args, read)
    for token in queue:
        if token == "--":
            read.pop()
            words.extend(queue)
        elif len(token) < 2 or not token.startswith("-"):
            words.append(token)
        else:
            for name in _options_of(token, queue, takes_value, command):
                full = long_of.get(name, name)
                if full == "--help":
                    return None
                if full in seen:
                    raise UsageError(f"{full} is given twice")
                seen.add(full)
    wanted = usage.POSITIONALS[command]
    if len(words) < sum(not word.startswith("[") for word in wanted):
        raise UsageError(f"{wanted[len(words)]} is missing: ncps {command} {' '.join(wanted)} [options]")
    most = len(words) if any(word.endswith("...") for word in wanted) else len(wanted)
    odd = next((w for w in words if w.startswith("-") and w != "-"), None) or next(iter(words[most:]), None)
    if odd is not None:
        raise UsageError(f"unexpected argument {odd!r}; see ncps {command} --help")
    try:
        return dict(docopt.docopt(text, [command, *read], default_help=False))
    except docopt.DocoptExit:
        raise UsageError(f"cannot read this command line; see ncps {command} --help") from None


def _recorded(args: Sequence[str], record: list[str]) -> Iterator[str]:
    for arg in args:
        record.append(arg)
        yield arg


def _options_of(token: str, queue: Iterator[str], takes_value: dict[str, bool], command: str) -> list[str]:
    """Names of the options in one word (``-q``, ``-qt5``, ``--size=4k``); takes the value's word off the queue."""
    if token.startswith("--"):
        name, equals, _ = token.partition("=")
        if name not in takes_value:
            raise _unknown_option(name, takes_value, command)
        if equals and not takes_value[name]:
            raise UsageError(f"{name} takes no value")
        if takes_value[name] and not equals and next(queue, None) is None:
            raise UsageError(f"{name} needs a value")
        return [name]
    if len(token) > 2 and _is_ncps_flag(token):  # before -wt is read as -w t
        raise _ncps_flag(token, takes_value, command)
    names = []
    for i, letter in enumerate(token[1:], start=1):
        name = "-" + letter
        if name not in takes_value:
            raise _unknown_option(name if len(token) == 2 else token, takes_value, command)
        names.append(name)
        if takes_value[name]:
            if i + 1 == len(token) and next(queue, None) is None:
                raise UsageError(f"{name} needs a value")
            break
    return names


# ---- saying what would be right ----------------------------------------------------------------------------


def _nearest(word: str, words: Sequence[str]) -> str | None:
    import difflib

    return next(iter(difflib.get_close_matches(word, words, 1)), None)


def _unknown_command(word: str) -> UsageError:
    if word.startswith("-"):
        error = UsageError(f"the first argument must be a command, or -s or -c HOST as in NCPS, not {word}")
        if _is_ncps_flag(word):
            error.exit_code = DIALECT_USAGE
        return error
    near = _nearest(word, list(usage.COMMANDS))
    return UsageError(f"unknown command {word!r}" + (f", did you mean {near}?" if near else "; see ncps --help"))


def _unknown_option(name: str, known: dict[str, bool], command: str) -> UsageError:
    if _is_ncps_flag(name):
        return _ncps_flag(name, known, command)
    near = _nearest(name, list(known))
    hint = f", did you mean {near}?" if near else f"; see ncps {command} --help"
    return UsageError(f"unknown option {name}{hint}")


def _is_ncps_flag(word: str) -> bool:
    from ncps_raw import dialect

    return word in dialect.FLAGS


def _ncps_flag(name: str, known: dict[str, bool], command: str) -> UsageError:
    from ncps_raw import dialect
    from ncps_raw.options import long_name

    option = dialect.FLAGS.get(name)
    ours = long_name(option) if option else None
    if ours in known:
        return UsageError(f"{name} is NCPS's flag, here it is {ours}")
    first = "-s" if command == "server" else "-c HOST"
    return UsageError(f"unknown option {name}; NCPS's own flags are read after ncps {first}")


def _tell(error: NcpsError, args: Sequence[str]) -> int:
    code = error.exit_code
    if isinstance(error, UsageError) and _is_dialect(args):
        code = DIALECT_USAGE
    message = " ".join(str(error).split())
    machine = ""
    if _wanted_format(args) in MACHINE_FORMATS:
        import json

        machine = json.dumps({"error": {"message": message, "exit_code": code}}) + "\n"
    with contextlib.suppress(FileFault, BrokenPipeError):
        _out(machine)  # also takes care of what a failed run has left unwritten
    print(f"ncps: {message}", file=sys.stderr)
    return code


def _wanted_format(args: Sequence[str]) -> str | None:
    """The format asked for, found even where the command line cannot be read."""
    for i, word in enumerate(args):
        if word.startswith("--format="):
            return word.partition("=")[2]
        if word == "--format" and i + 1 < len(args):
            return args[i + 1]
    return None


def _out(text: str = "") -> None:
    """Write and flush: what cannot be delivered is told now, not by the interpreter's last words."""
    if sys.stdout is None:  # closed by whoever started us
        return
    try:
        encoding = sys.stdout.encoding or "utf-8"
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        _silence_stdout()
        raise
    except OSError as error:
        _silence_stdout()
        raise FileFault(f"cannot write standard output: {error.strerror}") from None


def _silence_stdout() -> None:
    """Let the interpreter's last flush go nowhere, instead of failing again where nobody can catch it."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)


def _command_line(args: Sequence[str]) -> str:
    """The arguments joined by blanks, as NCPS shows them; in one line, whatever they contain."""
    return " ".join(["ncps", *("".join(c if c.isprintable() else "?" for c in a) for a in args)])
