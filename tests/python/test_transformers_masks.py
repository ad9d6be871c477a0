"""What the mask function of kiln.integrations.transformers says, beside transformers' own masks. No
kernel runs here; test_transformers.py computes with these masks."""

import functools
import os
import types

os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
import torch
from kiln.integrations import _transformers_attention as attention
from kiln.integrations import _transformers_masks as masks
from transformers import masking_utils as theirs

WINDOW = 4
LAYER = types.SimpleNamespace(config=types.SimpleNamespace(sliding_window=WINDOW))
KINDS = {
    "causal": theirs.causal_mask_function,
    "window": theirs.sliding_window_causal_mask_function(WINDOW),
    "full": theirs.bidirectional_mask_function,
}
PADDING = {
    "none": None,
    "ones": [(0, 0), (0, 0)],
    "left": [(3, 0), (0, 0)],
    "right": [(0, 0), (0, 2)],
    "both": [(2, 1), (1, 0)],
    "all": [(0, 0), (9, 0)],
}
# Queries, keys of the cache, and the places of the first query and key.
PLACES = {
    "prefill": (9, 9, 0, 0),
    "step": (1, 9, 8, 0),
    "chunk": (3, 9, 6, 0),
    "static prefill": (9, 16, 0, 0),
    "static step": (1, 16, 8, 0),
    "static step, on the device": (1, 16, torch.tensor(8), 0),
    "rolled step": (1, 5, 8, 4),
    "rolled chunk": (3, 7, 6, 2),
}


def padding_mask(rows, length):
    if rows is None:
        return None
    mask = torch.ones(len(rows), length, dtype=torch.bool)
    for row, (left, right) in zip(mask, rows):
        row[:left] = False
        row[length - right :] = False
    return mask


def shown(mask, queries, keys, causal):
    """The bool mask [2, 1, queries, keys] that a mask stands for."""
    query, key = torch.empty(2, 1, queries, 8), torch.empty(2, 1, keys, 8)
    if mask is None:
        seen = torch.ones(queries, keys, dtype=torch.bool)
        return (seen.tril(keys - queries) if causal else seen).expand(2, 1, -1, -1)
    if masks.is_encoded(mask):
        mask = attention._dense(LAYER, query, key, mask, None)
    return mask.expand(2, 1, -1, -1)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("padding", PADDING)
@pytest.mark.parametrize("kind", KINDS)
def test_masks_are_those_of_transformers(kind, padding, place):
    queries, keys, q_offset, kv_offset = PLACES[place]
    end = int(q_offset) + queries
    arguments = {
        "batch_size": 2,
        "q_length": queries,
        "kv_length": keys,
        "q_offset": q_offset,
        "kv_offset": kv_offset,
        "mask_function": KINDS[kind],
        "attention_mask": padding_mask(PADDING[padding], end),
    }
    ours = masks.make_mask(**arguments)
    if padding != "none" or kind != "full" or place == "prefill":  # else nothing ends the keys
        want = theirs.sdpa_mask(**arguments, allow_is_causal_skip=False).expand(2, 1, -1, -1)
        got = shown(ours, queries, keys, kind == "causal")
        real = torch.ones(2, end, dtype=torch.bool)
        if arguments["attention_mask"] is not None:
            real = arguments["attention_mask"]
        rows = real[:, int(q_offset) :][:, None, :, None]  # queries that are no padding
        assert torch.equal(got & rows, want & rows)
    assert ours is None or masks.is_encoded(ours)


def test_steps_of_a_static_cache_keep_their_shapes():
    steps = [
        masks.make_mask(2, 1, 16, place, allow_is_causal_skip=False, mask_function=function)
        for place in (3, 9, 15)
        for function in (KINDS["causal"], KINDS["causal"])
    ]
    assert {tuple(step.shape) for step in steps} == {(1, masks.CAUSAL, 1, 2)}
    assert [int(step[0, 0, 0, 1]) for step in steps[::2]] == [4, 10, 16]


@pytest.mark.parametrize("padding", ["none", "left"])
@pytest.mark.parametrize("kind", KINDS)
def test_models_that_compute_with_a_mask_have_its_elements(kind, padding):
    arguments = {
        "batch_size": 2,
        "q_length": 9,
        "kv_length": 9,
        "mask_function": KINDS[kind],
        "attention_mask": padding_mask(PADDING[padding], 9),
        "allow_is_causal_skip": False,
    }
    want = theirs.sdpa_mask(**arguments)
    ours = masks.make_mask(**arguments, allow_is_bidirectional_skip=False)
    assert ours.dtype == torch.bool and torch.equal(ours, want)
    if kind == "full":
        skipped = masks.make_mask(**arguments, allow_is_bidirectional_skip=True)
        assert skipped is None or masks.is_encoded(skipped)


def test_t5gemma2_joins_the_masks_of_its_decoder():
    """transformers' model concatenates these two along the keys."""
    config = types.SimpleNamespace(is_causal=True)
    own = masks.make_mask(
        1, 4, 4, mask_function=KINDS["causal"], allow_is_causal_skip=False, config=config
    )
    crossed = masks.make_mask(
        1, 4, 6, mask_function=KINDS["full"], allow_is_causal_skip=False,
        allow_is_bidirectional_skip=False, config=config,
    )  # fmt: skip
    assert torch.cat([own, crossed], dim=-1).shape == (1, 1, 4, 10)


@pytest.mark.parametrize("base", ["causal", "window"])
def test_packed_sequences(base):
    ids = torch.tensor([[0, 0, 0, 1, 1, 2], [0, 0, 0, 0, 0, 0]])
    if hasattr(theirs, "packed_sequence_compatibility_function"):
        places = torch.tensor([[0, 1, 2, 0, 1, 0], [0, 1, 2, 3, 4, 5]])
        packed = theirs.packed_sequence_compatibility_function(KINDS[base], places, ids)
    else:
        packed = theirs.and_masks(KINDS[base], theirs.packed_sequence_mask_function(ids))
    mask = masks.make_mask(2, 6, 6, mask_function=packed)
    assert mask.shape[1] == (masks.PACKED_CAUSAL if base == "causal" else masks.PACKED_WINDOW)
    assert mask[0, 0, 0].tolist() == [0, 3, 5, 6, 12]


def test_windows_both_ways():
    function = theirs.sliding_window_bidirectional_mask_function(WINDOW)
    arguments = {"batch_size": 2, "q_length": 9, "kv_length": 9, "mask_function": function}
    want = theirs.sdpa_mask(**arguments, allow_is_causal_skip=False).expand(2, 1, -1, -1)
    ours = masks.make_mask(**arguments)
    assert masks.is_encoded(ours) and torch.equal(shown(ours, 9, 9, False), want)
    padded = masks.make_mask(**arguments, attention_mask=padding_mask(PADDING["right"], 9))
    assert padded.dtype == torch.bool


def test_what_numbers_cannot_tell_is_a_mask_of_elements():
    holes = torch.ones(2, 9, dtype=torch.bool)
    holes[0, 3:5] = False
    chunks = theirs.chunked_causal_mask_function(4, torch.zeros(2, dtype=torch.int64))
    prefix = theirs.or_masks(theirs.causal_mask_function, lambda b, h, q, kv: (q < 3) & (kv < 3))
    for options in (
        {"attention_mask": holes},
        {"attention_mask": torch.ones(2, 7, dtype=torch.bool)},  # and the last keys are hidden
        {"mask_function": chunks},
        {"mask_function": prefix, "use_vmap": True, "allow_is_bidirectional_skip": True},
    ):
        arguments = {"batch_size": 2, "q_length": 9, "kv_length": 9, **options}
        ours = masks.make_mask(**arguments)
        arguments.pop("allow_is_bidirectional_skip", None)
        assert torch.equal(ours, theirs.sdpa_mask(**arguments, allow_is_causal_skip=False))


def test_masks_are_traced_without_asking_the_host():
    def both(padding, offset):
        window = theirs.sliding_window_causal_mask_function(WINDOW)
        options = {"mask_function": window, "attention_mask": padding}
        return masks.make_mask(2, 9, 9, **options), masks.make_mask(2, 1, 16, q_offset=offset)

    padding, offset = padding_mask(PADDING["left"], 9), torch.tensor(8)
    traced = torch.compile(both, backend="eager", fullgraph=True)
    window, step = traced(padding, offset)
    arguments = {"mask_function": KINDS["window"], "attention_mask": padding}
    assert torch.equal(window, theirs.sdpa_mask(2, 9, 9, **arguments, allow_is_causal_skip=False))
    assert step[0, 0, 0].tolist() == [9, 9]


def test_a_decorator_does_not_hide_what_a_paged_cache_takes():
    def decorated(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs)

        return wrapper

    class Older:
        @decorated
        def update(self, key_states, value_states, layer_idx, read_index, write_index):
            pass

    class Newer:
        @decorated
        def update(self, key_states, value_states, layer_idx, kwargs):
            pass

    assert not attention._update_takes_kwargs(Older)
    assert attention._update_takes_kwargs(Newer)
