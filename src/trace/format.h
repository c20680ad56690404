#pragma once
// What the writer and the reader of a trace agree on.
#include <filesystem>
#include <string>
#include <string_view>

namespace culprit::trace_format {

inline constexpr std::string_view kSchema = "culprit-trace";
inline constexpr int kVersion = 1;
inline constexpr std::string_view kHeaderFile = "trace.json";
inline constexpr std::string_view kTapsFile = "taps.jsonl";
inline constexpr std::size_t kLineBytesMax = std::size_t{1} << 20;
/// In each record: how many records its step has. A step is whole when they are all there.
inline constexpr const char* kRecordsOfStep = "of";

/// "step-000012.safetensors"
[[nodiscard]] std::string step_file_name(int step);

}  // namespace culprit::trace_format
