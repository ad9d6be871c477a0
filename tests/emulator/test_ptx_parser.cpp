// The PTX parser: what modules look like, scopes, operands.
#include <string>

#include "tests/emulator/ptx_text.h"

namespace kiln::runtime::emulator {
namespace {

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

}  // namespace
}  // namespace kiln::runtime::emulator
