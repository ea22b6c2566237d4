"""The command line: `kvcourse lab`, `test`, `check NOTEBOOK`, `hint TASK`, `progress`.

`python3 -m kvcourse lab` works in a fresh clone with nothing installed: it first makes the environment `.venv`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

USAGE_MISTAKE = 2


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    try:
        return args.run(args)
    except KeyboardInterrupt:
        return 130
    except ModuleNotFoundError as error:
        where = "run `python3 -m kvcourse lab` once, then use .venv/bin/kvcourse"
        print(f"This Python has no package {error.name}, which the course needs: {where}.", file=sys.stderr)
        return USAGE_MISTAKE
    except Exception as error:
        if type(error).__name__ != "UserError":  # its module needs no import before set-up
            raise
        print(error, file=sys.stderr)
        return USAGE_MISTAKE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kvcourse", description="Learn KV caching by building it.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    lab = commands.add_parser("lab", help="set up if needed, then open JupyterLab on the first lesson")
    lab.set_defaults(run=_lab)
    lab.add_argument("--no-browser", action="store_true", help="print the address instead of opening a browser")
    test = commands.add_parser("test", help="set up if needed, then run the project's own tests")
    test.set_defaults(run=_test)
    test.add_argument("--fast", action="store_true", help="leave out the slow tests")
    for command in (lab, test):
        command.add_argument("--torch-index", metavar="URL", help="package index for torch (CPU or CUDA build)")
    check = commands.add_parser("check", help="check every task of a notebook, in the terminal")
    check.set_defaults(run=_check)
    check.add_argument("notebook", type=Path)
    check.add_argument("tasks", nargs="*", metavar="TASK", help="only these tasks, for example sizing.2")
    hint = commands.add_parser("hint", help="show the next hint of a task")
    hint.set_defaults(run=_hint)
    hint.add_argument("task")
    commands.add_parser("progress", help="show the table of tasks").set_defaults(run=_progress)
    models = commands.add_parser("models", help="fetch the real model of the lessons, SmolLM2 (93 MB)")
    models.set_defaults(run=_models)
    models.add_argument("what", choices=["fetch"])
    models.add_argument("name", choices=["smollm2"])
    trace = commands.add_parser("trace", help="statistics of a request trace; list or fetch public ones")
    trace.set_defaults(run=_trace)
    trace.add_argument("what", choices=["stats", "list", "fetch"])
    trace.add_argument("which", nargs="?", metavar="FILE or NAME")
    return parser


def _lab(args: argparse.Namespace) -> int:
    from kvcourse.setup import open_lab

    return open_lab(args.torch_index, browser=not args.no_browser)


def _test(args: argparse.Namespace) -> int:
    from kvcourse.setup import run_tests

    return run_tests(args.torch_index, fast=args.fast)


def _check(args: argparse.Namespace) -> int:
    from kvcourse.check.notebook import check_notebook

    return check_notebook(args.notebook, args.tasks)


def _hint(args: argparse.Namespace) -> int:
    from kvcourse.check import hint
    from kvcourse.tasks.course import find_task

    hint(find_task(args.task).name)
    return 0


def _models(_args: argparse.Namespace) -> int:
    from kvcourse.models.smollm2 import fetch_smollm2

    fetch_smollm2()
    return 0


def _trace(args: argparse.Namespace) -> int:
    from kvcourse.tasks.course import UserError
    from kvcourse.workload.cli import trace_fetch, trace_list, trace_stats

    if args.what == "list":
        return trace_list()
    if args.which is None:
        what = "the path of a trace file" if args.what == "stats" else "a name; `kvcourse trace list` shows them"
        raise UserError(f"kvcourse trace {args.what} needs {what}.")
    return trace_stats(Path(args.which)) if args.what == "stats" else trace_fetch(args.which)


def _progress(_args: argparse.Namespace) -> int:
    from kvcourse.check import progress

    progress()
    return 0


if __name__ == "__main__":
    sys.exit(main())
