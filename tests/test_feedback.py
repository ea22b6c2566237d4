"""What leaves the grader: feedback pages without anything active, and CSV files without silent zeros."""

from __future__ import annotations

import json
import re
import time

import nbformat
import pytest
from course_folder import LESSON, kvgrade, rows, submit

from autograde import page
from autograde.export import _cell
from autograde.nbgrader_run import open_gradebook

pytest_plugins = ["course_fixtures"]


def test_feedback_holds_reports_and_nothing_active(course):
    submit(course, "anna", {"sizing.1": "SHARE 2/4", "sizing.3": "PRINT"})
    path = submit(course, "bob", solved=False)
    notebook = nbformat.read(path, as_version=4)
    for evil in (
        "<script>alert(1)</script>",
        "[x](javascript:alert(1)) <img src=//evil onerror=y()> ![p](http://evil/p)",
    ):
        notebook.cells.append(nbformat.v4.new_markdown_cell(evil))
    nbformat.write(notebook, path)
    assert kvgrade("grade") == 0 and kvgrade("feedback") == 0
    for name in ("anna", "bob"):  # formgrader shows these
        stored = nbformat.read(course.autograded(name, LESSON), as_version=4)
        outputs = [o for cell in stored.cells if cell.cell_type == "code" for o in cell.outputs]
        text = json.dumps([o.get("data", {}).get("text/html", "") for o in outputs])
        text += "".join(cell.source for cell in stored.cells if cell.cell_type == "markdown")
        assert "<script" not in text and "onclick" not in text and "onerror" not in text
    text = course.feedback("anna", LESSON).read_text()
    assert "Property 2 holds." in text and "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "bytes per token: 1 of 2</h2>" in text
    assert "more characters" in text and "plain &lt;b&gt;text" in text and "not shown" in text and len(text) < 400_000
    for page_text in (text, course.feedback("bob", LESSON).read_text()):
        lowered = page_text.lower()
        assert "<script" not in lowered and "<iframe" not in lowered and not re.search(r"<[^>]*javascript:", lowered)
        assert not re.search(r"<[^>]*\son\w+\s*=", lowered) and "<img" not in lowered and "<svg" not in lowered
        assert "src=" not in re.sub(r"<pre.*?</pre>", "", lowered, flags=re.DOTALL), "nothing is loaded"
    assert "not started" in course.feedback("bob", LESSON).read_text()


def test_manual_scores_and_comments_survive_a_new_run(course):
    submit(course, "anna", {"sizing.2": "SHARE 0/4"})
    assert kvgrade("grade") == 0
    with open_gradebook(course) as gradebook:
        gradebook.find_grade("sizing-2", LESSON.notebook, "sizing", "anna").manual_score = 3.0
        comment = gradebook.find_comment("sizing-1-code", LESSON.notebook, "sizing", "anna")
        comment.manual_comment = "**Good** <script>x</script>"
        gradebook.db.commit()
    assert kvgrade("grade", "--force") == 0 and kvgrade("export", "g.csv") == 0 and kvgrade("feedback") == 0
    assert rows("g.csv")["anna"]["sizing.2"] == "3" and rows("g.csv")["anna"]["total"] == "21"
    text = course.feedback("anna", LESSON).read_text()
    assert "<strong>Good</strong>" in text and "<script" not in text


def test_late_penalty_follows_the_due_date(course):
    path = submit(course, "anna")
    path.with_name("timestamp.txt").write_text("2026-03-02 12:00:00 UTC")
    (course.root / "nbgrader_config.py").open("a").write(
        "from nbgrader.plugins import LateSubmissionPlugin\n"
        "class Half(LateSubmissionPlugin):\n"
        "    def late_submission_penalty(self, student_id, score, total_seconds_late):\n"
        "        return score / 2\n"
        "get_config().AssignLatePenalties.plugin_class = Half\n"
    )
    with open_gradebook(course) as gradebook:
        gradebook.update_or_create_assignment("sizing", duedate="2026-03-01")
    assert kvgrade("grade") == 0 and kvgrade("export", "late.csv") == 0
    row = rows("late.csv")["anna"]
    assert (row["total"], row["late_penalty"], row["late_seconds"]) == ("12", "12", str(36 * 3600))
    with open_gradebook(course) as gradebook:
        gradebook.update_or_create_assignment("sizing", duedate="2026-03-05")
    assert kvgrade("export", "moved.csv") == 0 and rows("moved.csv")["anna"]["total"] == "24"


def test_students_without_a_submission_are_listed_as_such(course):
    submit(course, "anna")
    assert kvgrade("grade") == 0
    with open_gradebook(course) as gradebook:
        gradebook.add_student("=cmd()", first_name="A, B")
    assert kvgrade("export", "g.csv") == 0 and kvgrade("export", "n.csv", "--nbgrader") == 0
    assert rows("g.csv")["'=cmd()"]["state"] == "not submitted"
    assert rows("n.csv")["'=cmd()"]["first_name"] == "A, B"


@pytest.mark.parametrize(
    "html",
    [
        "<script>x()</script>", "<SCRIPT src=//a>", "<svg/onload=x()>", "<svg><script>x()</script></svg>",
        "<img src=x onerror=x()>", "<a href='javascript:x()'>a</a>", "<a href='data:text/html,<b>x</b>'>a</a>",
        "<iframe srcdoc='<script>'>", "<style>*{background:url(//evil)}</style>", "<form action=//evil>", "<script>x()",
        "<p style='background:url(//evil);behavior:url(x)'>a</p>", "<meta http-equiv=refresh content='0;url=//evil'>",
        "<base href=//evil>", "<object data=//evil>", "<math><mi xlink:href='javascript:x()'>", "<p onclick=x()>a",
        "<scr<script>ipt>x()</script>", "<!--><script>x()</script>-->", "<input autofocus onfocus=x()>",
    ],
)  # fmt: skip
def test_html_of_students_is_made_harmless(html):
    text = page.clean(html).lower()
    tags = re.findall(r"<[^>]*>", text)
    assert all(re.match(r"</?(p|a|b|i|div|span|pre|code)\b", tag) for tag in tags), text
    assert not any(
        "javascript" in tag or "evil" in tag or re.search(r"\son\w+=", tag) or "data:" in tag for tag in tags
    ), text


def test_pictures_and_tables_are_kept():
    table = page.clean('<table class="dataframe"><tr><td colspan="2" style="color: red">1</td></tr></table>')
    assert (
        table == '<table class="dataframe"><tbody><tr><td colspan="2" style="color: red;">1</td></tr></tbody></table>'
        or "<td" in table
    )
    assert page._picture("image/png", b"\x89PNG", "iVBORw0KGgo=\n").startswith('<img alt="picture" src="data:image/png')
    assert "<img" not in page._picture("image/png", b"\x89PNG", "PHN2Zz4=") and "<img" not in page._picture(
        "image/png", b"\x89PNG", "%%"
    )


def test_text_that_a_spreadsheet_would_run():
    assert _cell("=1+1") == "'=1+1" and _cell("anna") == "anna" and _cell(None) == "" and _cell(-1.5) == -1.5


@pytest.mark.parametrize(
    "piece", ["<b>", "<ul><li>", "<b></i>", "</b>" * 9 + "<b>" * 9, "<table><tr><td>", "<", "<!--"]
)
def test_html_made_to_cost_time_is_shown_as_text(piece):
    start = time.process_time()
    assert len(page.clean(piece * (page.MAX_HTML // len(piece)))) <= 8 * page.MAX_HTML
    assert time.process_time() - start < 5.0, "parsing takes time with the square of the depth"
