// The compiled part of a variant's plot: what the kernels decide of tiles.
#include "jit/api/tile_map.h"

#include <pybind11/stl.h>

#include <string>

#include "arguments.h"
#include "entries.h"
#include "errors.h"
#include "variant.h"

namespace kiln::python {
namespace {

py::dict map_of(const py::object& variant, const py::dict& sizes) {
  std::shared_ptr<const BoundVariant> composed;
  TileMapCall call;
  call.options.variant = variant_argument(variant.ptr(), {"plot", "variant"}, composed);
  const auto size = [&](const char* name) { return py::cast<int>(sizes[name]); };
  call.options.causal = size("causal") != 0;
  call.options.window_left = size("left"), call.options.window_right = size("right");
  call.batch = size("batch"), call.heads = size("heads"), call.heads_kv = size("heads_kv");
  call.len_q = size("seq_q"), call.len_kv = size("seq_kv"), call.head_dim = size("head_dim");
  call.block_q = size("block_q"), call.block_kv = size("block_kv");
  call.b = size("sequence"), call.h = size("head");
  TileMap map;
  {
    const py::gil_scoped_release unlocked;
    map = map_tiles(call);
  }
  py::list rows;
  for (const TileMapRow& row : map.rows) rows.append(py::make_tuple(row.first, row.last));
  py::dict result;
  result["path"] = map.path, result["what"] = map.what;
  result["tile"] = py::make_tuple(map.block_q, map.block_kv);
  result["rows"] = rows;
  result["key_tiles"] = map.key_tiles;
  result["kinds"] = map.kinds, result["shown"] = map.shown;
  return result;
}

}  // namespace

void register_tile_map(py::module_& module) { module.def("map_tiles", &map_of); }

}  // namespace kiln::python
