"""The published traces by name: fetched from their repositories, checked by SHA-256, kept in the cache folder.

Nothing here is bundled with the course. Licences: Mooncake and kv-cache-tester Apache-2.0, Azure CC-BY 4.0.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kvcourse.tasks.course import UserError, did_you_mean
from kvcourse.workload.bar import progress_bar
from kvcourse.workload.readers import read_trace
from kvcourse.workload.trace import Trace

CHUNK = 1 << 16
TIMEOUT = 30  # seconds without a byte
INSTEAD = "`kvcourse.workload.generate()` makes a synthetic trace here"


@dataclass(frozen=True)
class Source:
    """A published file. One made of several addresses is their contents, in order, one a line."""

    file: str
    sha256: str  # of the uncompressed file
    size: int  # bytes, uncompressed
    addresses: tuple[str, ...]
    licence: str
    about: str


def download_trace(name: str, folder: Path | None = None) -> Path:
    """The trace called `name`, fetched unless it is there and sound; the path of the file.

    It goes to `folder`, by default `traces` in the course's cache folder, and appears whole or not at all.
    UserError, one sentence: unknown name, no connection, another file than the published one.
    """
    return fetch(find_source(name), folder or trace_folder())


def find_trace(name: str) -> Path:
    """The trace called `name` on this machine, compressed or not; UserError, with the way to get it, if there is none.

    Looked for in `$KVCOURSE_TRACES`, in `shared/traces` beside the course's own folder, and among the downloads.
    """
    source = find_source(name)
    named = os.environ.get("KVCOURSE_TRACES")
    beside = Path(__file__).resolve().parents[3] / "shared" / "traces"
    for place in ([Path(named)] if named else []) + [beside, trace_folder()]:
        for ending in ("", ".gz", ".xz"):
            if (path := place / (source.file + ending)).is_file():
                return path
    raise UserError(
        f"The trace {name} is not on this machine: `kvcourse.workload.download_trace({name!r})` fetches it; {INSTEAD}."
    )


def load_trace(name: str) -> Trace:
    """The published trace called `name`, from this machine; UserError as in `find_trace`."""
    return read_trace(find_trace(name))


def find_source(name: str) -> Source:
    if name not in SOURCES:
        raise UserError(f"There is no trace {name!r}. {did_you_mean(name, SOURCES)}")
    return SOURCES[name]


def trace_folder() -> Path:
    """`traces` in the course's cache folder (`$KVCOURSE_CACHE`)."""
    from kvcourse.models.smollm2 import cache_folder

    return cache_folder() / "traces"


def fetch(source: Source, folder: Path) -> Path:
    """Download `source` into `folder` unless a sound copy is there; a file is only ever replaced by a sound one."""
    path = folder / source.file
    if _sound(path, source):
        return path
    part = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=folder, prefix=f".{source.file}.")
        with os.fdopen(handle, "wb") as target, progress_bar(source.size, "B", f"download {source.file}") as bar:
            for chunk in _bytes(source):
                target.write(chunk)
                bar.update(len(chunk))
        _check(Path(part), source)
        os.replace(part, path)
        part = None
    except OSError as error:  # of the network as of the disk
        raise UserError(f"{source.file} could not be downloaded: {_reason(error)}; {INSTEAD}.") from error
    finally:
        if part is not None:
            Path(part).unlink(missing_ok=True)
    return path


def _bytes(source: Source) -> Iterator[bytes]:
    """The contents as they arrive, no more than a little over the published size."""
    from http.client import HTTPException
    from urllib.request import urlopen

    arrived = 0
    for address in source.addresses:
        try:
            with urlopen(address, timeout=TIMEOUT) as answer:
                while (chunk := answer.read(CHUNK)) and arrived <= source.size:
                    arrived += len(chunk)
                    yield chunk
        except HTTPException as error:
            raise OSError(f"the server's answer is broken ({type(error).__name__})") from error
        if len(source.addresses) > 1:
            yield b"\n"


def _check(path: Path, source: Source) -> None:
    size, digest = path.stat().st_size, _sha256(path)
    if size != source.size:
        what = f"it has {'more than ' if size > source.size else ''}{min(size, source.size):,} bytes of {source.size:,}"
    elif digest != source.sha256:
        what = f"its SHA-256 is {digest[:12]}… instead of {source.sha256[:12]}…"
    else:
        return
    raise UserError(f"The downloaded {source.file} is not the published file: {what}; {INSTEAD}.")


def _sound(path: Path, source: Source) -> bool:
    return path.is_file() and path.stat().st_size == source.size and _sha256(path) == source.sha256


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _reason(error: OSError) -> str:
    code = getattr(error, "code", None)
    if code is not None:
        return f"the server answered {code} for {getattr(error, 'url', 'it')}"
    if isinstance(error, TimeoutError) or isinstance(getattr(error, "reason", None), TimeoutError):
        return f"no answer for {TIMEOUT} seconds"
    reason = getattr(error, "reason", None) or error.strerror or error
    return str(reason).rstrip(".")


def _raw(repository: str, commit: str, path: str) -> str:
    return f"https://raw.githubusercontent.com/{repository}/{commit}/{path}"


def _mooncake(commit: str, path: str) -> tuple[str, ...]:
    return (_raw("kvcache-ai/Mooncake", commit, f"FAST25-release/traces/{path}"),)


def _azure(path: str) -> tuple[str, ...]:
    return (_raw("Azure/AzurePublicDataset", "790921015d50dd6aae7f7e47f39ba0e235ad6b08", f"data/{path}"),)


AGENTIC_COMMIT = "94f6046dfd9c0c8bc0cdb24a5aa6579bac8669bf"
AGENTIC_MISSING = (25, 241, 385, 433)  # not in the sample
AGENTIC_NUMBERS = [number for number in range(1, 734, 12) if number not in AGENTIC_MISSING]

SOURCES = {
    "mooncake_conversation": Source(
        "mooncake_conversation.jsonl",
        "b8cbb061a85206d729d91cdc2981f43c9e0d99209dce588d3af5f7934408b9df",
        3_029_533,
        _mooncake("a2a4b18ac537fd798d50e6e9f57031ce86419a37", "conversation_trace.jsonl"),
        "Apache-2.0",
        "Mooncake (FAST 2025), chats of one hour: 12,031 requests with block ids",
    ),
    "mooncake_synthetic": Source(
        "mooncake_synthetic.jsonl",
        "bd070915a98fc0ed264d7cfef2ce746002eb3076a695ec31ba2674c0111ec131",
        1_136_313,
        _mooncake("3cca71daccf2a7afb8fe3f0295358f70e3a69fdb", "synthetic_trace.jsonl"),
        "Apache-2.0",
        "Mooncake (FAST 2025), long prompts of public data sets: 3,993 requests with block ids",
    ),
    "azure_code_2023": Source(
        "azure_code_2023.csv",
        "54e9a6d2a4bd06ba1e060304b900abbc74cbea53de96506e60fe5bb4f2277fb6",
        320_117,
        _azure("AzureLLMInferenceTrace_code.csv"),
        "CC-BY 4.0",
        "Azure (Splitwise, ISCA 2024), code completion: 8,819 requests, lengths only",
    ),
    "azure_conv_2023": Source(
        "azure_conv_2023.csv",
        "2f1e5b666d4e3055fdbba98598ce2ec307767b9064e03e2fa46676dbcc7d0bf8",
        719_188,
        _azure("AzureLLMInferenceTrace_conv.csv"),
        "CC-BY 4.0",
        "Azure (Splitwise, ISCA 2024), chats: 19,366 requests, lengths only",
    ),
    "agentic_sample": Source(
        "agentic_sample.jsonl",
        "47508f522e2bd0491e9a1c457809fed165e8e70fd97bb29b27cdf44815a8c681",
        31_246_526,
        tuple(
            _raw("callanjfox/kv-cache-tester", AGENTIC_COMMIT, f"traces/trace_{number:04d}.json")
            for number in AGENTIC_NUMBERS
        ),
        "Apache-2.0",
        "kv-cache-tester, 58 coding-agent conversations: 3,295 requests with block ids",
    ),
}
