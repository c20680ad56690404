#pragma once
// The protocol's lines: one request in, answers out, none longer than the protocol allows.
#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"

namespace culprit::kit {

constexpr std::size_t kLineLimit = std::size_t{1} << 20;  // bytes, without the line's end

class LineChannel {
 public:
  /// The descriptors stay the caller's.
  LineChannel(int in, int out) : in_(in), out_(out) {}

  enum class Read { line, too_long, end };
  /// The next line without its end. A line that is too long is read past and not kept; one without an end, before the end of input, counts.
  [[nodiscard]] Read read_line(std::string& line);
  /// False when nobody listens any more. `text` holds no line end and is at most kLineLimit long.
  [[nodiscard]] bool write_line(std::string_view text);

 private:
  [[nodiscard]] bool fill();

  int in_;
  int out_;
  std::string buffer_;  // read and not yet handed out
};

}  // namespace culprit::kit
