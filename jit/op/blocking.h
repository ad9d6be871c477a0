// Marks work that may block, so that a language binding can let go of its own lock first: the
// GIL is released before any lock of ours is taken.
#pragma once

namespace kiln {

class BlockingScope {
 public:
  BlockingScope();
  ~BlockingScope();
  BlockingScope(const BlockingScope&) = delete;
  BlockingScope& operator=(const BlockingScope&) = delete;

 private:
  void* token_;
};

}  // namespace kiln
