#include "cli/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/text.h"

namespace culprit::cli {
namespace {

constexpr OptionEntry kGlobalOptions[] = {
    {.name = "home", .placeholder = "DIR", .help = "where engines and models are installed (else CULPRIT_HOME, else the XDG data folder)"},
    {.name = "json", .placeholder = "", .help = "the result as one JSON document on stdout"},
    {.name = "quiet", .placeholder = "", .help = "no progress on stderr"},
    {.name = "help", .placeholder = "", .help = "what the verb does and takes"},
};

std::string hint(std::string_view word, std::span<const std::string_view> candidates) {
  const auto close = nearest(word, candidates);
  return close.empty() ? "" : fmt::format("; did you mean {}?", close);
}

/// The second words of the verbs that start with `group`: "list", "add".
std::vector<std::string_view> actions_of(std::span<const Verb* const> verbs, std::string_view group) {
  std::vector<std::string_view> actions;
  for (const auto* verb : verbs)
    if (verb->name.size() > group.size() && verb->name.starts_with(group) && verb->name[group.size()] == ' ')
      actions.push_back(verb->name.substr(group.size() + 1));
  return actions;
}

std::vector<std::string_view> first_words(std::span<const Verb* const> verbs) {
  std::vector<std::string_view> words;
  for (const auto* verb : verbs)
    if (const auto word = verb->name.substr(0, verb->name.find(' ')); !verb->hidden && (words.empty() || words.back() != word))
      words.push_back(word);
  return words;
}

tl::unexpected<Error> unknown_verb(std::span<const Verb* const> verbs, std::string_view word) {
  const auto words = first_words(verbs);
  const auto close = hint(word, words);
  return fail("verb-unknown",
              fmt::format("there is no verb '{}'{}", word, close.empty() ? fmt::format("; there are {}", fmt::join(words, ", ")) : close));
}

/// Takes the verb's words off the front of `rest`.
Result<const Verb*> take_verb(std::span<const Verb* const> verbs, std::vector<std::string>& rest) {
  const auto word = rest.front();
  rest.erase(rest.begin());
  if (word.find(' ') != std::string::npos) return unknown_verb(verbs, word);
  if (const auto* verb = find_verb(verbs, word)) return verb;
  const auto actions = actions_of(verbs, word);
  if (actions.empty()) return unknown_verb(verbs, word);
  if (rest.empty() || rest.front().starts_with('-'))
    return fail("usage", fmt::format("'{}' wants one of {}", word, fmt::join(actions, ", ")));
  if (const auto* verb = find_verb(verbs, fmt::format("{} {}", word, rest.front()))) {
    rest.erase(rest.begin());
    return verb;
  }
  const auto close = nearest(rest.front(), actions);
  return fail("verb-unknown", fmt::format("there is no verb '{} {}'; {}", word, rest.front(),
                                          close.empty() ? fmt::format("there are {}", fmt::join(actions, ", "))
                                                        : fmt::format("did you mean '{} {}'?", word, close)));
}

const OptionEntry* find_option(std::span<const OptionEntry> options, std::string_view name) {
  const auto found = std::ranges::find(options, name, &OptionEntry::name);
  return found == options.end() ? nullptr : &*found;
}

tl::unexpected<Error> unknown_option(const Verb* verb, std::string_view name) {
  std::vector<std::string> dashed;
  for (const auto& entry : kGlobalOptions) dashed.push_back(fmt::format("--{}", entry.name));
  if (verb != nullptr)
    for (const auto& entry : verb->options) dashed.push_back(fmt::format("--{}", entry.name));
  const std::vector<std::string_view> candidates(dashed.begin(), dashed.end());
  const auto given = fmt::format("--{}", name);
  return fail("option-unknown", fmt::format("{} no option '{}'{}", verb == nullptr ? "there is" : fmt::format("'{}' has", verb->name),
                                            given, hint(given, candidates)));
}

/// Takes the option at the front of `rest`, with its value.
Result<void> take_option(const Verb* verb, std::vector<std::string>& rest, Arguments& arguments) {
  const auto word = rest.front();
  rest.erase(rest.begin());
  const auto equals = word.find('=');
  const auto name = word == "-h" ? "help" : word.substr(2, equals == std::string::npos ? equals : equals - 2);
  if (word != "-h" && !word.starts_with("--")) return fail("option-unknown", fmt::format("there is no option '{}'", word));
  const auto* entry = find_option(kGlobalOptions, name);
  if (entry == nullptr && verb != nullptr) entry = find_option(verb->options, name);
  if (entry == nullptr) return unknown_option(verb, name);
  if (!entry->repeated && arguments.has(name)) return fail("option-value", fmt::format("--{} is given twice", name));
  if (entry->placeholder.empty()) {
    if (equals != std::string::npos) return fail("option-value", fmt::format("--{} takes no value", name));
    arguments.add(name, "");
    return {};
  }
  if (equals != std::string::npos) {
    arguments.add(name, word.substr(equals + 1));
  } else if (rest.empty() || rest.front().starts_with("--")) {
    return fail("option-value", fmt::format("--{} wants a value: {}", name, entry->placeholder));
  } else {
    arguments.add(name, rest.front());
    rest.erase(rest.begin());
  }
  if (arguments.values(name).back().empty()) return fail("option-value", fmt::format("--{}: the value is empty", name));
  return {};
}

Result<void> check_complete(const Verb& verb, const Arguments& arguments) {
  const auto given = arguments.positionals().size();
  const auto required = static_cast<std::size_t>(std::ranges::count_if(verb.positionals, &PositionalEntry::required));
  if (given < required)
    return fail("usage", fmt::format("'{}' wants {}; see: culprit help {}", verb.name, verb.positionals[given].name, verb.name));
  const bool open = !verb.positionals.empty() && verb.positionals.back().repeated;
  const auto most = verb.positionals.size();
  if (!open && given > most)
    return fail("usage",
                fmt::format("'{}' takes {} argument{}, '{}' is too many; see: culprit help {}", verb.name,
                            most == 0 ? "no" : fmt::to_string(most), most == 1 ? "" : "s", arguments.positionals()[most], verb.name));
  for (const auto& option : verb.options)
    if (option.required && !arguments.has(option.name))
      return fail("usage", fmt::format("'{}' wants --{} {}; see: culprit help {}", verb.name, option.name, option.placeholder, verb.name));
  return {};
}

}  // namespace

bool Arguments::has(std::string_view option) const { return options_.find(option) != options_.end(); }

std::optional<std::string> Arguments::value(std::string_view option) const {
  const auto& all = values(option);
  return all.empty() ? std::nullopt : std::optional(all.back());
}

std::string Arguments::value_or(std::string_view option, std::string_view otherwise) const {
  return value(option).value_or(std::string(otherwise));
}

const std::vector<std::string>& Arguments::values(std::string_view option) const {
  static const std::vector<std::string> none;
  const auto found = options_.find(option);
  return found == options_.end() ? none : found->second;
}

Result<std::int64_t> Arguments::integer(std::string_view option, std::int64_t otherwise, std::int64_t min, std::int64_t max) const {
  const auto text = value(option);
  if (!text) return otherwise;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc() || end != text->data() + text->size() || number < min || number > max)
    return fail("option-value", fmt::format("--{} is '{}', expected a whole number from {} to {}", option, *text, min, max));
  return number;
}

std::span<const OptionEntry> global_options() { return kGlobalOptions; }

const Verb* find_verb(std::span<const Verb* const> verbs, std::string_view name) {
  const auto found = std::ranges::find(verbs, name, &Verb::name);
  return found == verbs.end() ? nullptr : *found;
}

Result<Parsed> parse(std::span<const Verb* const> verbs, const std::vector<std::string>& words) {
  Parsed parsed;
  std::vector<std::string> rest = words, verb_words;
  bool options_end = false;
  if (rest.empty()) rest = {"help"};
  if (rest.front() == "--version") rest.front() = "version";
  while (!rest.empty()) {
    if (!options_end && rest.front() == "--") {
      options_end = true;
      rest.erase(rest.begin());
    } else if (!options_end && rest.front().starts_with('-') && rest.front() != "-") {
      CULPRIT_CHECK(take_option(parsed.verb, rest, parsed.arguments));
    } else if (parsed.verb == nullptr) {
      CULPRIT_TRY(parsed.verb, take_verb(verbs, rest));
    } else {
      parsed.arguments.add_positional(rest.front());
      rest.erase(rest.begin());
    }
  }
  if (parsed.arguments.has("help")) {
    Arguments about;
    if (parsed.verb != nullptr && parsed.verb->name != "help") about.add_positional(std::string(parsed.verb->name));
    return Parsed{find_verb(verbs, "help"), about};
  }
  if (parsed.verb == nullptr) return fail("usage", "no verb is given; see: culprit help");
  CULPRIT_CHECK(check_complete(*parsed.verb, parsed.arguments));
  return parsed;
}

}  // namespace culprit::cli
