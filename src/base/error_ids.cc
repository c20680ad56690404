#include "base/error_ids.h"

namespace culprit {
namespace {
constexpr ErrorId kErrorIds[] = {
    // input and usage
    {"usage", 2, "the command line could not be understood"},
    {"verb-unknown", 2, "there is no such verb"},
    {"option-unknown", 2, "the verb has no such option"},
    {"option-value", 2, "an option's value is missing or out of its range"},
    {"model-missing", 2, "no model of that name is installed and no file of that path exists"},
    {"model-unsupported", 2, "the model's architecture or tensors are not supported"},
    {"engine-unknown", 2, "there is no engine of that name"},
    {"engine-missing", 2, "the engine is known but not installed in that version"},
    {"engine-version", 2, "the package index has no such version of the engine"},
    {"engine-build", 4, "the engine's package was fetched but its driver could not be built"},
    {"fault-unknown", 2, "there is no fault of that id"},
    {"fault-parameter", 2, "the fault has no such parameter or value"},
    {"suspect-unknown", 2, "there is no suspect of that name"},
    {"tokens-invalid", 2, "a token id is not a number, is out of the vocabulary, or there are none"},
    {"dtype-unknown", 2, "there is no dtype of that name"},
    {"plan-invalid", 2, "a plan's fields contradict each other or are out of range"},
    {"file-missing", 2, "a file cannot be opened"},
    {"file-write", 4, "a file cannot be written; the disk may be full"},
    {"json-invalid", 2, "text is not the JSON that was expected"},
    {"safetensors-invalid", 2, "a safetensors file is malformed or truncated"},
    {"npy-invalid", 2, "an npy file is malformed or truncated"},
    {"gguf-invalid", 2, "a GGUF file is malformed or truncated"},
    {"gguf-unsupported", 2, "a GGUF file uses a block type or version that is not supported"},
    {"trace-invalid", 2, "a trace folder is malformed"},
    {"tap-unknown", 2, "the decode graph has no such tap"},
    {"tensor-layout", 2, "a view reaches outside its storage, or shapes do not fit"},
    {"case-invalid", 2, "a case's file is malformed, or its parts do not fit"},
    {"case-unknown", 2, "there is no case of that name"},
    {"factor-unknown", 2, "no run of the verdict has a factor of that name"},
    {"campaign-other", 2, "the folder holds cases of another campaign: of another seed, count, engine, release or catalogue"},
    {"verdict-invalid", 2, "a verdict document is malformed or of another version"},
    {"package-fetch", 4, "a package could not be fetched"},
    // engine failures
    {"engine-start", 4, "the driver could not be started"},
    {"engine-crash", 4, "the driver ended before it answered"},
    {"engine-hang", 4, "the driver exceeded its time limit and its process group was ended"},
    {"engine-garbage", 4, "the driver printed something that is not the protocol"},
    {"engine-line-limit", 4, "the driver printed a line longer than 1 MiB"},
    {"engine-error", 4, "the driver answered a request with an error"},
    {"engine-trace", 4, "the driver's trace is incomplete or truncated"},
    {"engine-disk", 4, "the driver ran out of space for its trace"},
    {"not-supported", 4, "the driver does not offer what the plan asks for"},
    // refusals of the ledger
    {"confounded", 3, "two arms that differ in more than one factor cannot be compared"},
    {"never-run", 3, "a conclusion cites a run that was not made"},
    {"library-changed", 3, "the engine's library changed between the runs of one conclusion"},
    {"not-derived", 3, "a conclusion does not follow from the runs of its verdict"},
    {"cannot-show", 3, "the fixture could not have shown the fault"},
    {"interrupted", 130, "the run was interrupted; its processes were ended"},
    {"internal", 4, "a defect of culprit itself"},
};
}  // namespace

std::span<const ErrorId> error_ids() { return kErrorIds; }

int exit_code_of(std::string_view id) {
  for (const auto& entry : kErrorIds)
    if (entry.id == id) return entry.exit_code;
  return 4;
}

}  // namespace culprit
