#include "cli/command_line.h"

#include <gtest/gtest.h>

#include <set>

#include "cli/help_text.h"
#include "cli/verbs.h"

namespace culprit::cli {
namespace {

Result<int> nothing(Context&, const Arguments&) { return 0; }

const Verb kCook = {.name = "cook",
                    .summary = "cook a dish",
                    .details = "",
                    .options = {{.name = "salt", .placeholder = "GRAMS", .help = "how much"},
                                {.name = "with", .placeholder = "WHAT", .help = "what else", .repeated = true},
                                {.name = "hot", .placeholder = "", .help = "serve hot"}},
                    .positionals = {{.name = "DISH"}, {.name = "GUEST", .required = false, .repeated = true}},
                    .run = nothing};
const Verb kTableSet = {.name = "table set",
                        .summary = "set the table",
                        .details = "",
                        .options = {{.name = "plates", .placeholder = "N", .help = "how many", .required = true}},
                        .positionals = {},
                        .run = nothing};
const Verb kTableClear = {
    .name = "table clear", .summary = "clear the table", .details = "", .options = {}, .positionals = {}, .run = nothing};
const Verb kAHelp = {.name = "help",
                     .summary = "",
                     .details = "",
                     .options = {},
                     .positionals = {{.name = "VERB", .required = false, .repeated = true}},
                     .run = nothing};
constexpr const Verb* kTable[] = {&kCook, &kTableSet, &kTableClear, &kAHelp};

Result<Parsed> parsed(const std::vector<std::string>& words) { return parse(kTable, words); }
std::string error_of(const std::vector<std::string>& words) {
  const auto result = parsed(words);
  return result ? "none" : result.error().id + ": " + result.error().message;
}

TEST(CommandLine, OptionsStandAnywhereAndTakeTheirValueInBothForms) {
  const auto result = parsed({"--json", "cook", "soup", "--salt=3", "--with", "bread", "anna", "--with=butter", "--hot"});
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->verb, &kCook);
  EXPECT_EQ(result->arguments.positionals(), (std::vector<std::string>{"soup", "anna"}));
  EXPECT_EQ(result->arguments.value("salt"), "3");
  EXPECT_EQ(result->arguments.values("with"), (std::vector<std::string>{"bread", "butter"}));
  EXPECT_TRUE(result->arguments.has("hot"));
  EXPECT_TRUE(result->arguments.has("json"));
  EXPECT_FALSE(result->arguments.has("quiet"));
}

TEST(CommandLine, AValueMayBeginWithOneDashAndTwoDashesEndTheOptions) {
  const auto result = parsed({"cook", "--salt", "-3", "--", "--hot"});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->arguments.value("salt"), "-3");
  EXPECT_EQ(result->arguments.positionals(), std::vector<std::string>{"--hot"});
  EXPECT_FALSE(result->arguments.has("hot"));
}

TEST(CommandLine, VerbsOfTwoWords) {
  const auto result = parsed({"table", "set", "--plates", "4"});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->verb, &kTableSet);
  EXPECT_EQ(error_of({"table"}), "usage: 'table' wants one of set, clear");
  EXPECT_EQ(error_of({"table", "clar"}), "verb-unknown: there is no verb 'table clar'; did you mean 'table clear'?");
  EXPECT_EQ(error_of({"table set"}), "verb-unknown: there is no verb 'table set'; there are cook, table, help");
}

TEST(CommandLine, SlipsGetTheNearestName) {
  EXPECT_EQ(error_of({"cok", "soup"}), "verb-unknown: there is no verb 'cok'; did you mean cook?");
  EXPECT_EQ(error_of({"cook", "soup", "--slat", "3"}), "option-unknown: 'cook' has no option '--slat'; did you mean --salt?");
  EXPECT_EQ(error_of({"cook", "soup", "--jsn"}), "option-unknown: 'cook' has no option '--jsn'; did you mean --json?");
  EXPECT_EQ(error_of({"cook", "soup", "-x"}), "option-unknown: there is no option '-x'");
}

TEST(CommandLine, WhatIsMissingOrTooMuchIsNamed) {
  EXPECT_EQ(error_of({"cook"}), "usage: 'cook' wants DISH; see: culprit help cook");
  EXPECT_EQ(error_of({"table", "set"}), "usage: 'table set' wants --plates N; see: culprit help table set");
  EXPECT_EQ(error_of({"table", "clear", "now"}),
            "usage: 'table clear' takes no arguments, 'now' is too many; see: culprit help table clear");
  EXPECT_EQ(error_of({"cook", "soup", "--salt"}), "option-value: --salt wants a value: GRAMS");
  EXPECT_EQ(error_of({"cook", "soup", "--salt", "--hot"}), "option-value: --salt wants a value: GRAMS");
  EXPECT_EQ(error_of({"cook", "soup", "--salt="}), "option-value: --salt: the value is empty");
  EXPECT_EQ(error_of({"cook", "soup", "--hot=yes"}), "option-value: --hot takes no value");
  EXPECT_EQ(error_of({"cook", "soup", "--salt", "1", "--salt", "2"}), "option-value: --salt is given twice");
  EXPECT_EQ(error_of({"--json"}), "usage: no verb is given; see: culprit help");
}

TEST(CommandLine, HelpNeedsNoCompleteCommand) {
  const auto about_table = parsed({"table", "set", "--help"});
  ASSERT_TRUE(about_table);
  EXPECT_EQ(about_table->verb, &kAHelp);
  EXPECT_EQ(about_table->arguments.positionals(), std::vector<std::string>{"table set"});
  const auto overall = parsed({});
  ASSERT_TRUE(overall);
  EXPECT_EQ(overall->verb, &kAHelp);
  EXPECT_TRUE(overall->arguments.positionals().empty());
}

TEST(CommandLine, NumbersAreWholeAndInRange) {
  Arguments arguments;
  arguments.add("good", "12");
  arguments.add("bad", "12x");
  arguments.add("large", "99999999999999999999");
  EXPECT_EQ(arguments.integer("good", 0, 0, 12).value(), 12);
  EXPECT_EQ(arguments.integer("absent", 7, 0, 12).value(), 7);
  EXPECT_EQ(arguments.integer("good", 0, 0, 11).error().id, "option-value");
  EXPECT_EQ(arguments.integer("bad", 0, 0, 99).error().id, "option-value");
  EXPECT_EQ(arguments.integer("large", 0, 0, INT64_MAX).error().id, "option-value");
}

TEST(Verbs, TheTableIsSound) {
  std::set<std::string_view> names;
  for (const auto* verb : verbs()) {
    EXPECT_TRUE(names.insert(verb->name).second) << verb->name;
    EXPECT_FALSE(verb->summary.empty()) << verb->name;
    EXPECT_NE(verb->run, nullptr) << verb->name;
    std::set<std::string_view> options;
    for (const auto& option : global_options()) options.insert(option.name);
    for (const auto& option : verb->options) {
      EXPECT_TRUE(options.insert(option.name).second) << verb->name << " --" << option.name;
      EXPECT_FALSE(option.help.empty()) << verb->name << " --" << option.name;
    }
    for (std::size_t i = 0; i + 1 < verb->positionals.size(); ++i) {
      EXPECT_FALSE(verb->positionals[i].repeated) << verb->name;
      EXPECT_GE(verb->positionals[i].required, verb->positionals[i + 1].required) << verb->name;
    }
    EXPECT_EQ(find_verb(verbs(), verb->name), verb);
    EXPECT_NE(help_of(*verb).find(verb->summary), std::string::npos);
  }
}

}  // namespace
}  // namespace culprit::cli
