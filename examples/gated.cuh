// A variant as a template of your own. `logits` changes a scaled logit, `keep` says what is
// visible, `tile` lets whole tiles be skipped: it must never skip a visible key.
struct UserVariant : kiln::VariantDefaults {
  static constexpr bool kTransformsLogits = true;
  static constexpr bool kMasks = true;
  kiln::Slot<int> sentence;  // attend within sentences of this length
  kiln::Slot<float> gain;

  __device__ float logits(float logit, const kiln::Position& at) const {
    return at.h % 2 == 0 ? logit : gain * logit;
  }
  __device__ bool keep(const kiln::Position& at) const {
    return at.q / sentence == at.kv / sentence;
  }
};
