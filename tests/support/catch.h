// Catch2 in either of its versions. Tests use only what both have: TEST_CASE, SECTION, CHECK,
// REQUIRE, CHECK_THROWS_AS and the like.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
