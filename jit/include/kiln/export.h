// What a shared libkiln exports: the namespace blocks that these headers open with KILN_PUBLIC, as
// in `namespace KILN_PUBLIC kiln`, and the functions of kiln/c.h.
#pragma once

// Kiln's own build defines KILN_HIDE_API for a static library, so that a program or library that
// links it does not export Kiln's symbols.
#if defined(__GNUC__) && !defined(KILN_HIDE_API)
#define KILN_PUBLIC [[gnu::visibility("default")]]
#else
#define KILN_PUBLIC
#endif
