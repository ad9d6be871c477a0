// The PTX parser: initial values, source locations, odd and bad text, and how long it takes.
#include <ctime>
#include <string>

#include "tests/emulator/ptx_text.h"

namespace kiln::runtime::emulator {
namespace {

TEST_CASE("initial values", "[ptx_parser]") {
  const Module module = parse_ptx(
      std::string(kHeader) +
      ".global .align 8 .b8 bytes[6] = {1, 0xFF, 300};\n"
      ".const .f32 one = 0f3F800000, two = 2.0;\n"
      ".global .f64 wide[2] = {-1.5, 0d3FF0000000000000};\n"
      ".global .u16 grid[2][3] = {{1, 2}, {3}};\n"
      ".global .u32 open[][2] = {{1, 2}, {3}};\n"
      ".global .u64 pointers[4] = {grid, generic(grid)+4, 7, k};\n"
      ".global .v2 .u32 pair = {8, 9};\n"
      ".global .attribute(.managed) .align 4 .u32 managed;\n"
      ".extern .shared .align 128 .b8 dynamic[];\n"
      ".global .align 8 .u8 packed[12] = {5, 0, 0, 0, 0xFF(grid+2), 0xFF00(grid+2),\n"
      "0xFF0000(grid+2), 0xFF000000(grid+2), 0xFF00000000(grid+2), 0xFF0000000000(grid+2),\n"
      "0xFF000000000000(grid+2), 0xFF00000000000000(grid+2)};\n"
      ".visible .entry k() { ret; }");
  const auto find = [&](std::string_view name) -> const Variable& {
    for (const Variable& variable : module.variables) {
      if (variable.name == name) return variable;
    }
    throw std::runtime_error("no such variable");
  };
  CHECK(find("bytes").bytes == 6);
  CHECK(word(find("bytes"), 0, 3) == 0x2CFF01u);
  CHECK(find("bytes").initial.size() <= 6);
  CHECK(word(find("one"), 0, 4) == 0x3F800000u);
  CHECK(word(find("two"), 0, 4) == 0x40000000u);
  CHECK(word(find("wide"), 0, 8) == 0xBFF8000000000000u);
  CHECK(word(find("wide"), 8, 8) == 0x3FF0000000000000u);
  CHECK(find("grid").bytes == 12);
  CHECK(word(find("grid"), 0, 8) == 0x0003'0000'0002'0001u);
  CHECK(find("open").bytes == 16);
  CHECK(word(find("open"), 8, 4) == 3);
  CHECK(word(find("pair"), 0, 8) == 0x0000'0009'0000'0008u);
  CHECK(find("pair").align == 8);
  CHECK(find("managed").bytes == 4);
  CHECK(find("dynamic").bytes == 0);
  CHECK(find("dynamic").is_extern);
  CHECK(find("dynamic").align == 128);
  const auto& pointers = find("pointers").relocations;
  REQUIRE(pointers.size() == 3);
  CHECK(pointers[0].name == "grid");
  CHECK_FALSE(pointers[0].generic);
  CHECK(pointers[1].at == 8);
  CHECK(pointers[1].generic);
  CHECK(pointers[1].offset == 4);
  CHECK(pointers[2].at == 24);
  CHECK(pointers[2].name == "k");
  const auto& packed = find("packed").relocations;
  REQUIRE(packed.size() == 1);
  CHECK(packed[0].at == 4);
  CHECK(packed[0].offset == 2);
}

TEST_CASE("initial values that are refused", "[ptx_parser]") {
  const auto with = [](const std::string& line) { return kHeader + line + "\n"; };
  CHECK(fails(with(".global .u32 a[2] = {1, 2, 3};"), "4: more initial values"));
  CHECK(fails(with(".global .u32 a[2] = {1, {2}};"), "4: expected a constant, got '{'"));
  CHECK(fails(with(".global .u64 a = nothing;"), "4: unknown name 'nothing'"));
  CHECK(fails(with(".global .u32 g; .global .u32 a = g;"), "4: an address needs"));
  CHECK(fails(with(".global .u32 g; .global .u8 a[2] = {0xFF(g), 0xFF00(g)};"), "4: too early"));
  CHECK(fails(with(".global .f32 a = 1;"), "4: expected a floating-point number"));
  CHECK(fails(with(".shared .u32 a = 1;"), "4: only .global and .const"));
  CHECK(fails(with(".global .u32 a[];"), "4: has no size"));
  CHECK(fails(with(".global .b8 a[1073741825];"), "4: more than 1 GiB"));
  CHECK(fails(with(".global .u32 a[65536][65536];"), "4: more than 1 GiB"));
  CHECK(fails(with(".global .b8 a[2][536870912] = {{1}, {1}};"), "4: more than 256 MiB"));
  CHECK(fails(with(".global .align 3 .u32 a;"), "4: no power of two"));
  CHECK(fails(with(".global .u32 a; .global .u32 a;"), "4: declared twice"));
  CHECK(fails(with(".global .texref t;"), "4: not modelled"));
  CHECK(error_of(with(".extern .global .u32 a; .global .u32 a = 1;")).empty());
}

TEST_CASE("source locations and what was inlined where", "[ptx_parser]") {
  const Module module = parse_ptx(
      kernel(".reg .b32 r;\n.loc 1 10 3\nmov.u32 r, 0;\n"
             ".loc 2 20 5, function_name $L__info_string0, inlined_at 1 10 3\nmov.u32 r, 1;\n"
             ".loc 2 30 1, function_name $L__info_string1+4, inlined_at 2 20 5\nmov.u32 r, 2;\n"
             ".loc 1 0 0\nmov.u32 r, 3;\n.loc 1 10 3\nmov.u32 r, 4;") +
      ".file 1 \"a.cu\"\n.file 2 \"templates/softmax.cuh\", 1700000000, 99\n"
      ".section .debug_str\n{\n$L__info_string0:\n.b8 95 // }\n.b8 0\n}\n"
      ".section .debug_info { .b32 $L__x-$L__y }\n");
  const auto& body = module.functions[0].body;
  const auto text = [&](std::size_t i) { return module.location_text(body[i].location); };
  CHECK(text(0) == "a.cu:10");
  CHECK(text(1) == "templates/softmax.cuh:20 (inlined at a.cu:10)");
  CHECK(text(2) == "templates/softmax.cuh:30 (inlined at templates/softmax.cuh:20, at a.cu:10)");
  CHECK(text(3) == text(2));  // line 0 tells nothing
  CHECK(body[4].location == body[0].location);
  CHECK(module.location_text(0).empty());
  CHECK(module.location_text(1000).empty());
}

TEST_CASE("comments, line markers, pragmas and odd white space", "[ptx_parser]") {
  const Parsed p = parse(
      "/* a\n * b */ .pragma \"nounroll\"; .reg .b32\tr;\r\n# 12 \"x.cu\"\n"
      "mov .u32 r,/**/ 3 ; // the end");
  CHECK(p.at(0).line == 9);
  CHECK(p.operand(1).value == 3);
}

TEST_CASE("bad text gives an error with its line", "[ptx_parser]") {
  CHECK(fails("", "1: expected a PTX module, which begins with .version"));
  CHECK(
      fails("\x7f"
            "ELF\x02\x01",
            "1: '\\x7f' has no meaning in PTX"));
  CHECK(fails(kernel("add.s32 1, 2"), "7: expected ',' or ';', got 'ret'"));
  CHECK(fails(kernel("mov.u32 %r1, 0;"), "6: unknown register '%r1'"));
  CHECK(fails(kernel("ld.u32 _, [x];"), "6: unknown name 'x'"));
  CHECK(fails(kernel("add.s32 _, (1, 2);"), "6: expected ')', got ','"));
  CHECK(fails(kernel("@p ret;"), "6: is not a predicate"));
  CHECK(fails(kernel("/* no end"), "6: never ends"));
  CHECK(fails(kernel(".file 1 \"no end"), "6: never ends"));
  CHECK(fails(kernel(".wrong 3;"), "6: expected a statement, got '.wrong'"));
  CHECK(fails(kernel("") + kernel(""), "9: more than one module"));
  CHECK(fails(kernel("") + ".entry k() { ret; }", "9: 'k' is declared twice"));
  CHECK(fails(kHeader + std::string(".address_size 32\n"), "4: only modules with"));
  CHECK(fails(kHeader + std::string(".section .debug { \n"), "4: expected the '}'"));
  const std::string deep = kernel(std::string(2000, '{'));
  CHECK(fails(deep, "6: more than 1000 nested scopes"));
  CHECK(fails(kernel("mov.u32 _, " + std::string(100000, '(') + ";"), "6: nested too deeply"));
  CHECK(fails(kernel("mov.u32 _, " + std::string(100000, '-') + ";"), "6: nested too deeply"));
}

TEST_CASE("every truncation of a module is refused, or complete", "[ptx_parser]") {
  const std::string whole =
      kernel(".reg .b32 %r<3>; .loc 1 2 3\n{ L: mov.u32 %r1, {%r2, _}; bra L; }\n@%p ret;\n", "");
  const std::string sound = whole.substr(0, whole.find("@%p"));
  const std::string text = sound + "ret; }\n.global .u64 g[2] = {1, k};\n.file 1 \"a\"\n";
  REQUIRE(error_of(text).empty());
  std::size_t accepted = 0;
  const std::size_t body = text.find(".visible");
  for (std::size_t size = 0; size < text.size(); ++size) {
    const bool complete = error_of(text.substr(0, size)).empty();
    accepted += complete;
    if (size > body && size < text.find(".global")) {
      INFO(size);
      CHECK(complete == (size >= text.find("}\n.global") + 1));
    }
  }
  CHECK(accepted > 0);
}

// A text of a given shape takes time in proportion to its length. The processor's time: others may
// be at work on the machine.
double seconds_of(const std::string& text) {
  const std::clock_t begin = std::clock();
  error_of(text);
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

TEST_CASE("time grows with the length of the text only", "[ptx_parser]") {
  std::string lines = ".reg .b32 %r<100000>; .reg .pred %p<10>;\n";
  for (int i = 0; i < 40000; ++i) {
    lines += "$L" + std::to_string(i) + ": add.s32 %r" + std::to_string(i) + ", %r" +
             std::to_string(i / 2) + ", 4; @%p1 bra $L" + std::to_string(39999 - i) + ";\n";
  }
  CHECK(seconds_of(kernel(lines)) < 5);  // 20 ms for 10,000 lines, without sanitizers
  // Uses of a far outer label, out of the deepest scopes.
  std::string nested = "L: " + std::string(900, '{');
  for (int i = 0; i < 50000; ++i) nested += "bra L;\n";
  CHECK(seconds_of(kernel(nested + std::string(900, '}'))) < 5);
  // Scopes that declare what outer ones have declared, and huge ranges nobody uses.
  std::string scopes;
  for (int i = 0; i < 50000; ++i) scopes += "{ .reg .b32 %r<1000000>; mov.u32 %r999999, 1; L: }\n";
  CHECK(seconds_of(kernel(scopes)) < 5);
  CHECK(seconds_of(std::string(kHeader) + std::string(1 << 20, '/')) < 5);
}

}  // namespace
}  // namespace kiln::runtime::emulator
