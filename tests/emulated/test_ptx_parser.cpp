// The PTX parser: what modules look like, scopes, operands, initial values, and what is refused.
#include <chrono>
#include <cstring>
#include <string>

#include "runtime/emulator/faults.h"
#include "runtime/emulator/ptx.h"
#include "tests/support/catch.h"

namespace kiln::runtime::emulator {
namespace {

using Kind = Operand::Kind;

constexpr const char* kHeader = ".version 8.4\n.target sm_90a, debug\n.address_size 64\n";

std::string kernel(const std::string& body, const std::string& before = "") {
  return kHeader + before + ".visible .entry k(.param .u64 p)\n{\n" + body + "\nret;\n}\n";
}

// The text of the error that `text` gives, with its line in front; empty where there is none.
std::string error_of(const std::string& text) {
  try {
    parse_ptx(text);
  } catch (const EmulatorError& error) {
    CHECK(error.fault() == Fault::bad_ptx);
    return std::to_string(error.site().ptx_line) + ": " + error.what();
  }
  return {};
}

bool fails(const std::string& text, const std::string& line_and_message) {
  const std::string error = error_of(text);
  const std::size_t colon = line_and_message.find(": ");
  INFO(error);
  const bool line = error.starts_with(line_and_message.substr(0, colon + 2));
  const bool message = error.find(line_and_message.substr(colon + 2)) != std::string::npos;
  CHECK(line);
  CHECK(message);
  return line && message;
}

// The operands of the first instruction of a kernel's body.
struct Parsed {
  Module module;
  const Instruction& at(std::size_t index) const { return module.functions.back().body.at(index); }
  const Operand& operand(std::size_t index) const { return at(0).operands.at(index); }
};
Parsed parse(const std::string& body, const std::string& before = "") {
  return {parse_ptx(kernel(body, before))};
}

std::uint64_t word(const Variable& variable, std::size_t at, std::size_t bytes) {
  std::uint64_t value = 0;
  REQUIRE(at + bytes <= variable.initial.size());
  std::memcpy(&value, variable.initial.data() + at, bytes);
  return value;
}

TEST_CASE("the head of a module", "[ptx_parser]") {
  const Module module = parse_ptx(kernel("") + '\0');
  CHECK(module.version_major == 8);
  CHECK(module.version_minor == 4);
  CHECK(module.target == "sm_90a");
  REQUIRE(module.find_function("k") != nullptr);
  CHECK(module.find_function("k")->is_entry);
  CHECK(module.find_function("other") == nullptr);
}

TEST_CASE("the views outlive the text that was parsed", "[ptx_parser]") {
  Module module;
  {
    std::string text = kernel(".reg .b32 %r<3>;\nadd.s32 %r1, %r2, 7;");
    module = parse_ptx(text);
    std::fill(text.begin(), text.end(), '?');
  }
  CHECK(module.functions[0].body[0].text() == "add.s32");
  CHECK(module.functions[0].body[0].operands[1].name == "%r2");
}

TEST_CASE("parameters, their block and the performance directives", "[ptx_parser]") {
  const Module module = parse_ptx(
      std::string(kHeader) +
      ".visible .entry k(.param .u32 a, .param .align 64 .b8 map[128],\n"
      ".param .u64 .ptr .global .align 16 q, .param .u8 c, .param .u64 .ptr d)\n"
      ".maxntid 128, 2\n.minnctapersm 3 .maxnreg 40 .reqnctapercluster 2, 1, 1 .explicitcluster\n"
      "{ ret; }\n.entry bare .reqntid 32 .maxclusterrank 4 .pragma \"nounroll\"; { ret; }");
  const Function& k = *module.find_function("k");
  REQUIRE(k.parameters.size() == 5);
  const std::uint64_t offsets[] = {0, 64, 192, 200, 208};
  for (std::size_t i = 0; i < 5; ++i) CHECK(k.parameters[i].offset == offsets[i]);
  CHECK(k.parameters[1].bytes == 128);
  CHECK(k.parameters[1].align == 64);
  CHECK(k.parameter_bytes == 216);
  CHECK(k.max_threads[0] == 128);
  CHECK(k.max_threads[1] == 2);
  CHECK(k.max_threads[2] == 1);
  CHECK(k.min_blocks == 3);
  CHECK(k.max_registers == 40);
  CHECK(k.required_cluster[0] == 2);
  CHECK(k.required_threads[0] == 0);
  CHECK(module.find_function("bare")->required_threads[0] == 32);
  CHECK(module.find_function("bare")->parameters.empty());
}

TEST_CASE("instructions, modifiers and types", "[ptx_parser]") {
  const Parsed p = parse(
      ".reg .pred p1; .reg .b32 %r<4>;\n"
      "@!p1 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%r0], [%r1, {%r2, 5}], [%r3], %r1;\n"
      "cvt.rn.f32.s32 %r1, %r2;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%r1, _}, %r2, p1, 1, -1;");
  const Instruction& copy = p.at(0);
  CHECK(copy.opcode == "cp");
  CHECK(copy.guard >= 0);
  CHECK(copy.guard_negated);
  CHECK(copy.line == 7);
  CHECK(copy.has("shared::cluster"));
  CHECK(copy.has("mbarrier::complete_tx::bytes"));
  CHECK_FALSE(copy.has("shared"));
  CHECK(copy.type() == Type::none);
  CHECK(copy.text().starts_with("cp.async.bulk.tensor.2d.shared::cluster.global"));
  REQUIRE(copy.operands.size() == 4);
  const Operand& box = copy.operands[1];
  REQUIRE(box.is(Kind::address));
  REQUIRE(box.items.size() == 2);
  CHECK(box.items[0].is(Kind::reg));
  REQUIRE(box.items[1].is(Kind::vector));
  CHECK(box.items[1].items[1].value == 5);
  CHECK(p.at(1).type() == Type::s32);
  CHECK(p.at(1).types() == std::vector<Type>{Type::f32, Type::s32});
  CHECK(p.at(1).guard == -1);
  CHECK(p.at(2).operands[0].items[1].is(Kind::sink));
  CHECK(p.at(2).operands[4].value == -1);
}

TEST_CASE("addresses", "[ptx_parser]") {
  const struct {
    const char* text;
    Kind base;
    std::int64_t offset;
  } cases[] = {
      {"[a]", Kind::reg, 0},          {"[a+4]", Kind::reg, 4},    {"[a+-144]", Kind::reg, -144},
      {"[a-8]", Kind::reg, -8},       {"[s]", Kind::symbol, 0},   {"[s+0x10]", Kind::symbol, 16},
      {"[s+1*4+2]", Kind::symbol, 6}, {"[p+8]", Kind::symbol, 8}, {"[4]", Kind::integer, 0}};
  for (const auto& expected : cases) {
    INFO(expected.text);
    const Parsed p =
        parse(std::string(".reg .b64 a; .reg .b32 r; ld.u32 r, ") + expected.text + ";",
              ".shared .u32 s[4];\n");
    const Operand& address = p.operand(1);
    REQUIRE(address.is(Kind::address));
    CHECK(address.items.at(0).kind == expected.base);
    CHECK(address.value == expected.offset);
  }
  CHECK(parse(".reg .b32 r; ld.u32 r, [4];").operand(1).items[0].value == 4);
}

TEST_CASE("constants and their expressions", "[ptx_parser]") {
  const struct {
    const char* text;
    std::int64_t value;
  } cases[] = {{"12", 12},
               {"-12", -12},
               {"0x1F", 31},
               {"0X1fU", 31},
               {"017", 15},
               {"0b101", 5},
               {"7U", 7},
               {"0", 0},
               {"18446744073709551615", -1},
               {"-9223372036854775808", INT64_MIN},
               {"(1+2*3)", 7},
               {"(1+2)*3", 9},
               {"1<<4|3", 19},
               {"-7/2", -3},
               {"-7>>1", -4},
               {"0x8000000000000000>>63", 1},
               {"~0", -1},
               {"!5", 0},
               {"3 > 2 ? 10 : 20", 10},
               {"-1 < 0U", 0},
               {"WARP_SZ-1", 31},
               {"(.u64)-1 >> 60", 15},
               {"(-9223372036854775807-1) / -1", INT64_MIN},
               {"(-9223372036854775807-1) % -1", 0},
               {"1 << 64", 0}};
  for (const auto& expected : cases) {
    INFO(expected.text);
    const Parsed p = parse(std::string(".reg .b64 r; mov.b64 r, ") + expected.text + ";");
    REQUIRE(p.operand(1).is(Kind::integer));
    CHECK(p.operand(1).value == expected.value);
  }
  CHECK(fails(kernel(".reg .b32 r;\nmov.b32 r, 1/0;"), "7: division by zero"));
  CHECK(fails(kernel(".reg .b32 r;\nmov.b32 r, 019;"), "7: '019' is not a number"));
  CHECK(fails(kernel(".reg .b32 r;\nmov.b32 r, 18446744073709551616;"), "7: does not fit"));
}

TEST_CASE("floating-point constants keep their bits", "[ptx_parser]") {
  const Parsed p = parse(
      ".reg .f32 f; .reg .f64 d; mov.f32 f, 0f7F800001; mov.f64 d, 0d3FF0000000000000;\n"
      "mov.f32 f, 1.5e-3; mov.f64 d, -2.0; mov.f32 f, -0F3F800000;");
  const auto bits = [&](std::size_t i) {
    return static_cast<std::uint64_t>(p.at(i).operands[1].value);
  };
  CHECK(p.at(0).operands[1].is(Kind::real));
  CHECK(p.at(0).operands[1].type == Type::f32);
  CHECK(bits(0) == 0x7F800001u);
  CHECK(p.at(1).operands[1].type == Type::f64);
  CHECK(bits(1) == 0x3FF0000000000000u);
  double value = 0;
  std::uint64_t raw = bits(2);
  std::memcpy(&value, &raw, 8);
  CHECK(value == 1.5e-3);
  CHECK(bits(3) == 0xC000000000000000u);
  CHECK(bits(4) == 0xBF800000u);
  CHECK(fails(kernel(".reg .f32 f;\nmov.f32 f, 0f3F80;"), "7: expected 8 hexadecimal digits"));
}

TEST_CASE("pairs, negations, sinks and special registers", "[ptx_parser]") {
  const Parsed p = parse(
      ".reg .pred a, b; .reg .b32 r; setp.eq.and.u32 a|_, r, %tid.x, !b;\n"
      "mov.u32 r, WARP_SZ; mov.u32 r, %envreg7; mov.u32 r, %cluster_ctarank; neg.s32 r, -r;");
  REQUIRE(p.operand(0).is(Kind::pair));
  CHECK(p.operand(0).items[0].is(Kind::reg));
  CHECK(p.operand(0).items[1].is(Kind::sink));
  CHECK(p.operand(2).is(Kind::special));
  CHECK(p.operand(2).name == "%tid.x");
  CHECK(p.operand(3).negated);
  CHECK(p.at(1).operands[1].is(Kind::special));
  CHECK(p.at(1).operands[1].name == "WARP_SZ");
  CHECK(p.at(2).operands[1].name == "%envreg7");
  CHECK(p.at(3).operands[1].name == "%cluster_ctarank");
  CHECK(p.at(4).operands[1].negated);
}

TEST_CASE("inner scopes have registers and labels of their own", "[ptx_parser]") {
  std::string body = ".reg .b32 P1; .reg .b64 %r<4>;\nmov.u32 P1, 0; mov.u64 %r1, 0;\n";
  const std::string block =
      "{\n.reg .pred P1;\n.reg .b32 %r<2>;\nLAB_WAIT:\nsetp.eq.u32 P1, %r1, 0;\n@P1 bra DONE;\n"
      "bra LAB_WAIT;\nDONE:\n}\n";
  body += block + block + "mov.u32 P1, 1; mov.u64 %r1, 1;";
  const Module module = parse_ptx(kernel(body));
  const Function& k = module.functions[0];
  REQUIRE(k.body.size() == 11);
  const auto reg = [&](std::size_t i, std::size_t operand) {
    return k.body[i].operands[operand].reg;
  };
  CHECK(k.body[3].operands[0].value == 5);  // DONE of the first block
  CHECK(k.body[4].operands[0].value == 2);
  CHECK(k.body[6].operands[0].value == 8);
  CHECK(k.body[7].operands[0].value == 5);
  CHECK(k.registers[reg(2, 0)].type == Type::pred);
  CHECK(k.registers[reg(2, 1)].type == Type::b32);
  CHECK(reg(2, 0) != reg(5, 0));
  CHECK(reg(2, 1) != reg(5, 1));
  CHECK(reg(8, 0) == reg(0, 0));  // the outer ones are back
  CHECK(reg(9, 0) == reg(1, 0));
  CHECK(k.registers[reg(9, 0)].type == Type::b64);
  CHECK(k.body[3].guard == static_cast<std::int32_t>(reg(2, 0)));
}

TEST_CASE("labels are visible in their whole scope and not outside of it", "[ptx_parser]") {
  // An inner label hides the outer one even where it stands behind its use.
  const Parsed p = parse("L: { bra L; ret; L: } bra L; bra $L__end; $L__end:");
  CHECK(p.at(0).operands[0].value == 2);
  CHECK(p.at(2).operands[0].value == 0);
  CHECK(p.at(3).operands[0].value == 4);
  CHECK(fails(kernel("bra M;\n{ M: ret; }"), "6: unknown name 'M'"));
  CHECK(fails(kernel("{ M: ret; }\nbra M;"), "7: unknown name 'M'"));
  CHECK(fails(kernel("L: ret;\nL: bra L;"), "7: 'L' is defined twice"));
}

TEST_CASE("registers: ranges, lists, what is not declared", "[ptx_parser]") {
  const Parsed p = parse(".reg .b32 %r<10>, x, %q<2>; mov.u32 %r9, x; mov.u32 %q1, %r9;");
  CHECK(p.module.functions[0].registers.size() == 3);  // those that are used, and x
  CHECK(p.at(0).operands[0].reg == p.at(1).operands[1].reg);
  CHECK(fails(kernel(".reg .b32 %r<10>;\nmov.u32 %r10, 0;"), "7: unknown register '%r10'"));
  CHECK(fails(kernel("{ .reg .b32 a; }\nmov.u32 a, 0;"), "7: unknown name 'a'"));
  CHECK(fails(kernel(".reg .b32 a;\n.reg .b64 a;"), "7: 'a' is declared twice"));
  CHECK(fails(kernel(".reg .b32 %r<2000000>;"), "6: at most 1000000"));
  CHECK(fails(kernel(".reg .b32 r;\n@r mov.u32 r, 0;"), "7: 'r' is not a predicate"));
}

TEST_CASE("variables of bodies tell which one an operand means", "[ptx_parser]") {
  const Parsed p = parse(
      ".reg .b32 r; .shared .align 16 .b8 s[64], t[4];\n"
      "{ .param .b32 param0; st.param.b32 [param0], r; }\n"
      "{ .param .b64 param0; st.param.b64 [param0], r; }\n"
      "ld.param.u32 r, [p]; mov.u32 r, g+8; mov.u32 r, t;",
      ".global .u32 g[4];\n");
  const Function& k = p.module.functions[0];
  REQUIRE(k.variables.size() == 4);
  CHECK(k.variables[0].align == 16);
  CHECK(k.variables[0].bytes == 64);
  CHECK(p.at(0).operands[0].items[0].reg == 2);
  CHECK(p.at(1).operands[0].items[0].reg == 3);
  CHECK(k.variables[3].bytes == 8);
  CHECK(p.at(2).operands[1].items[0].reg == kNotOfBody);
  CHECK(p.at(3).operands[1].reg == kNotOfBody);
  CHECK(p.at(3).operands[1].value == 8);
  CHECK(p.at(4).operands[1].reg == 1);
}

TEST_CASE("calls, prototypes and tables of targets", "[ptx_parser]") {
  const Module module =
      parse_ptx(std::string(kHeader) +
                ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b)\n;\n"
                ".func (.reg .b32 out) f(.reg .b32 in);\n"
                ".func (.reg .b32 out) f(.reg .b32 in) { mov.u32 out, in; ret; }\n"
                ".visible .entry k() {\n.reg .b64 %rd<2>; .reg .b32 i;\n"
                "{ .param .b32 q; call.uni (q), vprintf, (%rd0, 3); }\n"
                "T: .branchtargets A, B, A;\nbrx.idx i, T;\nA: call f, (i);\n"
                "proto: .callprototype (.param .b32 _) _ (.param .b64 _);\n"
                "B: call (i), %rd1, (%rd0), proto;\nret; }");
  CHECK(module.functions.size() == 3);
  CHECK(module.functions[0].results.size() == 1);
  CHECK_FALSE(module.functions[0].has_body);
  const Function& f = module.functions[1];
  CHECK(f.has_body);
  CHECK(f.parameters[0].in_register);
  CHECK(f.body[0].operands[1].reg == f.parameters[0].reg);
  const Function& k = module.functions[2];
  CHECK(k.body[0].operands[0].is(Kind::group));
  CHECK(k.body[0].operands[1].is(Kind::symbol));
  CHECK(k.body[0].operands[2].items[1].value == 3);
  REQUIRE(k.body[1].operands[1].is(Kind::label));
  CHECK(k.branch_targets.at(0) == std::vector<std::uint32_t>{2, 3, 2});
  CHECK(k.body[3].operands[3].name == "proto");
  CHECK(fails(kernel("call g;"), "6: unknown name 'g'"));
}

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

// A text of a given shape takes time in proportion to its length.
double seconds_of(const std::string& text) {
  const auto begin = std::chrono::steady_clock::now();
  error_of(text);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
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
