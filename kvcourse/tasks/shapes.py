"""Model configs for tests: real ones by name, and ones small enough to size by hand."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def real(name: str) -> Any:
    """The config of a real model."""
    from kvcourse.models.catalog import model_config

    return model_config(name)


def tiny(config_class: str, layers: int = 2, **fields: Any) -> Any:
    """A config small enough to size by hand: 4 query heads of 2 numbers each unless `fields` say otherwise."""
    import transformers

    shape = {"num_hidden_layers": layers, "hidden_size": 8, "num_attention_heads": 4}
    return getattr(transformers, config_class)(**shape | fields)
