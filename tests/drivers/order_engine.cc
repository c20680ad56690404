// The reference engine, whose results depend on when it evaluates: order_engine HOW. One op's output (kPlace) is fragile: what becomes of it
// when its first consumer (kConsumer) finds it not evaluated is HOW; with "needs-two", when that or kOther was not.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <string_view>

#include "engines/ref/program_path.h"
#include "engines/ref/ref_backend.h"

namespace culprit {
namespace {

constexpr std::string_view kPlace = "layers.1.attn_norm", kConsumer = "layers.1.q", kOther = "layers.0.attn", kLast = "final_norm";

class OrderBackend final : public ref::RefBackend {
 public:
  OrderBackend(std::string program, std::string_view how) : RefBackend(std::move(program)), how_(how) {}

  // Declared as what one ulp of another rounding is: accumulation in f32.
  Json hello() override {
    auto hello = RefBackend::hello();
    for (auto& arithmetic : hello["ops"]["rms_norm"]["arithmetic"]) arithmetic["accumulate"] = "f32";
    return hello;
  }

  Result<void> eval(std::span<const kit::Array> arrays) override {
    for (const auto& array : arrays) {
      evaluated_ = evaluated_ || (array != nullptr && array.get() == fragile_.lock().get());
      other_evaluated_ = other_evaluated_ || (array != nullptr && array == other_.lock());
    }
    return {};
  }
  Result<void> async_eval(std::span<const kit::Array> arrays) override { return eval(arrays); }

  Result<kit::Array> apply(const kit::OpRequest& request) override {
    const std::string_view tap = request.node->output;
    if (tap == kConsumer && !(evaluated_ && (other_evaluated_ || how_ != "needs-two")))
      if (const auto fragile = fragile_.lock()) spoil(*fragile);
    CULPRIT_TRY(auto output, RefBackend::apply(request));
    if (tap == kLast && how_ == "reuses-memory" && fragile_.expired() && !evaluated_) return nudged(output);
    if (tap == kOther) {
      other_ = output;
      other_evaluated_ = false;
    }
    if (tap != kPlace) return output;
    if (how_ == "not-repeatable" && (random_() & 1) != 0) return nudged(output);
    const auto own = std::make_shared<Tensor>(static_cast<const Tensor*>(output.get())->copy());
    fragile_ = own;
    evaluated_ = false;
    return kit::Array(own);
  }

 private:
  /// One ulp nearer to 0: legal rounding.
  static Tensor with_other_rounding(const Tensor& x) {
    auto values = x.values();
    for (auto& value : values) value = std::nextafter(static_cast<float>(value), 0.0F);
    return Tensor::from_values(x.dtype(), x.shape(), values);
  }
  static kit::Array nudged(const kit::Array& x) {
    return std::make_shared<const Tensor>(with_other_rounding(*static_cast<const Tensor*>(x.get())));
  }
  void spoil(Tensor& x) const {
    if (how_ == "stale") x = Tensor::zeros(x.dtype(), x.shape());
    if (how_ == "other-rounding" || how_ == "needs-two") x = with_other_rounding(x);
  }

  std::string_view how_;
  std::weak_ptr<Tensor> fragile_;
  std::weak_ptr<const void> other_;
  bool evaluated_ = false, other_evaluated_ = false;
  std::mt19937 random_{1};
};

}  // namespace
}  // namespace culprit

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  culprit::OrderBackend backend(culprit::ref::program_path(argv[0]), argv[1]);
  return culprit::kit::serve(backend);
}
