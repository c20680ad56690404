#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/version.h"
#include "cli/context.h"
#include "cli/help_text.h"
#include "cli/json_text.h"
#include "cli/verbs.h"

namespace culprit::cli {
namespace {

Result<int> help(Context& context, const Arguments& arguments) {
  const auto& words = arguments.positionals();
  if (words.empty()) {
    context.out(overview(verbs()));
    return 0;
  }
  const auto name = fmt::format("{}", fmt::join(words, " "));
  bool found = false;
  for (const auto* verb : verbs())
    if (verb->name == name || verb->name.starts_with(name + " ")) {
      if (found) context.out("\n");
      context.out(help_of(*verb));
      found = true;
    }
  if (found) return 0;
  // The parser knows how to say what is wrong with a verb.
  const auto parsed = parse(verbs(), words);
  if (!parsed && parsed.error().id == "verb-unknown") return tl::unexpected(parsed.error());
  return fail("verb-unknown", fmt::format("there is no verb '{}'", name));
}

Result<int> show_version(Context& context, const Arguments&) {
  if (context.json())
    context.out_json(document("culprit-version", {{"culprit", std::string(version())}}));
  else
    context.out(fmt::format("culprit {}\n", version()));
  return 0;
}

}  // namespace

const Verb kHelp = {.name = "help",
                    .summary = "show what a verb does and takes",
                    .details = "",
                    .options = {},
                    .positionals = {{.name = "VERB", .required = false, .repeated = true}},
                    .run = help};
const Verb kVersion = {
    .name = "version", .summary = "show culprit's version", .details = "", .options = {}, .positionals = {}, .run = show_version};

}  // namespace culprit::cli
