// The operations and the properties of their kernels as JSON, from which the flags of the command
// line, the schema of specs and the pages are made.
#include <nlohmann/json.hpp>

#include "jit/op/family.h"
#include "kiln/control.h"

namespace kiln {
namespace {

using nlohmann::json;

const char* name(FieldKind kind) {
  switch (kind) {
    case FieldKind::flag:
      return "flag";
    case FieldKind::choice:
      return "choice";
    case FieldKind::integer:
      return "integer";
    case FieldKind::variant:
      return "variant";
    case FieldKind::expression:
      return "expression";
  }
  return "";
}

json field_report(const Field& field) {
  json values = json::array();
  for (const Named& value : field.values) values.push_back(value.name);
  json report{{"name", field.name},         {"kind", name(field.kind)},
              {"help", field.help},         {"default", field.otherwise},
              {"flag", field.flag},         {"flag_each", field.flag_each},
              {"required", field.required}, {"values", values}};
  if (field.most != 0) {
    report["least"] = field.least;
    report["most"] = field.most;
    report["multiple"] = field.multiple;
    if (field.also != 0) report["also"] = field.also;
  }
  return report;
}

// The row fields of all templates, each name once.
json tile_fields(const Family& family) {
  json fields = json::array();
  for (const Template& kernel : family.templates) {
    for (const Field& field : kernel.row_fields) {
      const json report = field_report(field);
      bool known = false;
      for (const json& other : fields) known = known || other["name"] == report["name"];
      if (!known) fields.push_back(report);
    }
  }
  return fields;
}

}  // namespace

std::string describe_families() {
  json list = json::array();
  for (const Family* family : families()) {
    json fields = json::array(), templates = json::array();
    for (const Field& field : family->fields) fields.push_back(field_report(field));
    for (const Template& kernel : family->templates) {
      templates.push_back({{"path", kernel.path}, {"file", kernel.file}});
    }
    list.push_back({{"op", family->name},
                    {"title", family->title},
                    {"fields", fields},
                    {"tile_fields", tile_fields(*family)},
                    {"templates", templates}});
  }
  return list.dump();
}

}  // namespace kiln
