#include "locate/known_defects.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>

namespace culprit {

std::span<const KnownDefect> known_defects() {
  static constexpr KnownDefect kDefects[] = {
      {"mlx 2791", "ml-explore/mlx#2791", "mlx", "rope", "F09:table=dtype", "bf16 f16", "", "", "0.29.4", "0.30.0", "",
       "RoPE computes positions and frequencies in the input's dtype"},
      {"mlx 3664", "ml-explore/mlx#3664", "mlx", "load", "F17:q4_1_nibbles=2", "", "block type Q4_1", "", "0.31.2", "0.32.0", "",
       "the GGUF loader reads the nibbles of Q4_1 blocks two bytes early"},
      {"mlx 3494", "ml-explore/mlx#3494", "mlx", "rope", "F01", "", "L = 1", "0.29.2", "0.31.2", "0.32.0", "Metal",
       "single-token RoPE rotates only index 0 of dimension 0"},
      {"mlx 2835", "ml-explore/mlx#2835", "mlx", "sdpa", "F12:mask=top_left", "", "more queries than keys", "", "0.30.4", "0.30.5", "",
       "\"causal\" is aligned top-left when there are more queries than keys"},
      {"mlx 3647", "ml-explore/mlx#3647", "mlx", "gather", "", "", "source is column-contiguous", "", "0.31.2", "0.32.0", "CPU",
       "take from a column-contiguous source returns transposed slices"},
      {"mlx 4090", "ml-explore/mlx#4090", "mlx", "all, any", "", "", "", "", "0.32.0", "0.32.1", "CPU", "any and all take -0.0 for true"},
      {"mlx 3762", "ml-explore/mlx#3762", "mlx", "linear", "F17:scale=raw_byte", "", "L = 1", "", "", "", "Metal",
       "the matrix-vector path of fp4 and fp8 weights with fewer than 8 output channels multiplies by the raw byte of the scale"},
      {"mlx 3550", "ml-explore/mlx#3550", "mlx", "linear", "F24:bits=4,term=scale", "", "L = 1", "", "", "", "Metal",
       "the matrix-vector path of nvfp4 drops the scale of the whole tensor"},
      {"mlx 4431", "ml-explore/mlx#4431", "mlx", "sdpa", "F04", "", "row > 0", "", "", "", "",
       "attention takes the keys and values of batch row 0 for all rows"},
      {"mlx-rs 359", "oxideai/mlx-rs#359", "mlx-rs", "rope", "F01", "", "L = 1", "", "", "", "Metal",
       "the single-token RoPE of MLX, as seen through mlx-rs"},
      {"mlxcel 1358", "lablup/mlxcel#1358", "mlxcel", "rope", "F09", "", "", "", "", "", "", "rotary table of another precision or regime"},
      {"mlx-lm 1097", "ml-explore/mlx-lm#1097", "mlx-lm", "rope", "F05", "", "", "", "", "", "",
       "queries are rotated at the offset after the update"},
      {"mlx-lm 1396", "ml-explore/mlx-lm#1396", "mlx-lm", "rope", "F05", "", "", "", "", "", "",
       "queries are rotated at the offset after the update"},
      {"mlx-vlm 1983", "Blaizzy/mlx-vlm#1983", "mlx-vlm", "rope", "F08", "", "L = 1", "", "", "", "",
       "decode steps lose the base of their positions"},
      {"mlx-vlm 1715", "Blaizzy/mlx-vlm#1715", "mlx-vlm", "cache_write", "F13", "", "", "", "", "", "",
       "a ring is read or trimmed by its logical length"},
      {"mlx-lm 1914", "ml-explore/mlx-lm#1914", "mlx-lm", "cache_write", "F13", "", "", "", "", "", "",
       "a ring frees one slot whatever the number of new tokens"},
      {"mlx-swift-lm 406", "ml-explore/mlx-swift-lm#406", "mlx-swift-lm", "cache_write", "F21", "", "", "", "", "", "",
       "the write slot is frozen in a traced graph"},
      {"mlx-swift-lm 424", "ml-explore/mlx-swift-lm#424", "mlx-swift-lm", "cache_write", "F23", "", "after a draft was taken back", "", "",
       "", "", "a rejected draft stays in the cache"},
      {"pytorch 181133", "pytorch/pytorch#181133", "pytorch", "sdpa", "F02", "", "input is a strided view", "", "", "", "",
       "a strided view is read as if it were dense"},
      {"transformers 47331", "huggingface/transformers#47331", "transformers", "linear", "F03", "", "row > 0", "", "", "", "",
       "row z of a batch uses scales shifted by z rows"},
      {"transformers 39408", "huggingface/transformers#39408", "transformers", "sdpa", "F11", "", "", "", "", "", "",
       "a sliding layer's window is one too wide, or missing"},
      {"onnxruntime-genai 2354", "microsoft/onnxruntime-genai#2354", "onnxruntime-genai", "cache_write", "F06", "", "cache not empty", "",
       "", "", "", "keys and values are written at the wrong slot"},
      {"unsloth 3795", "unslothai/unsloth#3795", "unsloth", "rope", "F07", "", "row is padded", "", "", "", "",
       "left-padded rows share one position vector"},
      {"unsloth 9848", "unslothai/unsloth#9848", "unsloth", "sdpa", "F12:mask=no_padding", "", "row is padded", "", "", "", "",
       "decode has no mask for padding"},
      {"llama.cpp 3835", "ggml-org/llama.cpp#3835", "llama.cpp", "cache_write", "F10", "", "", "", "", "", "",
       "shifted keys are not rotated again"},
      {"vllm 43961", "vllm-project/vllm#43961", "vllm", "sdpa", "F14", "", "", "", "", "", "", "the tail of the last block is not masked"},
      {"vllm 47188", "vllm-project/vllm#47188", "vllm", "sdpa", "F15", "", "", "", "", "", "",
       "the merge of a split cache counts an empty split, or another head's log-sum-exp"},
      {"vllm 22003", "vllm-project/vllm#22003", "vllm", "sdpa", "F15", "", "", "", "", "", "",
       "the merge of a split cache counts an empty split, or another head's log-sum-exp"},
      {"vllm 50427", "vllm-project/vllm#50427", "vllm", "cache_write", "F18", "", "", "", "", "", "", "an index wraps past its limit"},
      {"vllm 45357", "vllm-project/vllm#45357", "vllm", "cache_write", "F19", "", "rows joined or left", "", "", "", "",
       "a block is read by the table of another step"},
      {"vllm-metal 665", "vllm-project/vllm-metal#665", "vllm-metal", "sdpa", "F16", "", "", "", "", "", "Metal",
       "a path lacks a term, or does not store all heads or channels"},
      {"sglang 20705", "sgl-project/sglang#20705", "sglang", "cache_write", "F17", "", "", "", "", "", "",
       "a quantised cache is read with other scales, or its keys are not quantised"},
      {"LMCache 4991", "LMCache/LMCache#4991", "LMCache", "cache_write", "F20", "", "", "", "", "", "",
       "a reused block is foreign, unwritten or half overwritten"},
      {"TinyLlama 24", "jzhang38/TinyLlama#24", "TinyLlama", "sdpa", "F22", "", "", "", "", "", "",
       "grouped kv heads are taken in the wrong order"},
      {"ik_llama 2214", "ikawrakow/ik_llama.cpp#2214", "ik_llama.cpp", "linear", "F24", "", "L = 1", "", "", "", "",
       "the matrix-vector product of one quantised type is wrong"},
  };
  return kDefects;
}

int compare_versions(std::string_view a, std::string_view b) {
  const auto next = [](std::string_view& text) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    text.remove_prefix(error == std::errc() ? static_cast<std::size_t>(end - text.data()) : text.size());
    if (!text.empty()) text.remove_prefix(1);
    return value;
  };
  while (!a.empty() || !b.empty()) {
    const int x = next(a), y = next(b);
    if (x != y) return x < y ? -1 : 1;
  }
  return 0;
}

std::string releases_of(const KnownDefect& defect) {
  const auto on = defect.backend.empty() ? std::string() : fmt::format(" on {}", defect.backend);
  if (defect.last.empty()) return "releases not known" + on;
  const auto range =
      defect.first.empty() ? fmt::format("releases up to {}", defect.last) : fmt::format("releases {} to {}", defect.first, defect.last);
  return fmt::format("{}{}{}", range, on, defect.fixed_in.empty() ? "" : fmt::format(", fixed in {}", defect.fixed_in));
}

std::string KnownMatch::text() const {
  if (fits()) return fmt::format("{} ({}): {}; {}", defect->reference, defect->link, defect->summary, releases_of(*defect));
  return fmt::format("same mechanism as {} ({}; {}), but not that defect: {}", defect->reference, defect->link, releases_of(*defect),
                     fmt::join(misfits, "; "));
}

namespace {

std::vector<std::string> parts_of(std::string_view text, std::string_view separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const auto end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + separator.size());
  }
  return parts;
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

/// Whether `fault` is `known` or names more parameters than it.
bool same_mechanism(std::string_view fault, std::string_view known) {
  if (known.empty() || fault.substr(0, fault.find(':')) != known.substr(0, known.find(':'))) return false;
  const auto colon = known.find(':');
  if (colon == std::string_view::npos) return true;
  const auto seen_colon = fault.find(':');
  const auto seen = parts_of(seen_colon == std::string_view::npos ? std::string_view{} : fault.substr(seen_colon + 1), ",");
  return std::ranges::all_of(parts_of(known.substr(colon + 1), ","),
                             [&](const std::string& parameter) { return std::ranges::find(seen, parameter) != seen.end(); });
}

bool affects(const KnownDefect& defect, std::string_view version) {
  return !version.empty() && !defect.last.empty() && compare_versions(version, defect.last) <= 0 &&
         (defect.first.empty() || compare_versions(version, defect.first) >= 0);
}

std::vector<std::string> misfits_of(const KnownDefect& defect, const SeenDefect& seen) {
  const std::string_view spec = seen.engine_spec;
  const auto at = spec.find('@');
  const auto engine = spec.substr(0, at), version = at == std::string_view::npos ? std::string_view{} : spec.substr(at + 1);
  std::vector<std::string> misfits;
  if (defect.op != seen.op) misfits.push_back(fmt::format("op {}, not {}", seen.op, defect.op));
  if (const auto dtypes = parts_of(defect.dtypes, " "); !dtypes.empty() && std::ranges::find(dtypes, name_of(seen.dtype)) == dtypes.end())
    misfits.push_back(fmt::format("dtype {}, not {}", name_of(seen.dtype), fmt::join(dtypes, " or ")));
  const auto conditions = parts_of(seen.condition, " and ");
  for (const auto& needed : parts_of(defect.condition, " and "))
    if (std::ranges::find(conditions, needed) == conditions.end())
      misfits.push_back(fmt::format("condition '{}', which lacks '{}'", seen.condition, needed));
  if (defect.engine != engine)
    misfits.push_back(fmt::format("engine {}, not {}", engine, defect.engine));
  else if (!affects(defect, version))
    misfits.push_back(fmt::format("release {}{}", version.empty() ? "not known" : version,
                                  defect.last.empty() ? "; the affected ones are not known" : ""));
  if (!defect.backend.empty() && lower(defect.backend) != lower(seen.backend))
    misfits.push_back(fmt::format("backend {}, not {}", seen.backend.empty() ? "not known" : seen.backend, defect.backend));
  return misfits;
}

}  // namespace

std::vector<KnownMatch> match_known(const SeenDefect& seen) {
  std::vector<KnownMatch> matches;
  for (const auto& defect : known_defects())
    if (same_mechanism(seen.fault, defect.fault)) matches.push_back({&defect, misfits_of(defect, seen)});
  std::ranges::stable_sort(matches, {}, [](const KnownMatch& match) { return match.misfits.size(); });
  return matches;
}

}  // namespace culprit
