"""Variant.plot: what is drawn is what kernels do, and what the mask says of every pair."""

import builtins
import doctest
import math
import struct
import zlib

import kiln
import numpy as np
import pytest
import torch
from kiln import jit, variants
from kiln.flex.plan import bound_variant

WINDOW = jit.Variant("window", params={"w": "i32"}, mask="kv <= q && q - kv < w")
# Its text says of whole tiles that no later key is visible, and nothing else.
UNREAD = jit.Variant(
    "unread", tensors={"low": "i32[h, kv]"}, mask="kv == q || (kv <= q && kv >= low)"
)


def visible(seq_q, seq_kv, mask):
    kv = np.arange(seq_kv)[None, :]
    q = np.arange(seq_q)[:, None] + seq_kv - seq_q
    return np.broadcast_to(mask(q, kv), (seq_q, seq_kv))


def kinds_of(shown, rows, block_kv):
    """What a kernel would do that knew every pair."""

    def kind(part, cut):
        return "skip" if not part.any() else "full" if part.all() and not cut else "partial"

    return [
        [
            kind(shown[first : last + 1, kv : kv + block_kv], kv + block_kv > shown.shape[1])
            for kv in range(0, shown.shape[1], block_kv)
        ]
        for first, last in rows
    ]


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_a_window_is_drawn_as_its_pairs_say(arch):
    drawn = WINDOW(w=70).plot(300, 420, None, arch=arch, heads=8, heads_kv=2, batch=64)
    assert drawn["path"] == ("sm_90a" if arch == "sm_90a" else "portable")
    shown = visible(300, 420, lambda q, kv: (kv <= q) & (q - kv < 70))
    assert drawn["kinds"] == kinds_of(shown, drawn["rows"], drawn["tile"][1])
    flat = [kind for row in drawn["kinds"] for kind in row]
    assert drawn["tiles"] == len(flat) and drawn["skip"] == flat.count("skip") > 0
    assert drawn["share"] == pytest.approx(1 - drawn["skip"] / len(flat))
    assert drawn["visible"] == pytest.approx(shown.mean())


def test_other_tiles_and_masks_beside_the_variants():
    drawn = WINDOW(w=200).plot(240, 240, None, tile=(48, 32), window=(60, -1), causal=True)
    assert drawn["tile"] == (48, 32) and [row for row, _ in drawn["rows"]] == [0, 48, 96, 144, 192]
    shown = visible(240, 240, lambda q, kv: (kv <= q) & (q - kv <= 60))
    assert drawn["kinds"] == kinds_of(shown, drawn["rows"], 32)


def test_what_intervals_cannot_decide_shows():
    low = torch.zeros(1, 128, dtype=torch.int32)
    low[:, :64] = 1000  # hides the first keys from all
    drawn = UNREAD(low=low).plot(128, 128, None, tile=(64, 64))
    assert drawn["kinds"] == [["partial", "skip"], ["empty", "partial"]]
    assert (drawn["partial"], drawn["empty"], drawn["whole"]) == (3, 1, 0)
    low[:] = 0
    drawn = UNREAD(low=low).plot(128, 128, None, tile=(64, 64))
    assert drawn["kinds"] == [["partial", "skip"], ["whole", "partial"]]


def test_bounds_of_documents_leave_nothing_undecided():
    ids = torch.tensor([0] * 128 + [1] * 64 + [2] * 192, dtype=torch.int32)[None]
    for bounds in (None, variants.document_bounds(ids)):
        drawn = variants.documents(ids, bounds).plot(384, 384, None, causal=True, tile=(64, 64))
        assert (drawn["empty"], drawn["whole"], drawn["wrong"]) == (0, 0, 0)
        assert drawn["full"] == 4


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_tensors_that_a_callable_captures_skip_tiles(dtype):
    document = torch.tensor([0] * 128 + [1] * 64 + [2] * 192, dtype=dtype)

    def causal_in_document(b, h, q, kv):
        return (document[q] == document[kv]) & (q >= kv)

    drawn = bound_variant(None, causal_in_document).plot(384, 384, None, tile=(64, 64))
    assert (drawn["empty"], drawn["whole"], drawn["wrong"], drawn["full"]) == (0, 0, 0, 4)


def test_a_template_file_that_is_wrong_shows(tmp_path):
    path = tmp_path / "wrong.cuh"
    path.write_text(
        "struct UserVariant : kiln::VariantDefaults {\n"
        "  static constexpr bool kMasks = true;\n"
        "  __device__ bool keep(const kiln::Position& at) const { return at.kv <= at.q; }\n"
        "  __device__ kiln::Tile tile(int, int q_last, int kv, int) const {\n"
        "    return kv >= q_last / 2 ? kiln::Tile::skip : kiln::Tile::full;\n  }\n};\n"
    )
    drawn = jit.Variant("wrong", file=path).plot(128, 128, None, tile=(64, 64))
    assert drawn["kinds"] == [["wrong", "skip"], ["full", "wrong"]]


@pytest.mark.parametrize("arch, length", [("sm_90a", 300), ("sm_80", 200)])
def test_kernels_read_the_tiles_that_are_drawn(arch, length):
    """A key that is NaN reaches the rows whose tiles are visited, and no others."""
    low = torch.zeros(1, length, dtype=torch.int32)
    low[:, :150] = 1000
    bound = UNREAD(low=low)
    heads, heads_kv = 72, 12  # tiles enough that no two blocks share one's keys
    drawn = bound.plot(length, length, None, arch=arch, head_dim=64, heads=heads, heads_kv=heads_kv)
    block_kv = drawn["tile"][1]
    assert drawn["path"] == ("sm_90a" if arch == "sm_90a" else "portable")
    assert drawn["empty"] > 0 and drawn["skip"] > 0
    torch.manual_seed(0)
    q = torch.randn(1, length, heads, 64, dtype=torch.bfloat16)
    k, v = torch.randn(2, 1, length, heads_kv, 64, dtype=torch.bfloat16)
    for tile in range(len(drawn["kinds"][0])):
        poisoned = v.clone()
        poisoned[:, tile * block_kv] = math.nan
        with kiln.device(f"emulator:{arch}"):
            out = jit.flash_attention(q, k, poisoned, variant=bound)
        reached = out[0, :, 0].isnan().any(-1)
        for (first, last), kinds in zip(drawn["rows"], drawn["kinds"]):
            assert reached[first : last + 1].all() == (kinds[tile] != "skip")
            assert reached[first : last + 1].any() == (kinds[tile] != "skip")


def test_heads_and_sequences_have_pictures_of_their_own():
    blocks = torch.zeros(2, 4, 4, dtype=torch.bool)
    blocks[0, :, 0] = blocks[1, :, 3] = True
    sparse = variants.block_sparse(blocks, 64)
    for head, row in enumerate((["full", "skip", "skip", "skip"], ["skip"] * 3 + ["full"])):
        drawn = sparse.plot(256, 256, None, heads=2, head=head, tile=(64, 64))
        assert drawn["kinds"] == [row] * 4
    shorter = jit.Variant("shorter", tensors={"length": "i32[b]"}, mask="kv < length")
    bound = shorter(length=torch.tensor([64, 128], dtype=torch.int32))
    kinds = [bound.plot(64, 128, None, sequence=b, tile=(64, 64))["kinds"] for b in (0, 1)]
    assert kinds == [[["full", "skip"]], [["full", "full"]]]


def png_of(path):
    """(width, height, what each chunk holds)."""
    data, chunks, at = path.read_bytes(), {}, 8
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0] == zlib.crc32(
            kind + body
        )
        chunks[kind], at = body, at + 12 + size
    return *struct.unpack(">II", chunks[b"IHDR"][:8]), chunks


def test_a_picture_without_matplotlib(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    drawn = WINDOW(w=70).plot(256, 192, tmp_path / "mask.png", tile=(64, 64))
    width, height, chunks = png_of(tmp_path / "mask.png")
    assert (width, height) == (3 * 120, 4 * 120)
    lines = zlib.decompress(chunks[b"IDAT"])
    names = ("skip", "partial", "full", "empty", "whole", "wrong")
    kinds = [[names[lines[(width + 1) * 120 * row + 1 + 120 * column]] for column in range(3)]
             for row in range(4)]  # fmt: skip
    assert kinds == drawn["kinds"]
    assert b"window: tiles of 64 queries and 64 keys" in chunks[b"tEXt"]


def test_a_picture_of_matplotlib(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: it draws the axes")
    WINDOW(w=70).plot(256, 192, tmp_path / "mask.png")
    width, height, _ = png_of(tmp_path / "mask.png")
    assert (width, height) == (640, 600)


def test_the_docstring():
    examples = doctest.DocTestParser().get_doctest(jit.Variant.plot.__doc__, {}, "plot", None, 0)
    assert examples.examples and doctest.DocTestRunner().run(examples).failed == 0


def test_what_cannot_be_drawn():
    for arguments, message in [
        ({"seq_q": 0}, "seq_q must be from 1 to 65536, got 0"),
        ({"tile": (64, 8192)}, "tile must be from 1 to 4096, got 8192"),
        ({"head": 3}, "head must be less than the 1 that the call has, got 3"),
        ({"arch": "sm_70"}, "sm_70"),
    ]:
        with pytest.raises(ValueError, match=message):
            WINDOW(w=1).plot(**{"seq_q": 64, "seq_kv": 64, "path": None, **arguments})
    with pytest.raises(ValueError, match="needs its values"):
        WINDOW.plot(64, 64, None)
