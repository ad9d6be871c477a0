"""Faults of the templates of norms: rows of template_faults.py."""

from planted_fault import FOLDER, fault

NORM = f"{FOLDER}/test_norm.py::"
NORM_ROWS = f"{NORM}test_more_rows_than_fit_the_device"
NORM_WIDE = f"{NORM}test_few_wide_rows -k layer_norm-bf16"
NORM_CLUSTER = f"{NORM}test_wide_rows_that_clusters_share -k 40008"

NORM_FAULTS = [
    fault("norm-stage-stays", "norm/norm.cuh",
          "stage = stage + 1 == kStages ? 0 : stage + 1;", "stage = 0;", NORM_ROWS),
    fault("norm-sets-of-slots-do-not-take-turns", "norm/norm.cuh",
          "finish(values, turn);", "finish(values, 0);", f"{NORM_ROWS} -k rms_norm"),
    fault("norm-last-part-counts-as-whole", "norm/split.cuh",
          "static_cast<float>(rest < Shape::kCtaColumns ? rest : Shape::kCtaColumns);",
          "static_cast<float>(Shape::kCtaColumns);", NORM_WIDE),
    fault("norm-last-turn-of-a-cluster-counts-as-whole", "norm/exchange.cuh",
          "rank == last ? rest : 0);", "rank == last ? kTurn : 0);",
          NORM_CLUSTER),
    fault("norm-parts-without-the-distance-of-their-means", "norm/statistics.cuh",
          "squares += one.squares + one.count * distance * distance;", "squares += one.squares;",
          NORM_WIDE),
    fault("norm-sums-are-rounded-before-they-are-normed", "norm/lane.cuh",
          "vectors[v].set(sums);",
          "Pack<typename Config::Input, Config::kVector> rounded;\n"
          "rounded.set(sums);\n"
          "for (int i = 0; i < Config::kVector; ++i) sums[i] = rounded[i];\n"
          "vectors[v].set(sums);",
          f"{NORM}test_dtypes -k rms_norm-bf16"),
    fault("norm-offset-of-every-result", "norm/lane.cuh",
          "y *= weight[i] + params_.weight_offset;", "y = y * weight[i] + params_.weight_offset;",
          f"{NORM}test_options -k rms_norm"),
    fault("norm-residual-has-the-strides-of-x", "norm/lane.cuh",
          "load(loaded.residual, params_.residual, params_.residual_rows, row);",
          "load(loaded.residual, params_.residual, params_.x_rows, row);",
          f"{NORM}test_strides -k rms_norm"),
    fault("norm-sums-have-the-strides-of-out", "norm/lane.cuh",
          "place<Input>(params_.residual_out, params_.residual_out_rows, row);",
          "place<Input>(params_.residual_out, params_.out_rows, row);",
          f"{NORM}test_strides -k rms_norm"),
]  # fmt: skip
