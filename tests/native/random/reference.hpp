// What a program means: its steps one after the other on plain vectors.
#pragma once

#include <cstring>
#include <vector>

#include "random/program.hpp"

namespace random_programs {

// What a body does. `values` has the words of each use; the order of bodies shows in the result.
inline void compute(const Step& step, const std::vector<Word*>& values,
                    const std::vector<std::size_t>& words) {
  const auto uses = merged(step.uses);
  for (const auto& [out, mode] : uses) {
    if (!stf_places::writes(mode)) continue;
    for (std::size_t w = 0; w < words[out]; ++w) {
      Word mix = stf_places::reads(mode) ? values[out][w] * 31 : 0;
      for (const auto& [in, in_mode] : uses) {
        if (in == out || !stf_places::reads(in_mode) || words[in] == 0) continue;
        mix = mix * 7 + values[in][w % words[in]];
      }
      values[out][w] = mix * 2654435761u + step.constant + static_cast<Word>(w);
    }
  }
}

// What a body leaves behind that raises in the middle.
inline void spoil(const Step& step, const std::vector<Word*>& values, const std::vector<std::size_t>& words) {
  for (const auto& [out, mode] : merged(step.uses)) {
    if (stf_places::writes(mode) && words[out] != 0) values[out][0] ^= 0xdeadbeefu;
  }
}

// The first word is not zero, so that lost values show.
inline std::vector<Word> initial_value(const DataSpec& spec, int index) {
  std::vector<Word> value(spec.kind == DataSpec::Kind::token ? 1 : spec.words);
  if (spec.kind == DataSpec::Kind::empty) return value;
  for (std::size_t w = 0; w < value.size(); ++w)
    value[w] = static_cast<Word>(index * 1000 + 1 + static_cast<int>(w));
  return value;
}

class Reference {
 public:
  explicit Reference(const Program& program) {
    for (std::size_t i = 0; i < program.data.size(); ++i) {
      values_.push_back(initial_value(program.data[i], static_cast<int>(i)));
    }
    poisoned_.resize(values_.size(), false);
  }

  void run(const Step& step) {
    if (step.refused) return;
    for (const Step& inner : step.nested) run(inner);
    if (step.kind == Step::Kind::task || step.kind == Step::Kind::callback) {
      std::vector<Word*> values;
      std::vector<std::size_t> words;
      for (const Use& use : step.uses) {
        values.push_back(values_[static_cast<std::size_t>(use.data)].data());
        words.push_back(values_[static_cast<std::size_t>(use.data)].size());
      }
      (step.fails ? spoil : compute)(step, values, words);
      for (const auto& [out, mode] : merged(step.uses)) {
        if (stf_places::writes(mode)) poisoned_[static_cast<std::size_t>(step.uses[out].data)] = step.fails;
      }
    } else if (step.kind == Step::Kind::fill) {
      auto& value = values_[static_cast<std::size_t>(step.data)];
      auto* bytes = reinterpret_cast<unsigned char*>(value.data());
      for (std::size_t at = 0; at < value.size() * sizeof(Word); at += step.width) {
        std::memcpy(bytes + at, &step.constant, step.width);
      }
      poisoned_[static_cast<std::size_t>(step.data)] = false;
    }
  }

  const std::vector<Word>& value(int data) const { return values_[static_cast<std::size_t>(data)]; }
  bool poisoned(int data) const { return poisoned_[static_cast<std::size_t>(data)]; }

 private:
  std::vector<std::vector<Word>> values_;
  std::vector<bool> poisoned_;
};

}  // namespace random_programs
