#include <fmt/format.h>

#include "base/json.h"
#include "cli/context.h"
#include "cli/verbs.h"
#include "locate/derivation.h"
#include "report/markdown.h"

namespace culprit::cli {
namespace {

Result<int> report(Context& context, const Arguments& arguments) {
  const auto& file = arguments.positionals()[0];
  const auto format = arguments.value_or("format", "md");
  if (format != "md") return fail("option-value", fmt::format("--format is '{}', expected md", format));
  CULPRIT_TRY(const auto verdict, read_json_file(file));
  const auto text = markdown_of(verdict);
  if (!text) return fail(text.error().id, text.error().message, file);
  context.out(*text);
  return 0;
}

}  // namespace

const Verb kReport = {
    .name = "report",
    .summary = "write a verdict as a text that goes into an issue",
    .details =
        "Reads a document of culprit find --json. What was found, the smallest condition, the evidence with the runs it rests on, "
        "the environment with its hashes, and the command that shows it again.",
    .options = {{.name = "format", .placeholder = "FORMAT", .help = "md (Markdown), the default"}},
    .positionals = {{.name = "VERDICT"}},
    .run = report};

}  // namespace culprit::cli
