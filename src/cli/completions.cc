#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/context.h"
#include "cli/verbs.h"

namespace culprit::cli {
namespace {

struct Group {
  std::string_view word;                  // the verb's first word
  std::vector<std::string_view> actions;  // second words, of a group
  std::vector<std::string> options;       // of all its verbs, with dashes
};

void add_options(std::vector<std::string>& options, std::span<const OptionEntry> entries) {
  for (const auto& entry : entries)
    if (auto dashed = fmt::format("--{}", entry.name); std::ranges::find(options, dashed) == options.end())
      options.push_back(std::move(dashed));
}

std::vector<Group> groups() {
  std::vector<Group> all;
  for (const auto* verb : verbs()) {
    if (verb->hidden) continue;
    const auto space = verb->name.find(' ');
    const auto word = verb->name.substr(0, space);
    if (all.empty() || all.back().word != word) all.push_back({word, {}, {}});
    if (space != std::string_view::npos) all.back().actions.push_back(verb->name.substr(space + 1));
    add_options(all.back().options, verb->options);
  }
  for (auto& group : all) add_options(group.options, global_options());
  return all;
}

std::vector<std::string_view> words_of(const std::vector<Group>& all) {
  std::vector<std::string_view> words;
  words.reserve(all.size());
  for (const auto& group : all) words.push_back(group.word);
  return words;
}

std::string bash() {
  const auto all = groups();
  std::string cases;
  for (const auto& group : all)
    cases += fmt::format("    {}) actions=\"{}\"; options=\"{}\" ;;\n", group.word, fmt::join(group.actions, " "),
                         fmt::join(group.options, " "));
  return fmt::format(
      "# culprit's completions for bash; load them with: source <(culprit completions bash)\n"
      "_culprit() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} actions= options=\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W \"{} --version --help\" -- \"$word\"))\n"
      "    return\n"
      "  fi\n"
      "  case ${{COMP_WORDS[1]}} in\n"
      "{}"
      "  esac\n"
      "  if [[ $word == -* ]]; then\n"
      "    COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n"
      "  elif [ \"$COMP_CWORD\" -eq 2 ] && [ -n \"$actions\" ]; then\n"
      "    COMPREPLY=($(compgen -W \"$actions\" -- \"$word\"))\n"
      "  else\n"
      "    COMPREPLY=($(compgen -f -- \"$word\"))\n"
      "  fi\n"
      "}}\n"
      "complete -o filenames -F _culprit culprit\n",
      fmt::join(words_of(all), " "), cases);
}

std::string zsh() {
  const auto all = groups();
  std::string cases;
  for (const auto& group : all)
    cases +=
        fmt::format("    {}) actions=({}); options=({}) ;;\n", group.word, fmt::join(group.actions, " "), fmt::join(group.options, " "));
  return fmt::format(
      "#compdef culprit\n"
      "# culprit's completions for zsh; load them with: source <(culprit completions zsh)\n"
      "_culprit() {{\n"
      "  local -a actions options\n"
      "  if (( CURRENT == 2 )); then\n"
      "    compadd -- {} --version --help\n"
      "    return\n"
      "  fi\n"
      "  case ${{words[2]}} in\n"
      "{}"
      "  esac\n"
      "  if [[ $PREFIX == -* ]]; then\n"
      "    compadd -- $options\n"
      "  elif (( CURRENT == 3 && $#actions )); then\n"
      "    compadd -- $actions\n"
      "  else\n"
      "    _files\n"
      "  fi\n"
      "}}\n"
      "compdef _culprit culprit\n",
      fmt::join(words_of(all), " "), cases);
}

Result<int> completions(Context& context, const Arguments& arguments) {
  const auto& shell = arguments.positionals()[0];
  if (shell == "bash") {
    context.out(bash());
  } else if (shell == "zsh") {
    context.out(zsh());
  } else {
    return fail("usage", fmt::format("there are completions for bash and zsh, not for '{}'", shell));
  }
  return 0;
}

}  // namespace

const Verb kCompletions = {.name = "completions",
                           .summary = "print the shell's completions: bash or zsh",
                           .details = "",
                           .options = {},
                           .positionals = {{.name = "SHELL"}},
                           .run = completions};

}  // namespace culprit::cli
