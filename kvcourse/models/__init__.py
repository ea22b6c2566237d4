"""Models of the course: `load_model` gives one that runs, `catalog` names real configs, `measure` sizes a real cache.

Importing this package imports neither torch nor transformers.
"""

from kvcourse.models.load import LoadedModel, load_model

__all__ = ["LoadedModel", "load_model"]
