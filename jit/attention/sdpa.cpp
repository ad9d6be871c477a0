#include "jit/attention/sdpa.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "jit/op/checks.h"

namespace kiln {
namespace {

constexpr int kHeads = 2, kLength = 3, kDim = 4;  // dimensions of a view of rank 5

Subject subject(const char* name) { return {kSdpaNames.op, name}; }

// With ones in front, which have a stride of 0. `layout`: what messages say of the dimensions.
TensorView of_rank_5(const char* name, const TensorView& tensor,
                     const char* layout = "[batch.., heads, length, head_dim]",
                     const char* cure = "") {
  check_tensor(subject(name), tensor, -1);
  if (tensor.rank < 2) {
    throw_value(subject(name), std::string("must have 2 to 5 dimensions, ") + layout + ", got " +
                                   shape_text(tensor) + cure);
  }
  // Before anything is computed with its strides; check_attention looks at the address.
  if (!inside_address_space(tensor)) refuse_reach(subject(name), tensor);
  TensorView view = tensor;
  const int added = kMaxRank - tensor.rank;
  for (int i = 0; i < kMaxRank; ++i) {
    const bool is_new = i < added;
    view.shape[i] = is_new ? 1 : tensor.shape[i - added];
    view.strides[i] = is_new ? 0 : tensor.strides[i - added];
  }
  view.rank = kMaxRank;
  return view;
}

// The size that dimension `i` of all views broadcasts to; those of 1 get it, without memory.
// `cure` ends the message of sizes that do not.
std::int64_t broadcast(int i, std::initializer_list<std::pair<const char*, TensorView*>> views,
                       const char* cure = "") {
  std::int64_t size = 1;
  for (auto [name, view] : views) {
    if (view->shape[i] == 1) continue;
    if (size != 1 && view->shape[i] != size) {
      throw_value(subject(name), "has " + std::to_string(view->shape[i]) +
                                     (i == kHeads ? " heads" : " batch entries") +
                                     " where another tensor has " + std::to_string(size) +
                                     "; sizes must be equal, or 1" + cure);
    }
    size = view->shape[i];
  }
  for (auto [name, view] : views) {
    if (view->shape[i] == size) continue;
    view->shape[i] = size;
    view->strides[i] = 0;
  }
  return size;
}

void check_groups(const char* name, std::int64_t heads, std::int64_t heads_kv) {
  if (heads_kv != 0 && heads % heads_kv == 0) return;
  throw_value(subject(name), "has " + std::to_string(heads_kv) +
                                 " heads, which must divide query's " + std::to_string(heads));
}

// Heads as flash_attention takes them: as many of key as of value, which divide query's.
void match_heads(TensorView& query, TensorView& key, TensorView& value, bool enable_gqa) {
  if (enable_gqa) {
    check_groups("key", query.shape[kHeads], key.shape[kHeads]);
    check_groups("value", query.shape[kHeads], value.shape[kHeads]);
  }
  const bool shares_one = key.shape[kHeads] == 1 && value.shape[kHeads] == 1;
  if (shares_one) return;
  if (enable_gqa) {
    broadcast(kHeads, {{"key", &key}, {"value", &value}}, ", also with enable_gqa=True");
  } else {
    broadcast(kHeads, {{"query", &query}, {"key", &key}, {"value", &value}},
              ", unless enable_gqa=True");
  }
}

void check_lengths(const TensorView& query, const TensorView& key, const TensorView& value) {
  if (key.shape[kDim] != query.shape[kDim]) {
    throw_value(subject("key"), "must have query's head dim " + std::to_string(query.shape[kDim]) +
                                    ", got " + std::to_string(key.shape[kDim]));
  }
  if (value.shape[kLength] != key.shape[kLength]) {
    throw_value(subject("value"), "must have key's length " + std::to_string(key.shape[kLength]) +
                                      ", got " + std::to_string(value.shape[kLength]));
  }
}

struct Inputs {
  TensorView query, key, value;
  int rank;  // of the output

  Inputs(const TensorView& q, const TensorView& k, const TensorView& v, bool enable_gqa)
      : query(of_rank_5("query", q)),
        key(of_rank_5("key", k)),
        value(of_rank_5("value", v)),
        rank(std::max({q.rank, k.rank, v.rank})) {
    check_lengths(query, key, value);
    for (int i = 0; i < kHeads; ++i) {
      broadcast(i, {{"query", &query}, {"key", &key}, {"value", &value}});
    }
    match_heads(query, key, value, enable_gqa);
  }
  TensorView output() const {
    TensorView out =
        contiguous_view(nullptr, query.dtype, query.device_ordinal, query.shape[0], query.shape[1],
                        query.shape[2], query.shape[3], value.shape[4]);
    out.device_type = query.device_type;
    const int dropped = kMaxRank - rank;
    for (int i = 0; i < rank; ++i) {
      out.shape[i] = out.shape[i + dropped];
      out.strides[i] = out.strides[i + dropped];
    }
    out.rank = rank;
    return out;
  }
};

// A mask [.., length of query, length of key], expanded over the batch.
TensorView expanded_mask(const TensorView& attn_mask, const TensorView& query) {
  TensorView mask = of_rank_5("attn_mask", attn_mask, "[batch.., heads, len_q, len_kv]",
                              "; of a mask of keys alone pass mask[None, :]");
  for (int i = 0; i < kHeads; ++i) {
    if (mask.shape[i] != 1 && mask.shape[i] != query.shape[i]) {
      throw_value(subject("attn_mask"), "has " + std::to_string(mask.shape[i]) +
                                            " batch entries where the others have " +
                                            std::to_string(query.shape[i]));
    }
    if (mask.shape[i] == query.shape[i]) continue;
    mask.shape[i] = query.shape[i];
    mask.strides[i] = 0;
  }
  return mask;
}

// Whether the two batch dimensions lie in memory as one.
bool is_one_batch(const TensorView& view) {
  return view.shape[0] == 1 || view.shape[1] == 1 ||
         view.strides[0] == view.shape[1] * view.strides[1];
}

// Rank 4: of the one batch, or of the first of the outer entries.
TensorView slice(const TensorView& view, bool is_one) {
  TensorView result = view;
  result.rank = 4;
  for (int i = 1; i < kMaxRank; ++i) {
    result.shape[i - 1] = view.shape[i];
    result.strides[i - 1] = view.strides[i];
  }
  if (!is_one) return result;
  result.shape[0] *= view.shape[0];
  if (view.shape[1] == 1) result.strides[0] = view.strides[0];
  return result;
}

// What check_attention finds within one slice, over all of them: the result of one must not be
// written to what another reads, nor over another's result.
void check_slices(std::span<const TensorView> views) {
  const TensorView& out = views[4];
  check_written(subject("out"), out);
  const char* const names[] = {"query", "key", "value", "attn_mask", "out"};
  CallTensors tensors;
  std::array<runtime::MemorySpan, 5> spans;
  for (std::size_t i = 0; i < views.size(); ++i) {
    const Use use = i == 0 ? Use::replaceable : i == 4 ? Use::written : Use::read;
    tensors.add({names[i], &views[i], use});
    spans[i] = CallArguments::span_of(views[i], use == Use::written);
  }
  refuse_overlaps(kSdpaNames.op, tensors.all(), spans);
}

}  // namespace

void SdpaCall::advance() {
  int i = 0;
  for (TensorView* view : {&query, &key, &value, &options.attn_mask, &out}) {
    view->data = static_cast<char*>(view->data) + steps_[static_cast<std::size_t>(i++)];
  }
}

bool SdpaCall::are_alike() const {
  return std::ranges::all_of(steps_,
                             [](std::int64_t step) { return step % kAttentionVectorBytes == 0; });
}

SdpaCall check_sdpa(const TensorView& query, const TensorView& key, const TensorView& value,
                    const TensorView& attn_mask, const TensorView& out,
                    const SdpaOptions& options) {
  const Inputs inputs(query, key, value, options.enable_gqa);
  if (attn_mask.given() && options.is_causal) {
    throw_value(subject("attn_mask"),
                "must not be given beside is_causal=True; put the causal "
                "mask into attn_mask, or leave it out");
  }
  const TensorView output = inputs.output();
  check_view(subject("out"), out);
  const bool fits =
      out.rank == output.rank && std::equal(out.shape, out.shape + out.rank, output.shape);
  if (!fits) {
    throw_value(subject("out"),
                "must have shape " + shape_text(output) + ", got " + shape_text(out));
  }
  for (auto [name, tensor] : {std::pair{"key", &key}, {"value", &value}, {"out", &out}}) {
    if (!is_half(query.dtype)) break;  // then check_attention refuses query itself
    check_dtype(subject(name), *tensor, query.dtype, " like query");
  }
  std::array views = {inputs.query, inputs.key, inputs.value, TensorView{}, of_rank_5("out", out)};
  if (attn_mask.given()) views[3] = expanded_mask(attn_mask, inputs.query);
  const bool is_one = std::ranges::all_of(
      views, [](const TensorView& view) { return !view.given() || is_one_batch(view); });
  SdpaCall call;
  call.slices = is_one ? 1 : static_cast<int>(inputs.query.shape[0]);
  if (!is_one) check_slices(views);
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (!is_one) call.steps_[i] = views[i].strides[0] * size_of(views[i].dtype);
    if (views[i].given()) views[i] = slice(views[i], is_one);
  }
  call.query = views[0], call.key = views[1], call.value = views[2], call.out = views[4];
  call.options.attn_mask = views[3];
  call.options.causal = call.options.top_left = options.is_causal;
  call.options.scale = options.scale;
  call.options.layout = AttentionLayout::bhsd;
  if (call.slices == 1) call.options.workspace = options.workspace;
  return call;
}

TensorView scaled_dot_product_attention_output(const TensorView& query, const TensorView& key,
                                               const TensorView& value, bool enable_gqa) {
  return Inputs(query, key, value, enable_gqa).output();
}

}  // namespace kiln
