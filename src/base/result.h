#pragma once
// Errors travel as values: `Result<T>` holds a T or an `Error` with a stable id (docs/errors.md). Programmer errors assert.
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace culprit {

/// What went wrong. `id` is one of base/error_ids.h; `message` is lower case without a final stop and holds expected and actual
/// numbers; `where` is a file and offset, a tap, or empty; `system` is the errno when the system refused, else 0.
struct Error {
  std::string id;
  std::string message;
  std::string where;
  int system = 0;
};

template <class T>
using Result = tl::expected<T, Error>;

[[nodiscard]] inline tl::unexpected<Error> fail(std::string_view id, std::string message, std::string where = {}, int system = 0) {
  return tl::unexpected<Error>(Error{std::string(id), std::move(message), std::move(where), system});
}

/// "error[gguf-truncated]: model.gguf @ 1024: expected 32 bytes, 7 remain"
[[nodiscard]] std::string to_string(const Error& error);

}  // namespace culprit

#define CULPRIT_CONCAT2(a, b) a##b
#define CULPRIT_CONCAT(a, b) CULPRIT_CONCAT2(a, b)
/// `CULPRIT_TRY(auto x, f());` binds the value or returns the error from the enclosing function.
#define CULPRIT_TRY(decl, ...) CULPRIT_TRY_IMPL(CULPRIT_CONCAT(try_result_, __COUNTER__), decl, __VA_ARGS__)
#define CULPRIT_TRY_IMPL(tmp, decl, ...)                   \
  auto tmp = __VA_ARGS__;                                  \
  if (!tmp) return tl::unexpected(std::move(tmp).error()); \
  decl = *std::move(tmp)
/// `CULPRIT_CHECK(f());` for Result<void>.
#define CULPRIT_CHECK(...)                                                                                      \
  do {                                                                                                          \
    if (auto check_result = __VA_ARGS__; !check_result) return tl::unexpected(std::move(check_result).error()); \
  } while (false)
