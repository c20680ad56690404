// The root-cause record of a verdict: everything that a maintainer needs is in it, and a conclusion that does not follow is marked.
#include <gtest/gtest.h>

#include <algorithm>

#include "report/markdown.h"
#include "tiny_verdict.h"

namespace culprit {
namespace {

TEST(Markdown, HoldsWhatAMaintainerNeeds) {
  auto verdict = verdict_of({"F01:content=zero"}, "cache,rope");
  const auto text = markdown_of(verdict);
  ASSERT_TRUE(text) << to_string(text.error());
  const std::string hash = verdict.at("environment").at("library_sha256");
  for (const auto& part : {std::string("# proved: ref@0.1.0 on tiny in f32"), std::string("culprit find tiny --engine ref"), hash,
                           std::string("| operation | rope (`k_rope`, `q_rope`) |"), std::string("index of dimension 0 > 0"),
                           std::string("F01:content=zero"), std::string("| sufficiency |"), std::string("| control |"),
                           std::string("| necessity |"), std::string("interventions only"), std::string("| cache | cleared |"),
                           std::string("| rope | charged |"), std::string("## Not tested"), std::string("## Runs that are cited")})
    EXPECT_NE(text->find(part), std::string::npos) << part << "\n" << *text;
  EXPECT_EQ(text->find("Not derived"), std::string::npos);
  EXPECT_EQ(text->find("refused"), std::string::npos);
  // Each table's rows have the columns of its head.
  std::size_t columns = 0;
  for (std::size_t at = 0; at < text->size();) {
    const auto end = std::min(text->find('\n', at), text->size());
    std::size_t bars = 0;
    for (std::size_t i = at; i < end; ++i) bars += (*text)[i] == '|' && (i == at || (*text)[i - 1] != '\\');
    if (end == at || (*text)[at] != '|') bars = 0;
    if (bars > 0 && columns > 0) {
      EXPECT_EQ(bars, columns) << text->substr(at, end - at);
    }
    columns = bars;
    at = end + 1;
  }

  verdict["defects"][0]["predictions"] = Json::array();
  EXPECT_NE(markdown_of(verdict)->find("**Not derived from these runs: no prediction"), std::string::npos);
}

TEST(Markdown, WantsAVerdict) { EXPECT_EQ(markdown_of(Json{{"schema", "another"}}).error().id, "verdict-invalid"); }

}  // namespace
}  // namespace culprit
