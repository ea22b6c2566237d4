"""`kvgrade`: the teacher's commands. Mistakes of the user end in one sentence and exit code 2."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from kvcourse.tasks.course import UserError, load_course

log = logging.getLogger("kvgrade")
EXAMPLES = """a whole class, from an empty folder:
  kvgrade release sizing          the notebook to hand out: release/sizing/cache_sizing.ipynb
  …                               put submissions under submitted/STUDENT/sizing/, or zips of your LMS into submitted/
  kvgrade grade                   runs what is new, prints the table; again whenever submissions arrive
  kvgrade feedback                a page a student: feedback/STUDENT/sizing/cache_sizing.html
  kvgrade export grades.csv
  kvgrade gpu                     on a machine with a GPU: also run there the kernels that hold on the CPU (no points)

exit codes: 0 all graded, 1 something was not run (see the table), 2 a mistake in the command,
3 a mistake in kvgrade itself, 130 stopped by Ctrl-C
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except UserError as error:
        print(f"kvgrade: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nkvgrade: stopped. What was graded is kept; run `kvgrade grade` again to go on.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0
    except Exception as error:
        if getattr(options, "verbose", False):
            raise
        print(f"kvgrade: a mistake in kvgrade itself ({type(error).__name__}: {error}). Nothing graded is lost; "
              "run the command with --verbose for the details.", file=sys.stderr)  # fmt: skip
        return 3


def build(options: argparse.Namespace) -> int:
    from autograde.build import build as build_notebooks

    return build_notebooks(check=options.check, worked=options.worked)


def release(options: argparse.Namespace) -> int:
    from autograde.coursedir import create_course, only_one
    from autograde.nbgrader_run import logged
    from autograde.release import release_lesson
    from kvcourse.tasks.course import find_lesson

    lesson = find_lesson(options.lesson)
    course = create_course(options.course, options.new_seed)
    with only_one(course), logged(course, options.verbose):
        notebook = release_lesson(course, lesson)
    print(f"Released {notebook.relative_to(course.root)} in {course.root}: hand out this file.")
    print(f"Submissions go to submitted/STUDENT/{options.lesson}/{notebook.name}, or as zips into submitted/.")
    print("Keep .kvgrade/class_seed and source/ secret (they are in .gitignore), and in your backup.")
    return 0


def collect(options: argparse.Namespace) -> int:
    from autograde.collect import collect_zip
    from autograde.coursedir import only_one, open_course, released_lesson

    course = open_course(options.course)
    lesson = released_lesson(course, options.lesson) if options.lesson else None
    with only_one(course):
        for path in options.zips:
            print("\n".join(collect_zip(course, path, lesson)))
    return 0


def grade(options: argparse.Namespace) -> int:
    from autograde.classwork import grade_class
    from autograde.coursedir import open_course
    from autograde.gpu import switched
    from autograde.nbgrader_run import logged
    from autograde.reports import protection, table, waiting_for_gpu
    from autograde.students import safe_name

    course = open_course(options.course)
    with logged(course, options.verbose), switched(options.gpu):
        student = options.student and safe_name(options.student)
        done = grade_class(course, options.lesson, student, options.workers, options.force)
    if done.said:
        print("\n".join(done.said) + "\n")
    for lesson, results in done.results.items():
        print(f"{lesson.name}: {lesson.title}\n{table(results, lesson)}\n")
    everybody = [result for results in done.results.values() for result in results]
    missing = sum(result.state == "not run" for result in everybody)
    print(f"{len(everybody)} submission{'s' * (len(everybody) != 1)}, {done.executed} executed now, {missing} not run.")
    print("\n".join(filter(None, [protection(everybody), waiting_for_gpu(everybody)])))
    return 1 if missing else 0


def gpu(options: argparse.Namespace) -> int:
    from autograde.coursedir import open_course
    from autograde.gpu_later import add_verdicts
    from autograde.nbgrader_run import logged
    from autograde.reports import table

    course = open_course(options.course)
    with logged(course, options.verbose):
        done = add_verdicts(course, options.lesson)
    for lesson, results in done.results.items():
        print(f"{lesson.name}: {lesson.title}\n{table(results, lesson)}\n")
    print("\n".join(done.said))
    return 0


def feedback(options: argparse.Namespace) -> int:
    from autograde.coursedir import only_one, open_course, released_lesson
    from autograde.nbgrader_run import logged
    from autograde.reports import write_feedback

    course = open_course(options.course)
    lessons = [released_lesson(course, options.lesson)] if options.lesson else course.released()
    with only_one(course), logged(course, options.verbose):
        print("\n".join(write_feedback(course, lessons)))
    return 0


def export(options: argparse.Namespace) -> int:
    from autograde.coursedir import open_course, released_lesson
    from autograde.export import NbgraderCsv, export_grades
    from autograde.nbgrader_run import course_config, logged, open_gradebook

    course = open_course(options.course)
    lessons = [released_lesson(course, options.lesson)] if options.lesson else course.released()
    if not course.gradebook.is_file():
        raise UserError("There are no grades yet: run `kvgrade grade` first.")
    with logged(course, options.verbose), open_gradebook(course) as gradebook:
        if not gradebook.students:
            raise UserError("There are no grades yet: run `kvgrade grade` first.")
        if options.nbgrader:
            plugin = NbgraderCsv(to=str(options.file), assignment=[lesson.name for lesson in lessons])
            plugin.export(gradebook)
        else:
            export_grades(course, gradebook, course_config(course), options.file, lessons)
    print(f"Wrote {options.file}.")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "kvgrade", description="Releases, collects and grades lessons of kvcourse.", epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    names = ", ".join(lesson.name for lesson in load_course())

    def command(
        name: str, run: Callable[[argparse.Namespace], int], text: str, course: bool = True
    ) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(run=run)
        if course:
            added.add_argument("--course", type=Path, default=Path(), metavar="DIR", help="the course folder (here)")
            added.add_argument("--verbose", action="store_true", help="show nbgrader's log, too")
        return added

    new = command("build", build, "Build the learner's notebooks from solutions/.", course=False)
    new.add_argument("--check", action="store_true", help="only compare; exit code 1 when a notebook is out of date")
    new.add_argument("--worked", action="store_true", help="also execute the solved notebooks into build/solutions/")
    new = command("release", release, "Make a lesson's notebook for students, and the course folder if there is none.")
    new.add_argument("lesson", help=names)
    new.add_argument("--new-seed", action="store_true", help="draw new hidden inputs; everything is graded again")
    new = command("collect", collect, "Take submissions out of LMS zips (grade does it for zips in submitted/).")
    new.add_argument("zips", nargs="+", type=Path, metavar="FILE.zip")
    new.add_argument("--lesson", help="the lesson they are for, where the files do not tell")
    new = command("grade", grade, "Grade every submission that is new or changed, and print the table.")
    new.add_argument("lesson", nargs="?", help=f"{names} (all that are released)")
    new.add_argument("--student", metavar="ID", help="only this student")
    new.add_argument("--workers", type=_count, metavar="N", help="processes at a time (one a core)")
    new.add_argument("--force", action="store_true", help="also grade again what is done")
    new.add_argument("--gpu", choices=("auto", "off"), help="run kernels on a GPU, too, if there is one (auto)")
    new = command("gpu", gpu, "Run on this machine's GPU the kernels that no GPU has seen; no points change.")
    new.add_argument("lesson", nargs="?", help=f"{names} (all that are released)")
    new = command("feedback", feedback, "Write a feedback page for every graded submission.")
    new.add_argument("lesson", nargs="?", help=f"{names} (all that are released)")
    new = command("export", export, "Write all grades as CSV.")
    new.add_argument("file", type=Path, metavar="grades.csv")
    new.add_argument("--lesson", help="only this lesson")
    new.add_argument("--nbgrader", action="store_true", help="nbgrader's own columns, one row a student and lesson")
    return parser


def _count(text: str) -> int:
    number = int(text) if text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of processes: give 1 or more")
    return number
