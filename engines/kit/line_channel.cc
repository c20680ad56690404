#include "engines/kit/line_channel.h"

#include <unistd.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <utility>

namespace culprit::kit {

bool LineChannel::fill() {
  std::array<char, 1 << 16> block;
  ssize_t count;
  do count = ::read(in_, block.data(), block.size());
  while (count < 0 && errno == EINTR);
  if (count <= 0) return false;
  buffer_.append(block.data(), static_cast<std::size_t>(count));
  return true;
}

LineChannel::Read LineChannel::read_line(std::string& line) {
  bool too_long = false;
  while (true) {
    const auto end = buffer_.find('\n');
    if (end != std::string::npos) {
      too_long = too_long || end > kLineLimit;
      line = too_long ? std::string() : buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return too_long ? Read::too_long : Read::line;
    }
    if (buffer_.size() > kLineLimit) {
      too_long = true;
      buffer_.clear();
    }
    if (fill()) continue;
    line = std::exchange(buffer_, {});
    if (too_long) return Read::too_long;
    return line.empty() ? Read::end : Read::line;
  }
}

bool LineChannel::write_line(std::string_view text) {
  assert(text.size() <= kLineLimit && text.find('\n') == std::string_view::npos);
  std::string line(text);
  line += '\n';
  for (std::size_t written = 0; written < line.size();) {
    const auto count = ::write(out_, line.data() + written, line.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    written += static_cast<std::size_t>(count);
  }
  return true;
}

}  // namespace culprit::kit
