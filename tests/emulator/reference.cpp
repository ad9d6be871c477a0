#include "tests/emulator/reference.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace kiln::testing {
namespace {

// Counts positions from a key to a query.
int distance(const AttentionReference& p, int row, int kv) {
  if (p.positions.empty()) return row + p.len_kv - p.len_q - kv;
  return row + p.total - p.len_q - p.positions[static_cast<std::size_t>(kv)];
}

bool is_visible(const AttentionReference& problem, int row, int kv) {
  const int behind = distance(problem, row, kv);
  if (problem.traits.mask == Mask::causal) return behind >= 0;
  if (problem.traits.mask == Mask::none) return true;
  return behind <= problem.window_left && -behind <= problem.window_right;
}

// What a mask adds to a logit.
double mask_at(const AttentionReference& p, int h, int row, int kv) {
  const float value = p.attn_mask[static_cast<std::size_t>((h * p.len_q + row) * p.len_kv + kv)];
  if (p.traits.attn_mask != DType::boolean) return value;
  return value != 0 ? 0 : -std::numeric_limits<double>::infinity();
}

double activated(Activation activation, double x) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      return std::max(x, 0.0);
    case Activation::gelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::silu:
    case Activation::swiglu:
      return x / (1 + std::exp(-x));
    case Activation::geglu:
      return activated(Activation::gelu, x);
    case Activation::geglu_tanh:
      return activated(Activation::gelu_tanh, x);
  }
  return x;
}

double dot(const float* a, const float* b, int size) {
  double sum = 0;
  for (int i = 0; i < size; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

double scale_at(const std::vector<float>& scales, int index) {
  if (scales.empty()) return 1;
  return scales[scales.size() == 1 ? 0 : static_cast<std::size_t>(index)];
}

}  // namespace

std::vector<double> reference(const AttentionReference& p) {
  const int dim = p.traits.head_dim, dim_v = p.traits.head_dim_v;
  std::vector<double> out(static_cast<std::size_t>(p.len_q * p.heads * dim_v));
  std::vector<double> logits(static_cast<std::size_t>(p.len_kv));
  for (int row = 0; row < p.len_q; ++row) {
    for (int h = 0; h < p.heads; ++h) {
      const int h_kv = h / (p.heads / p.heads_kv);
      const auto at = static_cast<std::size_t>(h);
      double top = p.sinks.empty() ? -std::numeric_limits<double>::infinity() : p.sinks[at];
      for (int kv = 0; kv < p.len_kv; ++kv) {
        double& logit = logits[static_cast<std::size_t>(kv)];
        logit = p.scale * dot(&p.q[static_cast<std::size_t>((row * p.heads + h) * dim)],
                              &p.k[static_cast<std::size_t>((kv * p.heads_kv + h_kv) * dim)], dim);
        if (p.softcap > 0) logit = p.softcap * std::tanh(logit / p.softcap);
        if (!p.slopes.empty()) logit -= p.slopes[at] * std::abs(distance(p, row, kv));
        if (!p.attn_mask.empty()) logit += mask_at(p, h, row, kv);
        if (!is_visible(p, row, kv)) logit = -std::numeric_limits<double>::infinity();
        top = std::max(top, logit);
      }
      double sum = p.sinks.empty() ? 0 : std::exp(p.sinks[at] - top);
      double* const o = &out[static_cast<std::size_t>((row * p.heads + h) * dim_v)];
      for (int kv = 0; kv < p.len_kv; ++kv) {
        const double logit = logits[static_cast<std::size_t>(kv)];
        const double weight =
            logit == -std::numeric_limits<double>::infinity() ? 0 : std::exp(logit - top);
        sum += weight;
        const float* const v = &p.v[static_cast<std::size_t>((kv * p.heads_kv + h_kv) * dim_v)];
        for (int d = 0; d < dim_v; ++d) o[d] += weight * v[d];
      }
      for (int d = 0; d < dim_v && sum > 0; ++d) o[d] /= sum;
    }
  }
  return out;
}

namespace {

// The factors of a row of a and of each column of b for one of K, which is 1 unless the scales are
// of blocks.
struct BlockScales {
  const GemmReference& p;
  int groups = (p.k + 127) / 128, columns = p.traits.scale_b == Scale::blocks ? 128 : 1;

  double of_row(int row, int k) const {
    if (!p.traits.block_scaled()) return 1;
    return p.scale_a[static_cast<std::size_t>(row * groups + k / 128)];
  }
  double of_column(int k, int column) const {
    if (!p.traits.block_scaled()) return 1;
    const int in_row = (p.n + columns - 1) / columns;
    return p.scale_b[static_cast<std::size_t>(k / 128 * in_row + column / columns)];
  }
};

}  // namespace

std::vector<double> reference(const GemmReference& p) {
  const bool gated = p.traits.gate != Gate::none, halves = p.traits.gate == Gate::halves;
  const int columns = gated ? p.n / 2 : p.n;
  std::vector<double> out(static_cast<std::size_t>(p.m * columns));
  std::vector<double> row(static_cast<std::size_t>(p.n));
  const BlockScales blocks{p};
  for (int i = 0; i < p.m; ++i) {
    std::fill(row.begin(), row.end(), 0.0);
    for (int x = 0; x < p.k; ++x) {
      const double a = p.a[static_cast<std::size_t>(i * p.k + x)] * blocks.of_row(i, x);
      const float* const b = &p.b[static_cast<std::size_t>(x * p.n)];
      for (int j = 0; j < p.n; ++j) {
        row[static_cast<std::size_t>(j)] += a * b[j] * blocks.of_column(x, j);
      }
    }
    const auto sum_of = [&](int j) {
      double sum = row[static_cast<std::size_t>(j)];
      if (!p.traits.block_scaled()) sum *= scale_at(p.scale_a, i) * scale_at(p.scale_b, j);
      return p.bias.empty() ? sum : sum + p.bias[static_cast<std::size_t>(j)];
    };
    for (int j = 0; j < columns; ++j) {
      const auto at = static_cast<std::size_t>(i * columns + j);
      out[at] = activated(p.traits.activation, sum_of(gated && !halves ? 2 * j : j));
      if (gated) out[at] *= sum_of(halves ? columns + j : 2 * j + 1);
      if (!p.residual.empty()) out[at] += p.residual[at];
    }
  }
  return out;
}

std::vector<double> sums(const NormReference& p) {
  std::vector<double> sums(p.x.begin(), p.x.end());
  for (std::size_t i = 0; i < p.residual.size(); ++i) sums[i] += p.residual[i];
  return sums;
}

std::vector<double> reference(const NormReference& p) {
  std::vector<double> out = sums(p);
  const auto columns = static_cast<std::size_t>(p.columns);
  for (int row = 0; row < p.rows; ++row) {
    double* const s = &out[static_cast<std::size_t>(row) * columns];
    double mean = 0, squares = 0;
    if (p.traits.kind == NormKind::layer) {
      for (std::size_t i = 0; i < columns; ++i) mean += s[i] / p.columns;
    }
    for (std::size_t i = 0; i < columns; ++i) squares += (s[i] - mean) * (s[i] - mean);
    const double scale = 1 / std::sqrt(squares / p.columns + p.eps);
    for (std::size_t i = 0; i < columns; ++i) {
      double y = (s[i] - mean) * scale;
      if (!p.weight.empty()) y *= static_cast<double>(p.weight[i]) + p.weight_offset;
      if (!p.bias.empty()) y += p.bias[i];
      s[i] = activated(p.traits.activation, y);
    }
  }
  return out;
}

std::vector<double> merged_lse(const MergeReference& p) {
  const auto rows = static_cast<std::size_t>(p.rows);
  std::vector<double> lse(rows, 0);
  for (std::size_t i = 0; i < p.lses.size(); ++i) {
    lse[i % rows] += std::exp(static_cast<double>(p.lses[i]));
  }
  for (double& sum : lse) sum = std::log(sum);
  return lse;
}

std::vector<double> reference(const MergeReference& p) {
  const std::vector<double> lse = merged_lse(p);
  const auto rows = static_cast<std::size_t>(p.rows), columns = static_cast<std::size_t>(p.columns);
  std::vector<double> out(rows * columns, 0);
  for (std::size_t part = 0; part < static_cast<std::size_t>(p.parts); ++part) {
    for (std::size_t row = 0; row < rows; ++row) {
      const double weight = std::exp(p.lses[part * rows + row] - lse[row]);
      for (std::size_t i = 0; i < columns; ++i) {
        out[row * columns + i] += weight * p.outs[(part * rows + row) * columns + i];
      }
    }
  }
  for (std::size_t i = 0; i < out.size() && !p.sinks.empty(); ++i) {
    const std::size_t row = i / columns;
    const double sink = p.sinks[row % static_cast<std::size_t>(p.heads)];
    out[i] /= 1 + std::exp(sink - lse[row]);
  }
  return out;
}

std::vector<double> reference(const AppendReference& p) {
  std::vector<double> out(p.x.begin(), p.x.end());
  const auto dim = static_cast<std::size_t>(p.traits.head_dim);
  const auto angles = static_cast<std::size_t>(p.traits.rotary / 2);
  for (std::size_t row = 0; row < out.size() / dim; ++row) {
    double* const head = &out[row * dim];
    double squares = 0;
    for (std::size_t i = 0; i < dim; ++i) squares += head[i] * head[i];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(dim) + p.eps);
    for (std::size_t i = 0; i < p.weight.size(); ++i) head[i] *= scale * p.weight[i];
    const auto& positions = p.positions.empty() ? p.slots : p.positions;
    const auto position = static_cast<std::size_t>(positions[row / static_cast<unsigned>(p.heads)]);
    for (std::size_t i = 0; i < angles; ++i) {
      double& a = head[p.traits.interleaved ? 2 * i : i];
      double& b = head[p.traits.interleaved ? 2 * i + 1 : i + angles];
      const double cos = p.cos[position * angles + i], sin = p.sin[position * angles + i];
      const double turned = a * cos - b * sin;
      b = b * cos + a * sin;
      a = turned;
    }
  }
  return out;
}

std::vector<double> cached(const AppendReference& p, bool computes) {
  const std::vector<double> rows =
      computes ? reference(p) : std::vector<double>(p.x.begin(), p.x.end());
  std::vector<double> cache(rows.size());
  const std::size_t row = rows.size() / static_cast<std::size_t>(p.tokens);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto slot = static_cast<std::size_t>(p.slots[i / row]);
    cache[slot * row + i % row] = rows[i] / p.scale;
  }
  return cache;
}

}  // namespace kiln::testing
