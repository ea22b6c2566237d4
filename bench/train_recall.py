"""Train the bundled `recall` model (kvcourse/data/recall.safetensors): about 20 minutes on one CPU core.

    python bench/train_recall.py             train; after an interruption, continue from the last checkpoint
    python bench/train_recall.py --measure   only measure the bundled file and write bench/results/recall.json

What it takes, each learned from runs that failed: (1) two heads of layer 0 start as "previous token" heads and two as
"latest section header" heads, by weights set by hand, else the model never finds the trick or ignores the sections;
(2) a curriculum of growing contexts, where accuracy promotes to the next stage; (3) position jumps at section borders,
so that short sequences train long distances; (4) a learning rate that falls with the stages, at the end to nothing.
Everything is seeded and counted in steps, never in seconds: the same machine gives the same weights.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file
from tqdm import tqdm
from transformers import LlamaForCausalLM

from kvcourse.models.recall import FILE, load_recall, recall_accuracy, recall_config
from kvcourse.models.recall_task import FIRST_SECTION, SECTIONS, RecallSample, recall_sample

ROOT = Path(__file__).resolve().parents[1]
CHECKPOINT = ROOT / "build" / "recall_checkpoint.pt"
RESULTS = ROOT / "bench" / "results" / "recall.json"
LENGTHS = {128: 64, 512: 48, 1024: 32, 2048: 24, 4096: 16}  # context: samples measured, about 130 answers each

WARM_UP = 60  # steps
SETTLE = 300  # steps from the last promotion to the end, while the learning rate falls to nothing
SAVE_EVERY = 100  # steps


@dataclass(frozen=True)
class Stage:
    context: int
    answers: int
    sections: tuple[int, ...]  # section lengths to choose from
    batch: int
    rate: float  # learning rate
    jump: int = 4608  # positions that a sequence with jumps spans; 0: no jumps


STAGES = (
    Stage(20, 44, (20,), 32, 1.5e-3, jump=0),
    Stage(48, 60, (24, 48), 20, 1.5e-3),
    Stage(96, 96, (24, 48, 96), 10, 1.5e-3),
    Stage(192, 128, (48, 96), 6, 1.2e-3),
    Stage(384, 256, (48, 96, 128), 4, 0.8e-3),
    Stage(1024, 512, (96, 128), 2, 0.6e-3),
    Stage(2048, 768, (128,), 1, 0.5e-3),
    Stage(4096, 1024, (128,), 1, 0.5e-3, jump=0),
)
PROMOTE = 0.9  # mean accuracy that ends a stage
LAST = len(STAGES) - 1


@dataclass
class Run:
    """All that a checkpoint keeps."""

    model: LlamaForCausalLM
    optimizer: torch.optim.Optimizer
    rng: np.random.Generator
    stage: int = 0
    step: int = 0
    settled: int = 0  # steps since the last stage was reached
    accuracy: float = 0.0  # of the current stage, a running mean
    tokens: int = 0
    seconds: float = 0.0  # CPU time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", action="store_true", help="only measure the file, train nothing")
    parser.add_argument("--fresh", action="store_true", help="forget the checkpoint")
    parser.add_argument("--seed", type=int, default=0, help="below one million; the held-out samples use others")
    parser.add_argument("--file", type=Path, default=FILE, help="the weights to write or to measure")
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT)
    args = parser.parse_args()
    torch.set_num_threads(1)
    seconds = None
    if not args.measure:
        if args.fresh:
            args.checkpoint.unlink(missing_ok=True)
        run = start(args.seed, args.checkpoint)
        train(run, args.checkpoint)
        weights = {name: w.contiguous() for name, w in run.model.state_dict().items() if name != "lm_head.weight"}
        save_file(weights, args.file)
        args.file.chmod(0o644)
        seconds = run.seconds
    report(args.file, seconds)


def start(seed: int, checkpoint: Path) -> Run:
    torch.manual_seed(seed)
    model = LlamaForCausalLM(recall_config())
    warm_start(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=STAGES[0].rate, betas=(0.9, 0.98), weight_decay=0.0)
    run = Run(model, optimizer, np.random.default_rng(seed))
    if checkpoint.exists():
        load(run, checkpoint)
        print(f"continues at step {run.step}, stage {run.stage}", flush=True)
    return run


@torch.no_grad()
def warm_start(model: LlamaForCausalLM) -> None:
    """Set the heads of layer 0 by hand: 0 and 1 look at the previous token, 2 and 3 at the latest section header.

    Rotary pair i (rows i and i + 32 of a head) turns by 1e6 ** (-i / 32) a position. Channel 0 of the embedding is a
    constant, channel 1 marks section names. Fast pairs, turned back by one position, peak at distance 1; slow pairs
    fall off with distance, so among the marked tokens the latest wins.
    """
    attention = model.model.layers[0].self_attn
    embedding, query, key = model.model.embed_tokens.weight, attention.q_proj.weight, attention.k_proj.weight
    embedding[:, 0] = 0.12
    embedding[:, 1] = 0
    embedding[FIRST_SECTION : FIRST_SECTION + SECTIONS, 1] = 0.3
    key.zero_()
    query.zero_()
    for pair in range(5):
        turn = 1e6 ** (-pair / 32)
        key[pair, 0] = 4.5
        for head in (0, 1):
            query[64 * head + pair, 0] = 4.5 * math.cos(turn)
            query[64 * head + pair + 32, 0] = -4.5 * math.sin(turn)
    for pair in range(11, 17):
        key[64 + pair, 1] = 2.0
        for head in (2, 3):
            query[64 * head + pair, 0] = 8.0


def train(run: Run, checkpoint: Path) -> None:
    """Climb the curriculum, then settle; a checkpoint every SAVE_EVERY steps."""
    bar = tqdm(total=SETTLE, initial=run.settled, desc=f"stage {run.stage}", mininterval=10, unit="step")
    before = time.process_time() - run.seconds
    while run.settled < SETTLE:
        stage = pick_stage(run)
        accuracy = train_step(run, STAGES[stage])
        run.step += 1
        run.seconds = time.process_time() - before
        if stage == run.stage:
            run.accuracy = 0.95 * run.accuracy + 0.05 * accuracy
        if run.stage == LAST:
            run.settled += 1
            bar.update()
        elif run.accuracy > PROMOTE:
            tqdm.write(f"stage {run.stage} done: step {run.step}, {run.tokens / 1e6:.2f}M tokens, {run.seconds:.0f} s")
            run.stage, run.accuracy = run.stage + 1, 0.0
        bar.set_description(f"stage {run.stage}, accuracy {run.accuracy:.3f}", refresh=False)
        bar.set_postfix(step=run.step, tokens=f"{run.tokens / 1e6:.2f}M", cpu=f"{run.seconds:.0f}s", refresh=False)
        if run.step % SAVE_EVERY == 0:
            bar.refresh()
            save(run, checkpoint)
    save(run, checkpoint)
    bar.close()


def pick_stage(run: Run) -> int:
    """Mostly the current stage; one step in five, in the costly last stage every second one, repeats another."""
    repeat = 0.5 if run.stage == LAST else 0.2
    return int(run.rng.integers(run.stage)) if run.stage and run.rng.random() < repeat else run.stage


def train_step(run: Run, stage: Stage) -> float:
    """One step of the optimiser on fresh samples; returns the accuracy on their answers."""
    for group in run.optimizer.param_groups:
        group["lr"] = STAGES[run.stage].rate * min(1.0, (run.step + 1) / WARM_UP) * (1 - run.settled / SETTLE)
    rng = run.rng
    shape = {"section": int(rng.choice(stage.sections)), "filler": float(rng.choice([0.05, 0.25, 0.5]))}
    reach = stage.jump if rng.random() < 0.6 else 0
    samples = [recall_sample(rng, stage.context, stage.answers, **shape) for _ in range(stage.batch)]
    ids = torch.from_numpy(np.stack([sample.ids for sample in samples]))
    asked = torch.from_numpy(np.stack([sample.is_answer for sample in samples]))[:, 1:]
    positions = torch.from_numpy(np.stack([jumping_positions(rng, sample, reach) for sample in samples]))
    hidden = run.model.model(
        input_ids=ids[:, :-1],
        position_ids=positions[:, :-1],
        attention_mask=torch.ones_like(ids[:, :-1]),  # else a jump would count as the border of a packed sequence
        use_cache=False,
    ).last_hidden_state
    logits, want = run.model.lm_head(hidden[asked]), ids[:, 1:][asked]
    loss = F.cross_entropy(logits, want)
    run.optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(run.model.parameters(), 1.0)
    run.optimizer.step()
    run.tokens += ids.numel()
    return (logits.argmax(-1) == want).float().mean().item()


def jumping_positions(rng: np.random.Generator, sample: RecallSample, reach: int) -> np.ndarray:
    """0, 1, 2 … with random jumps before the sections and the questions, up to about `reach` in all."""
    positions, free = np.arange(len(sample.ids)), reach - len(sample.ids)
    if free <= 0:
        return positions
    borders = [*sample.section_starts, sample.context]
    jumps = np.sort(rng.integers(0, free + 1, len(borders)))
    if rng.random() < 0.5:
        jumps -= jumps[0]
    for border, jump in zip(borders, jumps, strict=True):
        positions[border:] = np.arange(border, len(positions)) + jump
    return positions


def save(run: Run, checkpoint: Path) -> None:
    """Written whole or not at all."""
    numbers = {name: getattr(run, name) for name in ("stage", "step", "settled", "accuracy", "tokens", "seconds")}
    state = numbers | {
        "model": run.model.state_dict(),
        "optimizer": run.optimizer.state_dict(),
        "rng": run.rng.bit_generator.state,
    }
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, checkpoint.with_suffix(".part"))
    os.replace(checkpoint.with_suffix(".part"), checkpoint)


def load(run: Run, checkpoint: Path) -> None:
    state = torch.load(checkpoint, weights_only=True)
    run.model.load_state_dict(state.pop("model"))
    run.optimizer.load_state_dict(state.pop("optimizer"))
    run.rng.bit_generator.state = state.pop("rng")
    for name, value in state.items():
        setattr(run, name, value)


def report(file: Path, seconds: float | None) -> None:
    """Measure on held-out samples, print, and keep the figures; the training time stays when only measuring."""
    old = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    model = load_recall(file)
    figures = {}
    for context, samples in tqdm(LENGTHS.items(), desc="measure"):
        figures[str(context)] = round(recall_accuracy(model, context, samples), 4)
        tqdm.write(f"{context:5d} tokens: {figures[str(context)]:.4f} of the answers right, {samples} samples")
    if file != FILE:
        return
    results = {
        "accuracy_by_context": figures,
        "samples_by_context": {str(context): samples for context, samples in LENGTHS.items()},
        "file_bytes": file.stat().st_size,
        "training_cpu_seconds": old.get("training_cpu_seconds") if seconds is None else round(seconds),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, 1 thread used",
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__, "numpy": np.__version__},
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
