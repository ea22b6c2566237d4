"""Models of the course: `catalog` names real configs, `measure` reads the size of a real cache.

Importing this package imports neither torch nor transformers.
"""
