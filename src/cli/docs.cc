#include <fmt/format.h>

#include "cli/context.h"
#include "cli/fault_page.h"
#include "cli/help_text.h"
#include "cli/verbs.h"

namespace culprit::cli {
namespace {

Result<int> docs(Context& context, const Arguments& arguments) {
  const auto& page = arguments.positionals()[0];
  if (page == "verbs") {
    context.out(verbs_page(verbs()));
  } else if (page == "errors") {
    context.out(errors_page());
  } else if (page == "faults") {
    context.out(faults_page());
  } else {
    return fail("usage", fmt::format("there is no page '{}'; there are verbs, errors, faults", page));
  }
  return 0;
}

}  // namespace

const Verb kDocs = {.name = "docs",
                    .summary = "print a generated page of the documentation",
                    .details = "",
                    .options = {},
                    .positionals = {{.name = "PAGE"}},
                    .run = docs,
                    .hidden = true};

}  // namespace culprit::cli
