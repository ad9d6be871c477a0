"""Faults of the templates of code at every logit: rows of template_faults.py."""

from planted_fault import FOLDER, fault

SOFTCAP = f"{FOLDER}/test_attention.py::test_softcap_without_an_instruction_for_tanh"
TILTED = f"{FOLDER}/test_attention_tilt.py::test_tilted_logits"
SM90_TILTED = f"{TILTED} -k f32"
CAPPED = f"{FOLDER}/test_attention_cap.py::"
BIASED = f"{FOLDER}/test_variant_library.py::test_a_bias_by_distance"
SM90_FOLDER = "attention/sm90/"

LOGIT_FAULTS = [
    fault("softcap-takes-scores-for-logits", "attention/mask.cuh",
          "largest * scale > variant.narrow_limit()",
          "largest > variant.narrow_limit()", SOFTCAP),
    fault("softcap-loses-its-factor", "attention/mask.cuh",
          "kLeavesFactor ? 1.0f : variant.factor_after()", "1.0f", SOFTCAP),
    fault("sm90-softcap-loses-its-factor", f"{SM90_FOLDER}main_loop.cuh",
          "exponent_scales<kTransforms>(sizes, args_.call.variant().factor_after())",
          "exponent_scales<kTransforms>(sizes, 1.0f)",
          f"{FOLDER}/test_attention_sm90.py::test_options -k softcap-scale"),
    fault("alibi-of-the-past-adds-the-distance", "attention/builtin_variants.cuh",
          "fmaf(slope, at.column, -slope * at.row_distance)",
          "fmaf(slope, at.column, slope * at.row_distance)",
          f"{FOLDER}/test_attention.py::test_alibi_of_a_causal_call"),
    fault("sm90-tilt-has-the-sign-of-a-positive-scale", f"{SM90_FOLDER}load.cuh",
          "scale < 0.0f ? -growth : growth", "growth", SM90_TILTED),
    fault("sm90-tilt-is-one-bfloat16", f"{SM90_FOLDER}tilt.cuh",
          "{pack2<bf16>(high, middle), pack2<bf16>(half - high - middle, 0.0f), 0, 0}",
          "{pack2<bf16>(high, 0.0f), 0, 0, 0}", SM90_TILTED),
    fault("sm90-growth-without-a-fence", f"{SM90_FOLDER}tilt.cuh",
          "    fence_async_proxy();\n  }\n", "  }\n", SM90_TILTED),
    fault("sm90-second-rows-shift-as-the-first", f"{SM90_FOLDER}main_loop.cuh",
          "keys_.kv_first - first_q_ - row;", "keys_.kv_first - first_q_;", SM90_TILTED),
    fault("sm90-weights-without-the-shift", "attention/softmax.cuh",
          "finite(row[r].max) - shift_of(scale, r)", "finite(row[r].max)", SM90_TILTED),
    fault("sm90-walk-back-ends-at-once", f"{SM90_FOLDER}walk.cuh",
          "Config::kTilts ? first : last)", "last)", f"{TILTED}_of_more_than_32_tiles"),
    fault("cap-loses-its-sign", "attention/logit_cap.cuh",
          "a < 0.0f ? -b.value : b.value", "b.value",
          f"{CAPPED}test_factors_of_any_sign_and_zero -k few"),
    fault("cap-that-is-no-number-is-none", "attention/logit_cap.cuh",
          ": 0.0f * a;", ": 0.0f;", f"{CAPPED}test_what_is_not_a_number_stays_so -k few"),
    fault("far-from-a-tile's-first-key", "attention/mask.cuh",
          "row.q - last >= distance", "row.q - first >= distance", BIASED),
    fault("sm90-far-from-a-tile's-first-key", f"{SM90_FOLDER}main_loop.cuh",
          "ahead + Shape::kBlockKv - 1 <= -far", "ahead <= -far", BIASED),
    fault("sm90-far-from-a-warp's-first-row", f"{SM90_FOLDER}main_loop.cuh",
          "ahead - 15 >= far", "ahead >= far", BIASED),
    fault("sm90-second-rows-have-the-first-rows'-biases", "attention/mask.cuh",
          "scores.at(1, c + 2 + i) = fmaf(scores.at(1, c + 2 + i), scale, bias)",
          "scores.at(1, c + 2 + i) = fmaf(scores.at(1, c + 2 + i), scale,\n"
          "                                       variant.bias_at(at, distance + (c + 2) * 4 + i))",
          BIASED),
    fault("bounds-of-the-first-block-alone", "attention/element_bounds.cuh",
          "__ldg(entry + min(block + i, last))", "__ldg(entry + first)",
          f"{FOLDER}/test_variants_elements.py::test_tiles_follow_from_elements -k shared"),
    fault("bounds-without-the-last-elements", "bound_elements/bound_elements.cuh",
          "min(first + 32, last) * tensor.stride", "min(first, last) * tensor.stride",
          f"{FOLDER}/test_variants_elements.py::test_elements_are_read_anew_at_every_call"),
    fault("second-key-of-two-is-where-the-first-is", "attention/mask.cuh",
          "(Map::col(c + i) - Map::col(0)) < count", "(Map::col(c) - Map::col(0)) < count",
          f"{FOLDER}/test_flex_blocks.py::test_the_blocks_of_a_mask"),
]  # fmt: skip
