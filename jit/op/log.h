// Log lines: to the sink of set_log_sink, else to stderr, up to the level of KILN_LOG.
#pragma once

#include <string>

namespace kiln {

enum class LogLevel : int { error, warning, info, debug };
bool log_enabled(LogLevel level);
void log(LogLevel level, const std::string& text);

}  // namespace kiln
