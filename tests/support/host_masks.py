"""Masks of variants as host programs: the very functions that kernels call, on tiles of any size.

A program has the structs that Kiln renders, compiled by the machine's own C++ compiler, and tells
of each tile what the interval functions say of it beside what the mask says of every pair.
"""

import json
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEMPLATES = ROOT / "templates"
INCLUDE = re.compile(r'^#include "/kiln/(.+)"$', re.MULTILINE)

# What NVRTC has built in and these templates use. As there, min and max are overloaded and take an
# int beside a bool.
BUILTINS = """
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#define __CUDA_ARCH__ 0
#define __device__
#define __host__
#define __forceinline__ inline
using std::abs; using std::fabs; using std::fmax; using std::fmin;
template <class T> T lesser(T a, T b) { return b < a ? b : a; }
template <class T> T greater(T a, T b) { return a < b ? b : a; }
inline int min(int a, int b) { return lesser(a, b); }
inline int max(int a, int b) { return greater(a, b); }
inline unsigned min(unsigned a, unsigned b) { return lesser(a, b); }
inline unsigned max(unsigned a, unsigned b) { return greater(a, b); }
inline long long min(long long a, long long b) { return lesser(a, b); }
inline long long max(long long a, long long b) { return greater(a, b); }
inline float min(float a, float b) { return lesser(a, b); }
inline float max(float a, float b) { return greater(a, b); }
template <class T> T __ldg(const T* at) { return *at; }
template <class To, class From> To bits_as(From from) {
  To to; std::memcpy(&to, &from, sizeof to); return to;
}
struct int2 { int x, y; };
inline float __int_as_float(int x) { return bits_as<float>(x); }
inline float __uint_as_float(unsigned x) { return bits_as<float>(x); }
"""
# Device code that no host compiler knows: its bodies are never used here.
ASSEMBLY = re.compile(r"asm( volatile)?\((?:[^()]|\([^()]*\))*\);")


def host_text(name, seen):
    """A template's text with those that it includes, each once."""
    if name in seen:
        return ""
    seen.add(name)
    text = (TEMPLATES / name).read_text().replace("#pragma once", "")
    text = INCLUDE.sub(lambda found: host_text(found[1], seen), text)
    return ASSEMBLY.sub(";", text)


def rendered(definitions):
    """What Kiln writes of definitions such as {"mask": .., "params": ..}: "source" and "note"."""
    builds = [ROOT / "build" / name / "tests/helper_masks" for name in ("gpu", "dev")]
    helper = next((path for path in builds if path.exists()), None)
    assert helper, "build/ has no helper_masks: run make"
    empty = {"name": "mask", "params": [], "tensors": [], "logits": "", "mask": ""}
    lines = "".join(json.dumps({**empty, **one}) + "\n" for one in definitions)
    result = subprocess.run([helper], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in result.stdout.splitlines()]


def struct_of(source):
    return source[source.index("struct UserVariant") : source.index("using Variant =")]


def has_intervals(text):
    return "may_show" in text


def build(folder, sources, main):
    """Compiles what rendered() gives, in namespaces v0, v1, .., and `main`. Returns the program."""
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler on this machine")
    text = BUILTINS + host_text("attention/mask_box.cuh", set())
    for number, source in enumerate(sources):
        text += f"namespace v{number} {{\n{struct_of(source)}\n}}\n"
    source, program = folder / "masks.cpp", folder / "masks"
    source.write_text(text + main)
    command = [compiler, "-std=c++20", "-O1", "-w", "-fwrapv", str(source), "-o", str(program)]
    subprocess.run(command, check=True)
    return program
