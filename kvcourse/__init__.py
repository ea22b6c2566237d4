"""kvcourse: learn KV caching by building it, part by part, into a small real serving engine.

`check`, `hint`, `progress` and `quiz` are what a notebook needs. Importing this package imports neither torch nor
transformers, so block tables, routers and simulators start at once.
"""

from kvcourse.check import check, hint, progress, quiz

__version__ = "0.1.0"
__all__ = ["__version__", "check", "hint", "progress", "quiz"]
