"""From LMS zips to nbgrader's layout: whose file it is, which notebook counts, what is refused."""

from __future__ import annotations

import io
import stat
import zipfile

import pytest
from toy_course import HALF, LESSON, NAME, STUB, WORK, collected, here, notes, toy_course, zipped

from autograde import archive as zips
from autograde import collect
from autograde.coursedir import Course
from autograde.intake import prepare
from autograde.students import Names, Owner, safe_name
from kvcourse.tasks.course import UserError


@pytest.fixture
def course(tmp_path) -> Course:
    return toy_course(tmp_path)


@pytest.mark.parametrize(
    ("path", "student"),
    [
        ("Anna Müller_12345_assignsubmission_file_/cache_sizing.ipynb", "Anna Müller"),
        ("Anna Müller_12345_assignsubmission_file_cache_sizing.ipynb", "Anna Müller"),
        ("export/Anna_1_assignsubmission_file_/notes/my.ipynb", "Anna"),
        ("muelleranna_4711_99_cache_sizing.ipynb", "muelleranna_4711"),
        ("muelleranna_LATE_4711_99_cache_sizing-1.ipynb", "muelleranna_4711"),
        ("submissions/muelleranna_4711_99_Kopie von cache_sizing.ipynb", "muelleranna_4711"),
        ("sizing_amueller_attempt_2026-01-30-15-00-00_cache_sizing.ipynb", "amueller"),
        ("anna/cache_sizing.ipynb", "anna"),
        ("anna\\sizing\\cache_sizing.ipynb", "anna"),
        ("submitted/anna/sizing/cache_sizing.ipynb", "anna"),
        ("anna.ipynb", "anna"),
        ("cache_sizing.ipynb", "class"),
        ("李 雷/cache_sizing.ipynb", "李 雷"),
        ("Mary [guest] O'Neil*/cache_sizing.ipynb", "Mary (guest) O'Neil_"),
        ("Sammy Davis Jr./cache_sizing.ipynb", "Sammy Davis Jr."),
    ],
)
def test_whose_submission_it_is(course, path, student):
    assert collected(course, {path: WORK}) == {student: WORK}


def test_a_class_of_every_lms_in_folders_of_its_own(course):
    files = {f"top/{name}_{i}_assignsubmission_file_/x.ipynb": WORK for i, name in enumerate(("A B", "C D"))}
    assert collected(course, files | {"top/readme.txt": b"", "__MACOSX/x": b"", "top/.DS_Store": b""}).keys() == {
        "A B",
        "C D",
    }


def test_students_with_the_same_name_stay_two(course):
    files = {
        f"Ann Lee_{number}_assignsubmission_file_/cache_sizing.ipynb": raw for number, raw in ((1, WORK), (2, HALF))
    }
    assert collected(course, files) == {"Ann Lee": WORK, "Ann Lee (2)": HALF}
    assert collected(course, files, "again.zip") == {"Ann Lee": WORK, "Ann Lee (2)": HALF}


def test_names_that_become_equal_stay_two(course):
    found = collected(course, {"a[1]/x.ipynb": WORK, "a(1)/x.ipynb": HALF, "A(1)/x.ipynb": STUB})
    assert sorted(found.values()) == sorted([WORK, HALF, STUB])
    assert found["a(1)"] == WORK and len(found) == 3
    composed, decomposed = "e\u0301va", "éva"
    assert len({safe_name(composed), safe_name(decomposed)}) == 1


def test_ids_are_stable_from_zip_to_zip(course):
    first, again = Names(course), Owner("moodle", "7", "Ann", "", scope="sizing")
    assert first.of(again) == "Ann" and Names(course).of(again) == "Ann"
    assert Names(course).of(Owner("moodle", "8", "Ann", "", scope="prefix")) == "Ann"  # another lesson, the same Ann


def test_late_is_noted(course):
    collected(course, {"muelleranna_LATE_4711_99_cache_sizing.ipynb": WORK})
    assert "late" in notes(course, "muelleranna_4711")


@pytest.mark.parametrize(
    "name", ["cache_sizing (1).ipynb", "Copy of cache_sizing.ipynb", "hw.IPYNB", "deep/er/x.ipynb"]
)
def test_other_names_are_mapped_and_noted(course, name):
    assert collected(course, {f"anna/{name}": WORK, "bob/cache_sizing.ipynb": STUB})["anna"] == WORK
    assert "was handed in as" in notes(course, "anna") and notes(course, "bob") == ""


@pytest.mark.parametrize("names", [("cache_sizing.ipynb", "cache_sizing (1).ipynb"), ("b.ipynb", "a.ipynb")])
def test_of_several_notebooks_the_one_with_most_work_counts(course, names):
    for first, second in ((STUB, WORK), (WORK, HALF)):
        found = collected(course, {f"anna/{names[0]}": first, f"anna/{names[1]}": second, "bob/x.ipynb": STUB})
        assert found["anna"] == WORK and "of several notebooks" in notes(course, "anna")


def test_of_equal_work_the_newest_counts(course):
    newer = WORK + b"\n"
    files = {"anna/a.ipynb": newer, "anna/b.ipynb": WORK}
    assert collected(course, files, **{"anna/a.ipynb": (2026, 5, 1, 0, 0, 0)})["anna"] == newer


def test_one_zip_inside_is_opened_and_no_second(course):
    inner, innermost = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(innermost, "w") as archive:
        archive.writestr("cache_sizing.ipynb", WORK)
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("my work/cache_sizing.ipynb", HALF)
        archive.writestr("more.zip", innermost.getvalue())
    path = zipped(course.root / "c.zip", {"anna/all.zip": inner.getvalue(), "bob.zip": inner.getvalue()})
    said = collect.collect_zip(course, path, LESSON)
    assert here(course) == {"anna": HALF, "bob": HALF}
    assert any("more.zip: a zip inside a zip inside a zip" in line for line in said)


def test_paths_that_escape_links_and_oversize_are_left_out(course, monkeypatch, tmp_path):
    monkeypatch.setattr(zips, "MAX_BYTES", len(WORK) + 10)
    link = zipfile.ZipInfo("anna/data.csv")
    link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    path = course.root / "x.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(link, "/etc/passwd")
        for name in ("../../evil.ipynb", "/abs/evil.ipynb", "C:/evil.ipynb", "anna/..\\..\\evil.ipynb"):
            archive.writestr(name, WORK)
        archive.writestr("anna/bomb.ipynb", b" " * (len(WORK) + 11))
        archive.writestr("anna/cache_sizing.ipynb", WORK)
        archive.writestr("anna/helper.py", "import os")
    said = "\n".join(collect.collect_zip(course, path, LESSON))
    assert here(course) == {"anna": WORK}
    assert said.count("leaves the folder") == 4 and "a link" in said and "bomb.ipynb: too large" in said
    assert "helper.py" in notes(course, "anna") and not list(tmp_path.rglob("evil*"))
    assert [p.name for p in course.submitted("anna", LESSON).iterdir()] == [NAME]


def test_a_damaged_file_costs_only_itself(course):
    path = zipped(course.root / "x.zip", {"anna/cache_sizing.ipynb": WORK, "bob/cache_sizing.ipynb": STUB})
    raw = path.read_bytes()
    path.write_bytes(raw.replace(WORK[:40], b"!" * 40, 1))
    said = collect.collect_zip(course, path, LESSON)
    assert here(course)["bob"] == STUB and any("damaged" in line for line in said)


@pytest.mark.parametrize("raw", [b"", b"not a zip", b"PK\x03\x04"])
def test_what_is_no_zip_is_named(course, raw):
    path = course.root / "x.zip"
    path.write_bytes(raw)
    with pytest.raises(UserError, match="cannot be opened as a zip"):
        collect.collect_zip(course, path, LESSON)
    with pytest.raises(UserError, match="no file"):
        collect.collect_zip(course, course.root / "none.zip", LESSON)


def test_a_later_zip_replaces_and_keeps_the_earlier_one(course):
    collected(course, {"anna/cache_sizing.ipynb": HALF})
    collected(course, {"anna/cache_sizing.ipynb": WORK}, "later.zip")
    assert here(course) == {"anna": WORK} and "replaces an earlier" in notes(course, "anna")
    assert [p.read_bytes() for p in (course.state / "replaced").rglob("*.ipynb")] == [HALF]


def test_zips_in_submitted_are_collected_once(course):
    zipped(course.submissions / "moodle.zip", {"Ann_1_assignsubmission_file_/cache_sizing.ipynb": WORK})
    assert collect.collect_waiting(course, None) == ["moodle.zip: 1 submission collected."]
    assert collect.collect_waiting(course, None) == []
    assert here(course) == {"Ann": WORK}


def test_owner_and_lesson_that_cannot_be_told_are_said(course):
    said = collect.collect_zip(course, zipped(course.root / "x.zip", {NAME: WORK, f"copy {NAME}": HALF}), LESSON)
    assert here(course) == {} and sum("cannot be told" in line for line in said) == 2
    said = collect.collect_zip(
        course, zipped(course.root / "x.zip", {"a/x.ipynb": WORK, "b/x.ipynb": HALF, "readme": b""})
    )
    assert said == ["x.zip: 2 submissions collected."]


def test_one_student_cannot_fill_the_memory(course, monkeypatch):
    monkeypatch.setattr(zips, "MAX_STUDENT", 3 * len(WORK))
    monkeypatch.setattr(collect, "MAX_STUDENT", 3 * len(WORK))
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(9):
            archive.writestr(f"{number}.ipynb", WORK)
    path = zipped(course.root / "c.zip", {"anna/all.zip": inner.getvalue(), "bob/cache_sizing.ipynb": HALF})
    said = collect.collect_zip(course, path, LESSON)
    assert here(course) == {"anna": WORK, "bob": HALF} and sum("too large" in line for line in said) == 6


def test_only_an_nbgrader_folder_brings_its_time_stamp(course):
    files = {"anna/sizing/timestamp.txt": b"2026-01-01", "Bob_1_assignsubmission_file_/timestamp.txt": b"2026-01-01"}
    files |= {"anna/sizing/cache_sizing.ipynb": WORK, "Bob_1_assignsubmission_file_/x.ipynb": WORK}
    collected(course, files)
    assert (course.submitted("anna", LESSON) / "timestamp.txt").exists()
    assert not (course.submitted("Bob", LESSON) / "timestamp.txt").exists()
    (course.submitted("anna", LESSON) / "timestamp.txt").write_text("soon")
    prepare(course, "anna", LESSON)
    assert "refused timestamp.txt: not a date" in notes(course, "anna")
