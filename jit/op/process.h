// What operators and launches ask of the process they run in. Declared here and defined in
// jit/compile/, which reads the settings, so that op/ needs no room above it.
#pragma once

#include <string>
#include <string_view>

namespace kiln {

struct DeviceChoice;

const DeviceChoice& process_device();  // KILN_DEVICE
const std::string& process_tuning();   // KILN_TUNING, a file; empty = none

// Whether a template may include this: "/kiln/base/types.cuh".
bool is_template_file(std::string_view virtual_name);

}  // namespace kiln
