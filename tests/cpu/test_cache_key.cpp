// Keys: every field counts, fields cannot run into each other, the digest is SHA-256.
#include "cache/key.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"

using namespace kiln::cache;

namespace {

Key key(const std::vector<std::pair<std::string, std::string>>& fields) {
  KeyBuilder builder;
  for (const auto& [label, value] : fields) builder.field(label, value);
  return builder.finish();
}

}  // namespace

TEST_CASE("SHA-256 agrees with the published vectors") {
  CHECK(sha256("").hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc").hex() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq").hex() ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(sha256("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopq"
               "klmnopqrlmnopqrsmnopqrstnopqrstu")
            .hex() == "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  CHECK(sha256(std::string(1000000, 'a')).hex() ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("SHA-256 pads lengths around a block correctly") {
  // One digest over the digests of 0..130 bytes of 'x', computed with Python's hashlib.
  std::string all;
  for (std::size_t n = 0; n <= 130; ++n) all += sha256(std::string(n, 'x')).hex();
  CHECK(sha256(all).hex() == "87aca1c44bc7ba8897768170211f0a02063de70801131ff86c7edb9ce32c6a50");
}

TEST_CASE("a key has a golden digest") {
  // Changing it orphans every cache in the field: raise the schema on purpose, not by accident.
  CHECK(key({{"source", "void f() {}"}, {"arch", "sm_90a"}}).hex() ==
        "3f28d3138568ab2bca3c9b59522d5512c4458b5fc2a9f6866aa90e27c4114b73");
}

TEST_CASE("each field of a key changes it") {
  const std::set<Key> keys = {key({{"source", "f"}, {"arch", "sm_90"}}),
                              key({{"source", "g"}, {"arch", "sm_90"}}),
                              key({{"source", "f"}, {"arch", "sm_90a"}}),
                              key({{"arch", "sm_90"}, {"source", "f"}}),
                              key({{"source", "f"}, {"target", "sm_90"}}),
                              key({{"source", "f"}}),
                              key({}),
                              key({{"source", "f"}, {"arch", "sm_90"}, {"option", ""}})};
  CHECK(keys.size() == 8);
}

TEST_CASE("fields of a key are delimited") {
  CHECK(key({{"l", "ab"}, {"l", "c"}}) != key({{"l", "a"}, {"l", "bc"}}));
  CHECK(key({{"ab", "c"}}) != key({{"a", "bc"}}));
  CHECK(key({{"l", "-I -O2"}}) != key({{"l", "-I"}, {"l", "-O2"}}));
  CHECK(key({{"l", std::string("a\0b", 3)}}) != key({{"l", "a"}}));
}

TEST_CASE("a key builder can go on after a key was taken") {
  KeyBuilder builder;
  const Key first = builder.field("a", "1").finish();
  CHECK(builder.finish() == first);
  CHECK(builder.field("b", "2").finish() == key({{"a", "1"}, {"b", "2"}}));
}

TEST_CASE("a key survives hex and back, and nothing else is taken for one") {
  const Key one = sha256("one");
  CHECK(Key::from_hex(one.hex()) == one);
  CHECK_FALSE(Key::from_hex(one.hex().substr(1)));
  CHECK_FALSE(Key::from_hex(one.hex() + "0"));
  CHECK_FALSE(Key::from_hex("G" + one.hex().substr(1)));
  CHECK_FALSE(Key::from_hex(std::string(64, 'A')));  // upper case would give two names to a file
}
