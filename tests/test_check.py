"""`check`, `hint`, `quiz`, `progress`: what the learner sees, and the record behind it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import kvcourse
from kvcourse.check import record
from kvcourse.check.report import Report
from kvcourse.check.runner import PropertyResult, TaskResult


def kv_bytes_per_token(layers, kv_heads, head_dim, bits=16):
    """The formula alone: right numbers, but bad input goes through."""
    return (2 * layers * kv_heads * head_dim * bits + 7) // 8


def test_check_finds_the_functions_of_the_calling_script(capsys):
    report = kvcourse.check("sizing.1")
    out = capsys.readouterr().out
    assert out.startswith("✗ sizing.1 bytes per token: failed") and not report
    assert "✓ " in out and "expected: " in out and "got:" in out and "Stuck?" in out


def test_check_takes_functions_as_arguments(capsys):
    kvcourse.check("sizing.1", kv_bytes_per_token=lambda *a, **k: 0)
    assert "failed" in capsys.readouterr().out

    def stub(layers, kv_heads, head_dim, bits=16):
        raise NotImplementedError("sizing.1: bytes per token")

    kvcourse.check("sizing.1", kv_bytes_per_token=stub)
    out = capsys.readouterr().out
    assert out.startswith("○ sizing.1 bytes per token: not started") and "Traceback" not in out


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: kvcourse.check("sizing.99"), "There is no task 'sizing.99'. Did you mean 'sizing."),
        (lambda: kvcourse.check("xyz"), "There is no task 'xyz'. Known names: sizing.1, "),
        (lambda: kvcourse.check(3), "There is no task 3."),
        (lambda: kvcourse.check("sizing.1", 5), "check takes functions or classes after the task's name, not 5."),
        (lambda: kvcourse.hint("sizing.0"), "There is no task 'sizing.0'. Did you mean"),
        (lambda: kvcourse.quiz("sizing.q99", "a"), "There is no quiz question 'sizing.q99'."),
        (lambda: kvcourse.quiz("sizing.q1", "z"), "sizing.q1 has the choices a, b"),
        (lambda: kvcourse.quiz("sizes"), "There is no lesson 'sizes'. Did you mean 'sizing'?"),
    ],
)
def test_a_slip_is_one_sentence(capsys, call, sentence):
    assert call() is None
    out = capsys.readouterr().out
    assert sentence in out and len(out.strip().splitlines()) == 1


def test_hints_come_one_by_one_and_stay(capsys):
    for count in (1, 2, 3, 3):
        kvcourse.hint("sizing.1")
        assert capsys.readouterr().out.count("Hint ") == count


def test_quiz_shows_questions_and_judges_answers(capsys):
    kvcourse.quiz("sizing")
    assert "sizing.q1:" in capsys.readouterr().out
    from kvcourse.tasks.course import find_lesson

    question = find_lesson("sizing").quiz[0]
    wrong = next(key for key in question.choices if key != question.answer)
    kvcourse.quiz(question.name, wrong)
    kvcourse.quiz(question.name, f" {question.answer.upper()} ")
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith(f"✗ Not {wrong}") and out[1].startswith("✓ Right.")


def test_progress_reads_the_record(capsys, own_record):
    kvcourse.check("sizing.1", kv_bytes_per_token=lambda *a, **k: 0)
    kvcourse.hint("sizing.1")
    capsys.readouterr()
    kvcourse.progress()
    line = next(line for line in capsys.readouterr().out.splitlines() if "sizing.1" in line)
    assert "failed" in line and "1 checks, 1 hints" in line
    assert json.loads(own_record.read_text())["sizing.1"]["status"] == "failed"


def test_stopping_a_check_by_hand_is_no_traceback(capsys, own_record):
    def stopped(*args, **kwargs):
        raise KeyboardInterrupt

    kvcourse.check("sizing.1", kv_bytes_per_token=stopped)
    assert "you stopped the check" in capsys.readouterr().out and not own_record.exists()


def test_the_record_survives_the_process(own_record):
    """A kernel restart or a closed browser loses nothing: another process sees the same record."""
    record.update_record("sizing.2", status="passed")
    code = "from kvcourse.check.record import load_record; print(load_record()['sizing.2']['status'])"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True).stdout == "passed\n"


def test_two_notebooks_at_once_lose_no_entry(own_record):
    code = """import sys; from kvcourse.check.record import update_record
for i in range(25): update_record(f'{sys.argv[1]}.{i}', n=i)"""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    writers = [subprocess.Popen([sys.executable, "-c", code, name], env=env) for name in ("a", "b")]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert len(record.load_record()) == 50


def test_a_record_that_cannot_be_written_is_a_remark_not_a_failure(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("KVCOURSE_HOME", str(tmp_path / "file"))
    kvcourse.check("sizing.1", kv_bytes_per_token=lambda *a, **k: 0)
    out = capsys.readouterr().out
    assert "sizing.1 bytes per token: failed" in out and "Your progress was not recorded" in out


def test_a_damaged_record_is_kept_aside(own_record):
    own_record.parent.mkdir()
    own_record.write_text("{broken")
    assert record.load_record() == {} and own_record.with_suffix(".broken").read_text() == "{broken"


def sample_report() -> Report:
    broken = PropertyResult(
        "test_x",
        "Keys <and> values",
        "failed",
        call="f('<b>')",
        expected="2",
        got="1",
        because="both count",
        tip="times 2",
    )
    fine = PropertyResult("test_y", "Bits scale", "passed")
    return Report(TaskResult("sizing.1", "failed", [broken, fine]), "bytes per token")


def test_text_and_html_say_the_same_and_html_is_escaped():
    report = sample_report()
    text, html = report.text(), report.html()
    for words in ("1 of 2 properties hold", "both count", "times 2", "Bits scale"):
        assert words in text and words in html
    assert "<b>'" not in html and "Keys &lt;and&gt; values" in html and "<script" not in html


def test_importing_the_course_is_light():
    """Block tables, routers and simulators must start at once: no torch, no transformers, no pytest."""
    heavy = ("torch", "transformers", "numpy", "pytest", "matplotlib", "IPython")
    code = f"import kvcourse, sys; print([m for m in {heavy} if m in sys.modules])"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True).stdout == "[]\n"
