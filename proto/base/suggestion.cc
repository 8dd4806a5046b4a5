#include "proto/base/suggestion.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

namespace tusk {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row.back();
}

// Its first letter and most of the others, in order: how people abbreviate.
bool abbreviates(std::string_view word, std::string_view known) {
  if (word.empty() || !known.starts_with(word.front()) || 2 * word.size() < known.size()) return false;
  std::size_t found = 0;
  for (const char c : known)
    if (found < word.size() && word[found] == c) ++found;
  return found == word.size();
}

}  // namespace

std::string_view closest_word(std::string_view word, std::span<const std::string_view> known) {
  // Half of a short word changed is another word.
  const std::size_t close_enough = std::min<std::size_t>(3, word.size() / 2);
  std::string_view best;
  std::size_t distance = close_enough + 1;
  for (const std::string_view candidate : known) {
    const std::size_t d = abbreviates(word, candidate) ? std::min<std::size_t>(1, close_enough)
                                                       : edit_distance(word, candidate);
    if (d < distance) std::tie(best, distance) = std::pair(candidate, d);
  }
  return best;
}

std::string no_such_command(std::string_view word, std::span<const std::string> known) {
  const std::vector<std::string_view> words(known.begin(), known.end());
  const std::string_view meant = closest_word(word, words);
  std::string text = "there is no command '" + std::string(word) + "'";
  if (!meant.empty()) return text + ": did you mean " + std::string(meant) + "?";
  for (const std::string& name : known) text += (&name == known.data() ? ", but " : ", ") + name;
  return text;
}

}  // namespace tusk
