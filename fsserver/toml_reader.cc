#include "fsserver/toml_reader.h"

#include <algorithm>

namespace tusk::server {
namespace {

std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

}  // namespace

std::string to_text(const Complaints& complaints, std::string_view file) {
  std::string text;
  for (const Complaint& complaint : complaints) {
    if (!text.empty()) text += '\n';
    text += file;
    if (complaint.line != 0) text += ":" + std::to_string(complaint.line);
    text += ": " + complaint.what;
  }
  return text;
}

std::optional<toml::table> parse_toml(std::string_view text, Complaints& complaints) {
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    complaints.push_back(
        {error.source().begin.line,
         "this is not TOML; is a quote, a bracket or a '=' missing? " + std::string(error.description())});
    return std::nullopt;
  }
}

const toml::node* TomlReader::find(std::string_view key) {
  asked_.emplace(key);
  return table_.get(key);
}

std::optional<std::string> TomlReader::text(std::string_view key) {
  const toml::node* const node = find(key);
  if (node == nullptr) return std::nullopt;
  if (const auto value = node->value_exact<std::string>()) return *value;
  complain(key, quoted(key) + " must be text in quotes");
  return std::nullopt;
}

std::optional<std::string> TomlReader::required_text(std::string_view key) {
  if (find(key) == nullptr) complain_at(line(), quoted(key) + " is missing");
  return text(key);
}

std::optional<std::int64_t> TomlReader::integer(std::string_view key, std::int64_t min, std::int64_t max) {
  const toml::node* const node = find(key);
  if (node == nullptr) return std::nullopt;
  const auto value = node->value_exact<std::int64_t>();
  if (value && *value >= min && *value <= max) return *value;
  complain(key, quoted(key) + " must be a whole number from " + std::to_string(min) + " to " +
                    std::to_string(max));
  return std::nullopt;
}

std::optional<bool> TomlReader::boolean(std::string_view key) {
  const toml::node* const node = find(key);
  if (node == nullptr) return std::nullopt;
  if (const auto value = node->value_exact<bool>()) return *value;
  complain(key, quoted(key) + " must be true or false");
  return std::nullopt;
}

std::vector<TomlReader::Item> TomlReader::texts(std::string_view key) {
  std::vector<Item> items;
  const toml::node* const node = find(key);
  if (node == nullptr) return items;
  const toml::array* const array = node->as_array();
  if (array == nullptr) {
    complain(key, quoted(key) + " must be a list: [\"...\", \"...\"]");
    return items;
  }
  for (const toml::node& element : *array) {
    const unsigned at = element.source().begin.line;
    if (const auto value = element.value_exact<std::string>())
      items.push_back({*value, at});
    else
      complain_at(at, quoted(key) + " must be a list of texts in quotes");
  }
  return items;
}

std::optional<TomlReader> TomlReader::table(std::string_view key) {
  const toml::node* const node = find(key);
  if (node == nullptr) return std::nullopt;
  if (const toml::table* const sub = node->as_table())
    return TomlReader(*sub, where_ + "[" + std::string(key) + "]: ", complaints_);
  complain(key, quoted(key) + " must be a table: [" + std::string(key) + "]");
  return std::nullopt;
}

std::vector<TomlReader> TomlReader::tables(std::string_view key) {
  std::vector<TomlReader> readers;
  const toml::node* const node = find(key);
  if (node == nullptr) return readers;
  const toml::array* const array = node->as_array();
  if (array == nullptr || !array->is_homogeneous<toml::table>()) {
    complain(key, "each " + quoted(key) + " begins with [[" + std::string(key) + "]]");
    return readers;
  }
  for (const toml::node& element : *array)
    readers.emplace_back(*element.as_table(), where_ + "[[" + std::string(key) + "]]: ", complaints_);
  return readers;
}

void TomlReader::complain(std::string_view key, std::string what) {
  const toml::node* const node = table_.get(key);
  complain_at(node != nullptr ? node->source().begin.line : line(), std::move(what));
}

void TomlReader::done() {
  for (const auto& [key, node] : table_)
    if (!asked_.contains(key.str()))
      complain_at(key.source().begin.line, "there is no setting " + quoted(key.str()));
}

}  // namespace tusk::server
