#include "locate/find.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "audit/weights.h"
#include "locate/damage.h"
#include "locate/evaluation_order.h"
#include "locate/explain.h"
#include "locate/explore.h"
#include "locate/known_defects.h"
#include "locate/op_scan.h"
#include "locate/precision.h"
#include "locate/prove.h"
#include "locate/relate.h"
#include "locate/suspects.h"
#include "locate/weights_check.h"

namespace culprit {
namespace {

constexpr int kRows = 3;    // the least with more than one row beside row 0: rows > 0 and "all but one" differ
constexpr int kLength = 6;  // tokens: two chunks of three, and enough positions for an argmax to flip

std::string all_layers(const std::vector<int>& layers, int seen) {
  if (layers.size() == 1 && layers[0] < 0) return "outside the layers";
  if (static_cast<int>(layers.size()) == seen) return seen == 1 ? fmt::format("layer {}", layers[0]) : fmt::format("all {} layers", seen);
  return fmt::format("layers {} of {}", fmt::join(layers, ", "), seen);
}

std::string alike_text(const std::vector<FaultSpec>& alike) {
  if (alike.empty()) return {};
  std::vector<std::string> names;
  for (const auto& spec : alike) names.push_back(spec.text());
  return fmt::format(" (in this model the same as {})", fmt::join(names, ", "));
}

class Finder {
 public:
  Finder(const FindOptions& options, Model model) : options_(options), model_(std::move(model)), weights_(model_, options.dtype) {}

  Result<Verdict> run() {
    const auto begin = std::chrono::steady_clock::now();
    verdict_.engine = options_.engine.spec();
    verdict_.model = options_.model_name;
    verdict_.dtype = name_of(options_.dtype);
    verdict_.seed = options_.seed;
    fixture_.cache = options_.cache.text();
    CULPRIT_CHECK(make_fixture());
    CULPRIT_TRY(suspects_, parse_suspects(options_.suspects, model_.graph()));
    if (auto done = experiment(); !done) {
      if (!is_engine_failure(done.error()) && done.error().id != "not-supported") return tl::unexpected(std::move(done).error());
      failure_ = std::move(done).error();
    }
    for (const auto& relation : verdict_.relations) verdict_.compared.push_back(fmt::format("{}: {}", relation.name, to_text(relation)));
    if (!failure_)
      conclude();
    else if (is_engine_failure(*failure_))
      fail_engine();
    else
      refuse();
    name_reproducer();
    verdict_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return std::move(verdict_);
  }

 private:
  template <class... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) {
    if (options_.progress) options_.progress(fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void decide(fmt::format_string<Args...> format, Args&&... args) {
    verdict_.decisions.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  Result<void> experiment() {
    say("starting {}", options_.engine.spec());
    SessionLimits limits;
    if (options_.timeout) limits.load = limits.run = *options_.timeout;
    CULPRIT_TRY(session_, Session::start(options_.engine, options_.work, verdict_.ledger, limits));
    verdict_.environment = session_->hello();
    CULPRIT_CHECK(check_loader());
    return search();
  }

  // A crash, a hang, garbage or a full disk is a verdict of its own: what was found before it stands.
  void fail_engine() {
    const auto run = session_ ? session_->broken_run() : std::nullopt;
    verdict_.status = Status::engine_failure;
    verdict_.reason = fmt::format("{}: {}{}", failure_->id, run ? run->text() + ": " : "", failure_->message);
    verdict_.failure = EngineFailure{*failure_, run};
    verdict_.not_tested.push_back("everything after the engine's failure");
    verdict_.not_tested.push_back(
        fmt::format("why it failed; with --keep DIR its log{} in DIR",
                    run ? fmt::format(" and what '{}' recorded ({}) stay", run->arm, run->trace.filename().string()) : " stays"));
  }

  void refuse() {
    verdict_.status = Status::unsupported;
    verdict_.reason = failure_->message;
    verdict_.not_tested.push_back("anything: the engine does not offer what the first run needs");
  }

  Result<void> make_fixture() {
    const int vocabulary = model_.facts().vocabulary;
    std::size_t length = kLength;
    for (const auto& prompt : options_.prompts) {
      if (prompt.size() < 4)
        return fail("tokens-invalid",
                    fmt::format("a prompt needs at least 4 tokens to feed a prefill and two steps; got {}", prompt.size()));
      length = std::min(length, prompt.size());
    }
    const auto rows = std::max<std::size_t>(kRows, options_.prompts.size());
    auto random = random_sequences(static_cast<int>(rows), static_cast<int>(length), vocabulary, options_.seed);
    for (std::size_t row = 0; row < rows; ++row) {
      if (row >= options_.prompts.size()) {
        fixture_.sequences.push_back(random[row]);
        continue;
      }
      auto ids = options_.prompts[row];
      for (const int id : ids)
        if (id < 0 || id >= vocabulary)
          return fail("tokens-invalid", fmt::format("token id {} is outside the vocabulary of {}", id, vocabulary));
      ids.resize(length);
      fixture_.sequences.push_back(std::move(ids));
    }
    decide(
        "prompts are {} tokens at position base {}: rotary positions are relative, so a short prompt shows what a long one would, and {} "
        "needs more bits than the "
        "mantissas of bf16 hold",
        length, fixture_.position_base, fixture_.position_base);
    decide("{} rows: with one row, or equal rows, a fault of batch rows cannot show", rows);
    return {};
  }

  LoadPlan load_plan(WeightSource source) const {
    LoadPlan plan;
    plan.model = options_.model;
    plan.dtype = options_.dtype;
    plan.weights = source;
    return plan;
  }

  // Weights first: every later run rests on them. A broken loader is proved here, and culprit hands in right weights from then on.
  Result<void> check_loader() {
    if (!session_->has_own_loader() || model_.kind() != "gguf") {
      verdict_.not_tested.push_back(
          "the engine's own checkpoint loader (it has none for this checkpoint): weights are handed in by culprit");
      return session_->load(load_plan(WeightSource::culprit));
    }
    say("loading {} with the engine's own loader", options_.model_name);
    decide("weights are audited before anything is run: a wrong weight would be blamed on the op that uses it");
    if (auto loaded = session_->load(load_plan(WeightSource::engine)); !loaded) {
      if (loaded.error().id != "engine-error") return loaded;
      // The driver lives and says that its loader cannot read this checkpoint; its ops can still be tested.
      verdict_.not_tested.push_back(fmt::format("the engine's own checkpoint loader refuses {} ({}): weights are handed in by culprit",
                                                options_.model_name, loaded.error().message));
      return session_->load(load_plan(WeightSource::culprit));
    }
    CULPRIT_TRY(const auto check, check_weights(*session_, model_));
    weights_note_ =
        fmt::format("weights: {} tensors as loaded by the engine against the checkpoint, {} wrong", check.tensors, check.wrong.size());
    verdict_.compared.push_back(weights_note_);
    if (check.wrong.empty()) return {};
    Defect defect;
    auto proved = prove_loader(check, defect);
    verdict_.defects.push_back(std::move(defect));
    return proved;
  }

  Result<void> prove_loader(const WeightsCheck& check, Defect& defect) {
    say("the loader is wrong: {}; proving it", check.wrong_types);
    defect.op = "load";
    defect.taps = {"w.**"};
    defect.layers = fmt::format("{} of {} tensors", check.wrong.size(), check.tensors);
    defect.condition = fmt::format("block type {}", check.wrong_kinds);
    defect.wrong_side = fmt::format("{}: what its loader holds differs from the checkpoint's own bytes", options_.engine.spec());
    for (const auto& rejected : check.rejected) defect.ruled_out.push_back({rejected, {}});
    defect.numbers = fmt::format("{} wrong", check.wrong_types);
    if (check.explained != nullptr) {
      defect.fault = check.explained->spec;
      defect.mechanism = check.explained->mechanism;
      defect.status = Status::explained;
      ++verdict_.explained;
      defect.numbers += fmt::format(", by up to {:.4g} ({}); {} of {} predicted bit for bit", check.error_max, check.error_where,
                                    check.predicted, check.wrong.size());
      name_known(defect);
    }
    const auto arm = arm_named("prefill").plan;
    CULPRIT_TRY(const auto bad, session_->run(arm, "loader: with the engine's own weights"));
    defect.evidence.push_back({fmt::format("audit: {} of {} tensors that the engine loaded have other values than the checkpoint",
                                           check.wrong.size(), check.tensors),
                               {bad.entry},
                               Rule::audit});

    CULPRIT_CHECK(session_->load(load_plan(WeightSource::culprit)));
    CULPRIT_TRY(const auto good, session_->run(arm, "loader: with weights handed in"));
    CULPRIT_TRY(const auto moved, relate(verdict_.ledger, "engine's weights = checkpoint", good, arm, bad, arm));
    verdict_.relations.push_back(moved);
    CULPRIT_TRY(auto good_reports, audit(model_, weights_, {good.trace.get()}, audit_options(session_->hello())));
    const bool linear_right = std::ranges::none_of(good_reports[0].ops, [&](const OpAudit& op) {
      return op.judgement == Judgement::corruption && model_.graph().nodes()[static_cast<std::size_t>(op.node)].op == Op::linear;
    });
    defect.sufficient = linear_right && moved.refused.empty() && moved.logits_difference_max != 0;
    defect.evidence.push_back({fmt::format("sufficient: with right weights handed in and nothing else changed ({}), every linear op is "
                                           "inside its bound; the engine's weights move the logits: {}",
                                           moved.factor, to_text(moved)),
                               {good.entry, bad.entry},
                               Rule::sufficiency,
                               defect.sufficient,
                               {{good.entry, bad.entry, "weights"}}});
    if (check.explained != nullptr) {
      const auto& fault = *check.explained;
      auto plan = load_plan(WeightSource::culprit);
      plan.weight_fault = fault.fault;
      CULPRIT_CHECK(session_->load(plan));
      CULPRIT_TRY(const auto injected, session_->run(arm, "loader: weights handed in with only the explained fault"));
      std::int64_t equal = 0, all = 0;
      for (const auto& record : bad.trace->records()) {
        const auto* other = injected.trace->find(record.step, record.tap);
        ++all;
        equal += other != nullptr && other->hash == record.hash;
      }
      CULPRIT_TRY(const auto factor, verdict_.ledger.contrast(good.entry, injected.entry));
      defect.necessary = equal == all && all > 0 && factor == "weights";
      defect.evidence.push_back(
          {fmt::format("necessary: right weights with only {} put in: {} of {} taps equal those of the engine's own loader bit for bit",
                       fault.spec, equal, all),
           {good.entry, injected.entry, bad.entry},
           Rule::necessity,
           defect.necessary,
           {{good.entry, injected.entry, "weights"}}});
    }
    if (defect.status == Status::explained && defect.sufficient && defect.necessary) defect.status = Status::proved;
    decide("the loader is broken, so right weights are handed in from here on: what is left is not its doing");
    return session_->load(load_plan(WeightSource::culprit));
  }

  // Upstream defects of the same mechanism, once the condition is known.
  void name_known(Defect& defect) const {
    const SeenDefect seen{.engine_spec = options_.engine.spec(),
                          .backend = session_->hello().value("device", ""),
                          .op = defect.op,
                          .fault = defect.fault,
                          .condition = defect.condition,
                          .dtype = options_.dtype};
    for (const auto& match : match_known(seen)) defect.known.push_back(match.text());
  }

  Arm arm_named(const std::string& name) const {
    for (auto& arm : make_arms(fixture_))
      if (arm.name == name) return arm;
    return {};
  }

  // Faults to plant, contents settled: the first of each open one. The others are planted after the proof.
  std::vector<FaultSpec> planted(const std::string& content = {}) const {
    auto specs = options_.faults;
    for (auto& spec : specs)
      if (content_is_open(spec)) spec.parameters["content"] = content.empty() ? spec.parameter("content", "") : content;
    return specs;
  }

  Result<void> search() {
    auto arms = make_arms(fixture_);
    for (auto& arm : arms) arm.plan.faults = planted();
    for (const auto& fault : planted()) decide("{} is planted into every run, as if the engine had it", fault.text());
    note_windows();
    say("running {} arms", arms.size());
    CULPRIT_TRY(exploration_, explore(*session_, model_, weights_, arms, [this](const std::string& line) { say("{}", line); }));
    for (const auto& run : exploration_.runs) decide("arm {} (run {}): {}", run.arm.name, run.made.entry, run.arm.what);
    for (const auto& skipped : exploration_.skipped) verdict_.not_tested.push_back(skipped);
    const auto relations_here = relations(fixture_);
    if (const auto left_out = relations().size() - relations_here.size(); left_out > 0)
      verdict_.not_tested.push_back(
          fmt::format("{} relations between arms, which need not hold when other arms have the cache {}", left_out, fixture_.cache));
    CULPRIT_TRY(auto outcomes, relate_all(verdict_.ledger, exploration_, relations_here));
    for (auto& outcome : outcomes) verdict_.relations.push_back(std::move(outcome));
    count_audits();
    failure_ = exploration_.failure;
    for (const auto op : exploration_.corrupted_ops(model_.graph())) CULPRIT_CHECK(locate(op));
    if (!failure_ && !suspects_.empty()) CULPRIT_CHECK(try_suspects());
    if (failure_) {
      verdict_.not_tested.push_back("precision that is lower than declared: what it does to the logits takes runs of its own");
      return {};
    }
    CULPRIT_TRY(verdict_.orders, order_findings(*session_, model_.graph(), exploration_, options_.progress));
    if (verdict_.orders.empty() && exploration_.find("alone") != nullptr)
      verdict_.compared.push_back("orders of evaluation, all taps recorded and the logits alone: equal bit for bit");
    CULPRIT_TRY(verdict_.precision, precision_findings(*session_, model_, weights_, exploration_));
    return {};
  }

  // A window that no run reaches is a part of the model that was not tried.
  void note_windows() {
    const auto longest = static_cast<int>(std::ranges::max_element(fixture_.sequences, {}, &std::vector<int>::size)->size());
    std::set<int> beyond;
    for (const auto& node : model_.graph().nodes())
      if (node.op == Op::sdpa && node.window >= longest) beyond.insert(node.window);
    for (const int window : beyond)
      verdict_.not_tested.push_back(
          fmt::format("sliding windows of {} tokens: no run is longer than {}, so one that is too wide, or not there, could not show",
                      window, longest));
  }

  void count_audits() {
    std::vector<const AuditReport*> reports;
    std::set<std::string> reasons;
    for (const auto& run : exploration_.runs) {
      reports.push_back(&run.report);
      for (const auto& op : run.report.ops)
        if (op.judgement == Judgement::not_tested)
          reasons.insert(fmt::format("{}: {}", name_of(model_.graph().nodes()[static_cast<std::size_t>(op.node)].op), op.reason));
    }
    verdict_.audited = summarise(model_.graph(), reports);
    for (const auto& summary : verdict_.audited)
      if (summary.vacuous > 0)
        verdict_.not_tested.push_back(
            fmt::format("{}: {} of {} elements have a bound as large as the result; there only the relations between arms judge",
                        summary.name(), summary.vacuous, summary.judged + summary.vacuous));
    for (const auto& reason : reasons) verdict_.not_tested.push_back(reason);
  }

  Result<void> locate(Op op) {
    const auto& graph = model_.graph();
    const auto observations = exploration_.observations(graph, op);
    const auto condition = contrast(observations);
    say("{} is outside its bound; explaining", name_of(op));
    Defect defect;
    defect.op = name_of(op);
    defect.taps = condition.roles;
    defect.layers = all_layers(condition.layers, condition.layers_seen);
    defect.condition = condition.text();
    defect.condition_notes = condition.where;
    for (std::size_t i = 0; i < condition.predicates.size(); ++i)
      if (!condition.equivalents[i].empty())
        defect.condition_notes.push_back(
            fmt::format("'{}' is not told apart from: {}", condition.predicates[i], fmt::join(condition.equivalents[i], ", ")));
    const auto worst = worst_of(op);
    defect.wrong_side =
        fmt::format("{}: its own output is outside the bound computed from its own inputs, first at {} in arm '{}'", options_.engine.spec(),
                    graph.nodes()[static_cast<std::size_t>(worst.first_node)].output, worst.first_run->arm.name);
    defect.numbers =
        fmt::format("{} of {} places wrong; error up to {:.4g} = {:.4g} times the bound (expected {:.6g}, got {:.6g} at {} step {})",
                    condition.bad, condition.bad + condition.good, worst.audit->error_max, worst.audit->ratio_max, worst.audit->expected,
                    worst.audit->actual, graph.nodes()[static_cast<std::size_t>(worst.audit->node)].output, worst.audit->step);
    std::vector<int> bad_entries;
    for (const auto& run : exploration_.runs)
      if (shows(run, op)) bad_entries.push_back(run.made.entry);
    defect.evidence.push_back(
        {fmt::format("audit: {} of {} runs have {} outside its bound", bad_entries.size(), exploration_.runs.size(), name_of(op)),
         bad_entries, Rule::audit});

    CULPRIT_TRY(const auto explanation, explain(model_, weights_, op, exploration_.records(graph, op), audit_options(session_->hello())));
    defect.predictions = explanation.scores;
    for (const auto& rejected : explanation.rejected) defect.ruled_out.push_back({rejected, bad_entries});
    std::optional<FaultSpec> explained;
    if (explanation.accepted.size() == 1) {
      explained = explanation.accepted.front();
      const auto* entry = find_fault(explained->id);
      defect.fault = explained->text();
      defect.mechanism = std::string(entry->mechanism) + alike_text(explanation.alike);
      defect.status = Status::explained;
      ++verdict_.explained;
    } else if (explanation.accepted.empty()) {
      defect.mechanism = "unknown: no fault model of the catalogue predicts what was seen";
    } else {
      std::vector<std::string> names;
      for (const auto& spec : explanation.accepted) names.push_back(spec.text());
      defect.mechanism = fmt::format("not settled: these runs cannot tell {} apart", fmt::join(names, " and "));
    }
    auto experimented = failure_ ? Result<void>{} : experiment_on(op, condition, explained, defect);
    if (!experimented && experimented.error().id == "not-supported") {
      verdict_.not_tested.push_back(fmt::format("the rest of the proof of {}: {}", defect.op, experimented.error().message));
      experimented = {};
    } else if (!experimented && is_engine_failure(experimented.error())) {
      failure_ = experimented.error();
      experimented = {};
    }
    rule_out_others(op, defect);
    if (explained) name_known(defect);
    verdict_.defects.push_back(std::move(defect));
    return experimented;
  }

  Result<void> experiment_on(Op op, const Condition& condition, const std::optional<FaultSpec>& explained, Defect& defect) {
    CULPRIT_CHECK(attempt_proof(op, condition, explained, defect));
    if (explained) CULPRIT_CHECK(try_contents(op, *explained, defect));
    return scan_condition(op, condition, defect);
  }

  struct Worst {
    const OpAudit* audit = nullptr;
    const AuditedRun* first_run = nullptr;
    int first_node = 1 << 30;
  };
  Worst worst_of(Op kind) const {
    Worst worst;
    for (const auto& run : exploration_.runs)
      for (const auto& op : run.report.ops) {
        if (op.judgement != Judgement::corruption || model_.graph().nodes()[static_cast<std::size_t>(op.node)].op != kind) continue;
        if (worst.audit == nullptr || !(op.ratio_max <= worst.audit->ratio_max)) worst.audit = &op;
        if (op.node < worst.first_node) {
          worst.first_node = op.node;
          worst.first_run = &run;
        }
      }
    return worst;
  }

  bool shows(const AuditedRun& run, Op kind) const {
    return std::ranges::any_of(run.report.ops, [&](const OpAudit& op) {
      return op.judgement == Judgement::corruption && model_.graph().nodes()[static_cast<std::size_t>(op.node)].op == kind;
    });
  }

  // A variant of the op that the engine offers and whose arm the audit found clean.
  std::string right_variant(Op op) const {
    for (const auto& run : exploration_.runs)
      if (run.arm.needs_op == name_of(op) && (options_.faults.empty() ? !shows(run, op) : true)) return run.arm.needs_variant;
    return {};
  }

  // The arm that was asked for, where it shows the defect; else any that does.
  bool may_prove(const AuditedRun& run, Op op) const {
    const auto* asked = options_.proof_arm.empty() ? nullptr : exploration_.find(options_.proof_arm);
    return shows(run, op) && (asked == nullptr || !shows(*asked, op) || asked == &run);
  }

  // The broken relation that is furthest apart, decided flips first, with an arm that shows the defect.
  const AuditedRun* partner_for(Op op, const AuditedRun** bad) const {
    const RelationOutcome* best = nullptr;
    const AuditedRun* partner = nullptr;
    for (const auto& relation : relations(fixture_)) {
      const auto* expected = exploration_.find(relation.expected);
      const auto* actual = exploration_.find(relation.actual);
      if (expected == nullptr || actual == nullptr) continue;
      const bool actual_bad = may_prove(*actual, op), expected_bad = may_prove(*expected, op);
      if (!actual_bad && !expected_bad) continue;
      for (const auto& outcome : verdict_.relations) {
        if (outcome.name != relation.name || !outcome.refused.empty() || outcome.logits_difference_max == 0) continue;
        if (best != nullptr && !further_apart(outcome, *best)) continue;
        best = &outcome;
        *bad = actual_bad ? actual : expected;
        partner = actual_bad ? expected : actual;
      }
    }
    return partner;
  }

  Result<void> attempt_proof(Op op, const Condition& condition, const std::optional<FaultSpec>& explained, Defect& defect) {
    ProofRequest request;
    request.op = op;
    request.taps = tap_globs(condition.roles, model_.graph());
    request.planted = planted();
    request.explained = explained;
    request.partner = partner_for(op, &request.bad);
    if (request.bad == nullptr)
      for (const auto& run : exploration_.runs)
        if (request.bad == nullptr && may_prove(run, op)) request.bad = &run;
    guilty_taps_.insert(guilty_taps_.end(), request.taps.begin(), request.taps.end());
    if (proof_bad_ == nullptr) proof_bad_ = request.bad;
    // No other variant takes packed weights, so a fault of these cannot be put into one.
    if (request.bad->arm.needs_variant != "quantized") request.right_variant = right_variant(op);
    say("proving {}", defect.fault.empty() ? defect.op : defect.fault);
    decide("proof on arm '{}': it shows the defect, and with '{}' it is the broken relation that is furthest apart", request.bad->arm.name,
           request.partner == nullptr ? "none" : request.partner->arm.name);
    CULPRIT_TRY(auto proof, prove(*session_, model_, weights_, request));
    defect.sufficient = proof.sufficient;
    defect.necessary = proof.necessary;
    for (auto& claim : proof.evidence) defect.evidence.push_back(std::move(claim));
    if (defect.status == Status::explained && proof.sufficient && proof.necessary) defect.status = Status::proved;
    CULPRIT_TRY(defect.damage, measure_damage(*session_, model_.graph(), op, *request.bad, *proof.patched));
    return {};
  }

  // A fault whose content was left open is planted with each: each must be told from the others.
  Result<void> try_contents(Op op, const FaultSpec& explained, Defect& defect) {
    const auto open =
        std::ranges::find_if(options_.faults, [&](const FaultSpec& spec) { return spec.id == explained.id && content_is_open(spec); });
    if (open == options_.faults.end()) return {};
    const auto* entry = find_fault(explained.id);
    for (const auto& [name, values] : entry->parameters) {
      if (name != "content") continue;
      for (const auto& content : values) {
        if (content == explained.parameter("content", "")) continue;
        std::vector<Arm> arms;
        for (const auto* wanted : {"batch", "rank 3"}) {
          arms.push_back(arm_named(wanted));
          arms.back().plan.faults = planted(content);
          arms.back().plan.name += " content " + content;
        }
        say("planting {} with content {}", explained.id, content);
        CULPRIT_TRY(const auto again, explore(*session_, model_, weights_, arms));
        if (again.failure) return tl::unexpected(*again.failure);
        CULPRIT_TRY(const auto explanation,
                    explain(model_, weights_, op, again.records(model_.graph(), op), audit_options(session_->hello())));
        std::vector<int> entries;
        for (const auto& run : again.runs) entries.push_back(run.made.entry);
        const auto where = contrast(again.observations(model_.graph(), op));
        const auto says_so = [&](const FaultSpec& spec) { return spec.parameter("content", "") == content; };
        const bool right =
            explanation.accepted.size() == 1 && (says_so(explanation.accepted[0]) || std::ranges::any_of(explanation.alike, says_so));
        if (!explanation.scores.empty()) defect.predictions.push_back(explanation.scores.front());
        defect.evidence.push_back({fmt::format("content {}: {}; {}", content,
                                               right ? fmt::format("{} is the one model that predicts it", explanation.accepted[0].text())
                                                     : "not explained as planted",
                                               fmt::join(where.where, "; ")),
                                   entries});
        if (!right) defect.status = Status::localised;
      }
    }
    return {};
  }

  // Settings that the arms hold fixed, varied on the op alone: dtype and position.
  Result<void> scan_condition(Op op, Condition condition, Defect& defect) {
    if (op != Op::rope) return {};
    CULPRIT_TRY(const auto scan, scan_rope(*session_, model_, exploration_, planted(), options_.dtype));
    for (const auto& note : scan.notes) defect.condition_notes.push_back(note);
    if (!scan.tried) return {};
    // The op alone was tried at every position, the arms only at a few: its smallest position stands for theirs.
    std::erase_if(condition.predicates, [](const std::string& predicate) { return predicate.starts_with("position >="); });
    if (!scan.condition.empty()) condition.predicates.insert(condition.predicates.begin(), scan.condition);
    defect.condition = condition.text();
    return {};
  }

  // Every guilty op made right at once: what is left is the run without the defects.
  Result<void> try_suspects() {
    DefectRuns defect;
    std::optional<AuditedRun> right;
    if (proof_bad_ != nullptr) {
      say("testing {} suspects", suspects_.size());
      defect.bad = proof_bad_;
      Arm arm = proof_bad_->arm;
      arm.plan.name += " right";
      arm.plan = with_interventions(std::move(arm.plan), Intervention::Kind::exact, guilty_taps_);
      CULPRIT_TRY(right, run_and_audit(*session_, model_, weights_, arm, "suspects: every guilty op made right"));
      defect.right = &*right;
    }
    CULPRIT_TRY(verdict_.suspects, test_suspects(*session_, model_, weights_, exploration_, defect, suspects_));
    return {};
  }

  void rule_out_others(Op op, Defect& defect) const {
    const auto corrupted = exploration_.corrupted_ops(model_.graph());
    for (const auto& summary : verdict_.audited)
      if (summary.op != op && std::ranges::find(corrupted, summary.op) == corrupted.end())
        defect.ruled_out.push_back({fmt::format("{}: {} outputs, {} elements, none outside its bound (largest error {:.2f} of it)",
                                                summary.name(), summary.outputs, summary.judged, summary.ratio_max),
                                    {}});
    if (!weights_note_.empty())
      defect.ruled_out.push_back({weights_note_ + (verdict_.defects.empty() ? "" : "; right ones were handed in for these runs"), {}});
  }

  void conclude() {
    if (!verdict_.defects.empty()) {
      verdict_.status = Status::proved;
      for (const auto& defect : verdict_.defects) verdict_.status = std::min(verdict_.status, defect.status);
      return;
    }
    if (verdict_.audited.empty()) {
      verdict_.reason = "nothing was audited";
      return;
    }
    if (!options_.faults.empty()) {
      verdict_.reason = "the planted fault changed nothing in any arm: its trigger was not met, so these runs could not have shown it";
      return;
    }
    for (const auto& order : verdict_.orders)
      if (order.repeatable && !order.audited) {
        verdict_.reason = "every op that was audited is right, but runs of which only the logits were recorded differ: " + to_text(order);
        return;
      }
    verdict_.status = Status::no_divergence;
  }

  void name_reproducer() {
    verdict_.reproduce = fmt::format("culprit find {} --engine {} --dtype {} --seed {}", options_.model_name, options_.engine.spec(),
                                     name_of(options_.dtype), options_.seed);
    if (options_.cache.kind != CacheKind::concat) verdict_.reproduce += " --cache " + fixture_.cache;
    for (const auto& fault : options_.faults) verdict_.reproduce += " --fault " + fault.text();
    if (!options_.proof_arm.empty()) verdict_.reproduce += fmt::format(" --proof-arm '{}'", options_.proof_arm);
    if (options_.timeout) verdict_.reproduce += fmt::format(" --timeout {}", options_.timeout->count());
    for (const auto& prompt : options_.prompts) verdict_.reproduce += fmt::format(" --prompt {}", fmt::join(prompt, ","));
  }

  const FindOptions& options_;
  Model model_;
  ModelWeights weights_;
  Fixture fixture_;
  Verdict verdict_;
  std::unique_ptr<Session> session_;
  Exploration exploration_;
  std::string weights_note_;
  std::vector<Suspect> suspects_;
  std::vector<std::string> guilty_taps_;   // of every op that was outside its bound
  const AuditedRun* proof_bad_ = nullptr;  // where the first defect was proved
  std::optional<Error> failure_;           // of the engine: no request is made after it
};

}  // namespace

Result<Verdict> find(const FindOptions& options) {
  CULPRIT_TRY(auto model, Model::open(options.model));
  std::error_code error;
  std::filesystem::create_directories(options.work, error);
  if (error) return fail("file-write", error.message(), options.work.string());
  return Finder(options, std::move(model)).run();
}

}  // namespace culprit
