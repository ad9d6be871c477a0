"""What a mask says of tiles, from its text: never wrong, and exact for the usual masks.

The functions are the ones that kernels call, compiled for the host; the judge is the mask itself,
evaluated for every pair of a tile.
"""

import subprocess

from host_masks import build, has_intervals, rendered, struct_of
from mask_grammar import Grammar
from seeds import seeded

MAIN = """
struct Draw {
  unsigned long long state;
  int operator()(int low, int high) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const unsigned long long count = static_cast<unsigned long long>(high) - low + 1;
    return low + static_cast<int>((state >> 33) % count);
  }
};
int failures = 0;

// Tiles of random sequences. `exact`: the answer for every one must be the best one.
template <class Mask>
void check(const char* text, Draw draw, int tiles, bool exact, void (*bind)(Draw&, Mask&)) {
  int decided = 0;
  long visited = 0, needed = 0;
  for (int i = 0; i < tiles; ++i) {
    Mask mask;
    std::memset(static_cast<void*>(&mask), 0, sizeof mask);
    bind(draw, mask);
    const int len_kv = draw(1, 400), len_q = draw(1, draw(0, 3) ? len_kv : 400);
    const int shift = len_kv - len_q, b = draw(0, 3);
    const int first = draw(0, len_q - 1), last = min(first + draw(0, 63), len_q - 1);
    const int kv_first = draw(0, len_kv - 1), kv_last = min(kv_first + draw(0, 63), len_kv - 1);
    const kiln::TileRows rows{b, first + shift, last + shift, len_q, len_kv};
    const kiln::Tile tile = mask.tile(rows, kv_first, kv_last);
    const kiln::Range range = mask.kv_range(rows);
    const bool asks = tile != kiln::Tile::partial || mask.asks_keep(rows, kv_first, kv_last);
    bool any = false, all = true, outside = false, by_row = false;
    for (int row = first; row <= last; ++row) {
      for (int kv = kv_first; kv <= kv_last; ++kv) {
        const int q = row + shift;
        const kiln::Position at{b,  draw(0, 7), draw(0, 1), row, q,
                                kv, len_q,      len_kv,     static_cast<float>(q - kv)};
        const bool kept = mask.keep(at);
        any |= kept, all &= kept;
        if constexpr (Mask::kMasksByRange) {
          const kiln::Range run = mask.visible(at);
          by_row |= kept != (run.begin <= kv && kv < run.end);
        } else if constexpr (Mask::kShowsRuns) {
          kiln::Position first_key = at;
          first_key.kv = kv_first;
          const kiln::Range run = mask.visible(first_key);
          by_row |= !asks && kept != (run.begin <= kv && kv < run.end);
        }
        outside |= kept && !range.contains(kv);
      }
    }
    const bool wrong = tile == kiln::Tile::skip ? any : tile == kiln::Tile::full ? !all : false;
    const bool best = tile == (!any ? kiln::Tile::skip : all ? kiln::Tile::full
                                                              : kiln::Tile::partial);
    decided += tile != kiln::Tile::partial;
    visited += tile != kiln::Tile::skip, needed += any;
    if ((wrong || outside || by_row || (exact && !best)) && ++failures < 10) {
      std::printf("%s: %s of q %d..%d, kv %d..%d, len_q %d, len_kv %d, first word %d: said %d, "
                  "any %d, all %d, range %d..%d\\n",
                  text, wrong ? "wrong" : outside ? "range" : by_row ? "row" : "not exact",
                  rows.q_first, rows.q_last, kv_first, kv_last, len_q, len_kv,
                  *reinterpret_cast<const int*>(&mask), static_cast<int>(tile), any, all,
                  range.begin, range.end);
    }
  }
  std::printf("%s: decided %d of %d, visited %ld for %ld\\n", text, decided, tiles, visited,
              needed);
}
"""


def program(folder, masks, exact, tiles):
    """`masks`: [(definition, C++ that fills mask.arguments with draw())]; the first `exact` of them
    must be exact."""
    generator = seeded("tiles")
    sources = [one["source"] for one in rendered([definition for definition, _ in masks])]
    assert all(has_intervals(source) for source in sources)
    calls = ""
    for number, (definition, fill) in enumerate(masks):
        seed = generator.getrandbits(60)
        kind = f"v{number}::UserVariant"
        calls += (
            f'  check<{kind}>("{definition["mask"]}", {{{seed}ull}}, {tiles},'
            f" {int(number < exact)},"
            f" [](Draw& draw, {kind}& mask) {{ {fill} }});\n"
        )
    main = MAIN + ELEMENTS_BOUND + "int main() {\n" + calls + "  return failures != 0;\n}\n"
    return build(folder, sources, main)


def run(path):
    result = subprocess.run([path], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout[-4000:]
    return result.stdout


INT = {name: [name, "i32"] for name in ("w", "c", "d", "g", "left", "right")}
DRAWN = {"w": "draw(-2, 200)", "c": "draw(1, 150)", "d": "draw(1, 40)", "g": "draw(-3, 150)",
         "left": "draw(0, 150)", "right": "draw(0, 150)"}  # fmt: skip
EXACT = [
    "kv <= q",
    "kv <= q && q - kv < w",
    "q >= kv && kv > q - w",
    "kv <= q || kv < g",
    "q / c == kv / c && kv <= q",
    "row / c == (kv - (len_kv - len_q)) / c && kv >= len_kv - len_q && row >= 0",
    "kv / c <= q / c",
    "(q - kv) % d == 0 && q - kv < w && kv <= q",
    "kv < g || q < g || abs(q - kv) < w",
    "at.distance >= 0 && at.distance <= left",
    "q - kv <= left && kv - q <= right",
    "kv <= min(q, g) || max(kv, g) < q - left",
    "!(kv > q || (q - kv >= w && kv >= g))",
    "kv < g ? true : kv <= q && q - kv < w",
    "(kv >> 4) == (q >> 4) and q >= 0",
    "kv <= q == true",
    "abs(kv - q) <= left",
]
# Here an interval forgets that its operands depend on each other, so that some tiles more are
# visited.
NEAR = [
    "max(q, kv) - min(q, kv) <= left || kv < g",
    "q / c == kv / c && (q - kv) % 2 == 0 && kv <= q && q - kv < w",
    "(q ^ kv) < 64 && kv <= q",
    "q / c - kv / c <= 1 && kv <= q && (kv % d == 0 || q - kv < left)",
    "kv <= q + (row < 70 && kv < 90)",
    "bool(q) < kv",
    "min(q, bool(kv)) + kv <= q",
    "kv <= bool(kv - 70) + q && (bool)row <= q",
]


def definition_of(text):
    names = [name for name in INT if f" {name} " in f" {text} ".replace("(", " ").replace(")", " ")]
    fill = "".join(f"mask.arguments.{name}.value = {DRAWN[name]}; " for name in names)
    return {"mask": text, "params": [INT[name] for name in names]}, fill


def test_the_usual_masks_are_exact(tmp_path):
    masks = [definition_of(text) for text in EXACT + NEAR]
    lines = run(program(tmp_path, masks, len(EXACT), 600)).splitlines()
    assert len(lines) == len(masks)
    for line in lines:
        visited, needed = map(int, line.split("visited ")[1].split(" for "))
        assert needed > 100 and visited <= 1.5 * needed, line


FILL = """
  const int kind = draw(0, 5);
  mask.arguments.x.value = kind == 0 ? draw(-2147483647 - 1, 2147483646) : draw(-300, 300);
  mask.arguments.y.value = kind == 1 ? 2147483647 - draw(0, 300) : draw(-300, 300);
  mask.arguments.n.value = kind == 2 ? draw(1, 2147483646) : draw(1, 90);
  mask.arguments.s.value = kind == 3 ? 3e38f : static_cast<float>(draw(-900, 900)) / 4.0f;
  static int lengths[4];
  for (int& length : lengths) length = draw(0, 300);
  mask.arguments.mine.data.value = lengths;
  mask.arguments.mine.strides[0].value = 1;
"""
TABLES = {"own_1": "int", "its_0": "kiln::i64", "flag_0": "bool"}


def fill_of(source):
    """FILL, and the tables' elements, with the bounds of those that are read at positions."""
    fill = FILL + "kiln::ElementBounds unused;\n"
    for name, kind in TABLES.items():
        if f"> {name[:-2]};" not in source:
            continue
        is_bounded = f"kiln::ElementBounds {name};" in source
        bounds = f"mask.element_bounds.{name}" if is_bounded else "unused"
        fill += f"static Elements<{kind}> {name}; "
        fill += f"{name}.bind(draw, mask.arguments.{name[:-2]}, {bounds});\n"
    return fill


# Runs of equal elements, as documents have; of one call in four, no bounds are known.
ELEMENTS_BOUND = """
template <class T>
struct Elements {
  T values[4][512];
  int2 bounds[4][8];

  template <class Table>
  void bind(Draw& draw, Table& table, kiln::ElementBounds& of) {
    constexpr bool kEntries = sizeof table.extents / sizeof table.extents[0] == 2;
    const int length = draw(1, 512), run = draw(1, 200), most = draw(1, 300);
    for (auto& entry : values) {
      T value = static_cast<T>(draw(-3, most));
      for (int i = 0; i < length; ++i) {
        if (draw(0, run) == 0) value = static_cast<T>(draw(-3, most));
        entry[i] = value;
      }
    }
    const int blocks = kiln::bounded_blocks(length);
    for (int entry = 0; entry < 4; ++entry) {
      for (int block = 0; block < blocks; ++block) {
        int2& all = bounds[entry][block] = {2147483647, -2147483647 - 1};
        for (int i = block * 64; i < min(length, (block + 1) * 64); ++i) {
          all.x = min(all.x, static_cast<int>(values[entry][i]));
          all.y = max(all.y, static_cast<int>(values[entry][i]));
        }
      }
    }
    table.data.value = values[0];
    table.strides[kEntries].value = 1, table.extents[kEntries].value = length;
    if (kEntries) table.strides[0].value = 512, table.extents[0].value = 4;
    of.data.value = draw(0, 3) ? bounds[0] : nullptr;
    of.blocks.value = blocks, of.entry_blocks.value = kEntries ? 8 : 0;
  }
};
"""


def test_random_masks_are_never_wrong(tmp_path):
    grammar = Grammar(seeded("masks"))
    types = {
        "params": [["x", "i32"], ["y", "i32"], ["n", "i32"], ["s", "f32"]],
        "tensors": [
            ["mine", "i32[b]"],
            ["own", "i32[*, *]"],
            ["its", "i64[*]"],
            ["flag", "bool[*]"],
        ],
    }
    texts = [grammar.boolean(3) for _ in range(60)] + [grammar.conjunction() for _ in range(20)]
    definitions = [{**types, "mask": text} for text in texts]
    sources = [one["source"] for one in rendered(definitions)]
    masks = [
        (definition, fill_of(source))
        for definition, source in zip(definitions, sources)
        if "kv_range" in source
    ][-42:]
    assert len(masks) == 42 and sum("kShowsRuns = true" in source for source in sources) > 2
    output = run(program(tmp_path, masks, 0, 300))
    decided = sum(int(line.split("decided ")[1].split()[0]) for line in output.splitlines())
    assert decided > 1000, output


ELEMENTS = {"tensors": [["by_head", "bool[h, kv]"], ["its", "f32[b, kv]"], ["table", "i32[*]"],
                        ["weight", "f32[kv]"]]}  # fmt: skip


def test_documents_are_exact_to_blocks(tmp_path):
    """Tiles of other documents than the queries' are skipped, those of the same are shown whole."""
    definition = {"tensors": [["own", "i32[*, *]"]], "mask": "own(b, q) == own(b, kv)"}
    (one,) = rendered([definition])
    assert "compared_range_of" in one["source"] and "cannot be read" not in one["note"]
    fill = fill_of(one["source"]).removeprefix(FILL)
    (line,) = run(program(tmp_path, [(definition, fill)], 0, 3000)).splitlines()
    assert int(line.split("decided ")[1].split()[0]) > 600, line


def test_a_mask_that_cannot_be_read_keeps_its_kernel():
    for text, note in [
        ("by_head", "tensor element 'by_head' cannot be read"),
        ("table(q / 2)", "'table()' cannot be read"),
        ("weight < 0.5f", "tensor element 'weight' cannot be read"),
        ("helper(q, kv) < 3", "'helper()' cannot be read"),
        ("[&] { return kv <= q; }()", "anything from '{' on cannot be read"),
        ("kv <= q, kv < 3", "anything from ',' on cannot be read"),
        ("kv < 3u", "'3u' cannot be read"),
        ("kv * 1ll < 3", "'1ll' cannot be read"),
        ("(unsigned)kv < 3", "anything from 'unsigned' on cannot be read"),
    ]:
        (one,) = rendered([{**ELEMENTS, "mask": text}])
        assert not has_intervals(one["source"])
        assert "is evaluated for every pair: " + note in one["note"]


def test_a_table_hides_the_function_of_its_name():
    for name in "abs", "min", "max":
        index = "kv" if name == "abs" else "b, kv"
        definition = {"tensors": [[name, "i32[*]" if name == "abs" else "i32[*, *]"]]}
        (one,) = rendered([{**definition, "mask": f"{name}({index}) < 3"}])
        assert f"kiln::ElementBounds {name}_" in one["source"], name
        assert "kMasksByRange = true" not in one["source"], name


def test_masks_that_show_each_query_one_run_of_keys_are_applied_so():
    params = [["w", "i32"], ["g", "i32"], ["s", "f32"]]
    by_row = "kv <= row && kv >= g", "q - kv < w && kv <= q", "kv == q", "kv < w && kv - row >= g"
    # Their runs begin at the first key, so that two of them are one run together.
    from_first = (
        "kv <= q", "kv <= q || kv < g", "kv < lengths", "(kv <= q || kv < g) && kv < lengths",
        "kv - row < g or (kv < w and kv <= q)",
    )  # fmt: skip
    first_by_pair = "kv <= q / 2", "kv <= q + w"
    by_pair = "kv > q - w", "kv != q", "kv < h", "kv < s", "kv <= q || kv >= g", "kv <= q || q < g"
    for text in by_row + from_first + first_by_pair + by_pair:
        tensors = [["lengths", "i32[b]"]]
        (one,) = rendered([{"params": params, "tensors": tensors, "mask": text}])
        source = struct_of(one["source"])
        assert ("kMasksByRange = true" in source) == (text in by_row + from_first), text
        begins = text in (*from_first, *first_by_pair, "kv < h")
        assert ("kShowsFirstKeys = true" in source) == begins, text


# Every mask that is applied by runs of keys, with numbers up to the ints' ends.
RUNS = [
    "kv <= q && q - kv < w", "kv - q < w", "kv <= q || kv < w", "kv - row < w", "row - kv <= w",
    "kv - row >= w && kv <= q", "w > kv - row", "w <= q - kv", "kv == w", "q - kv == w",
    "(kv <= q || kv < w) && kv >= g", "kv < 2147483647 && q > w", "row <= w && q - kv > g",
]  # fmt: skip


def test_runs_of_keys_are_right_up_to_the_ends_of_the_ints(tmp_path):
    number = "(draw(0, 1) ? -2147483647 - 1 + draw(0, 500) : 2147483647 - draw(0, 500))"
    masks = []
    for text in RUNS:
        definition, _ = definition_of(text)
        fill = "".join(
            f"mask.arguments.{name}.value = draw(0, 1) ? {number} : draw(-300, 300); "
            for name, _ in definition["params"]
        )
        masks.append((definition, fill))
        (one,) = rendered([definition])
        assert "kMasksByRange = true" in struct_of(one["source"]), text
    run(program(tmp_path, masks, 0, 2000))


def test_what_is_unknown_does_not_hide_the_rest():
    (one,) = rendered([{**ELEMENTS, "mask": "kv <= q && by_head == its"}])
    shows = one["source"].split("may_show")[1].split("may_hide")[0]
    assert "may_be_at_most(" in shows or "may_be_at_least(" in shows
    assert "skipped, and none is known to be shown whole" in one["note"]
    assert "kMasksByRange = true" not in one["source"]  # by_head hides pairs of a query's run
    assert one["note"].endswith("tensor element 'by_head', tensor element 'its' cannot be read")


def test_a_long_expression_ends():
    deep = "q"
    for factor in range(2, 40):
        deep = f"(q + ({deep} * {factor}))"
    (one,) = rendered([{"mask": f"{deep} < kv"}])
    assert len(one["source"]) < 200_000
    (one,) = rendered([{"mask": "(" * 3000 + "kv <= q" + ")" * 3000}])
    assert not has_intervals(one["source"])
