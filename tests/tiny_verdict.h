#pragma once
// A verdict document for tests of what is made of one.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/test_dir.h"
#include "decode/model.h"
#include "installed.h"
#include "locate/find.h"

namespace culprit {

/// The document of a `find` on a tiny model of the reference engine, with these faults planted and these suspects tested.
inline Json verdict_of(const std::vector<std::string>& faults, const std::string& suspects = {}) {
  const TestDir dir;
  EXPECT_TRUE(write_random_model(dir / "model", {.facts = tiny_llama_facts(), .seed = 1}));
  FindOptions options;
  options.engine = *installed().engine("ref");
  options.model = dir / "model";
  options.model_name = "tiny";
  options.suspects = suspects;
  options.work = dir / "work";
  for (const auto& fault : faults) options.faults.push_back(*FaultSpec::parse(fault));
  const auto verdict = find(options);
  if (!verdict) {
    ADD_FAILURE() << to_string(verdict.error());
    return {};
  }
  return to_json(*verdict);
}

}  // namespace culprit
