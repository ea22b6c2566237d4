"""The tasks of the course: `course.toml` is the one list; each lesson has one module of public tests.

`kvcourse.tasks.api` holds what a test is written with, `kvcourse.tasks.course` reads the list.
"""
