// TOML read strictly: every complaint with its line, keys that nobody asked for included.
#pragma once

#include <toml++/toml.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/base/result.h"

namespace tusk::server {

struct Complaint {
  unsigned line = 0;  // 0: about the file as a whole
  std::string what;
};
using Complaints = std::vector<Complaint>;

// "FILE:LINE: what" for each, joined by newlines.
[[nodiscard]] std::string to_text(const Complaints& complaints, std::string_view file);

// Nothing when the text is no TOML; the reason is among the complaints then.
[[nodiscard]] std::optional<toml::table> parse_toml(std::string_view text, Complaints& complaints);

// One table, asked for key after key; then done() complains about the rest.
class TomlReader {
 public:
  TomlReader(const toml::table& table, std::string where, Complaints& complaints)
      : table_(table), where_(std::move(where)), complaints_(complaints) {}

  [[nodiscard]] bool has(std::string_view key) const { return table_.contains(key); }
  [[nodiscard]] std::optional<std::string> text(std::string_view key);
  // As text(), and its absence is a complaint.
  [[nodiscard]] std::optional<std::string> required_text(std::string_view key);
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view key, std::int64_t min, std::int64_t max);
  [[nodiscard]] std::optional<bool> boolean(std::string_view key);
  struct Item {
    std::string text;
    unsigned line;
  };
  [[nodiscard]] std::vector<Item> texts(std::string_view key);
  // The sub-table, or those of an array of tables ([[key]]).
  [[nodiscard]] std::optional<TomlReader> table(std::string_view key);
  [[nodiscard]] std::vector<TomlReader> tables(std::string_view key);

  void complain(std::string_view key, std::string what);
  void complain_at(unsigned line, std::string what) {
    complaints_.push_back({line, where_ + std::move(what)});
  }
  void done();

 private:
  [[nodiscard]] unsigned line() const { return table_.source().begin.line; }
  [[nodiscard]] const toml::node* find(std::string_view key);

  const toml::table& table_;
  std::string where_;  // "export 2: ", before each complaint
  Complaints& complaints_;
  std::set<std::string, std::less<>> asked_;
};

}  // namespace tusk::server
